#!/usr/bin/env bash
# Fuzzes the readers of files from outside, all at once: tools/fuzz.sh [SECONDS], 600 without it. Begins with tests/fuzz/corpus and what
# earlier runs found (build/fuzz/found), prints what was reached, and fails where an input crashed a reader, took 5 seconds or much memory;
# that input lies then in build/fuzz. `tools/fuzz.sh --keep` runs nothing: it adds to the corpus what runs have found and the corpus lacks.
. "$(dirname "$0")/setup.sh"

names="capture conllu safetensors tokenizer"
found=$build/fuzz/found
targets=$build/fuzz/tests/fuzz

build_targets() {
  setup_begin
  setup_packages run test full
  build_preset fuzz mha_fuzz
  setup_done
}

# start NAME SECONDS: the fuzzer in the background. Files above 4 KB find little more and slow it down.
start() {
  mkdir -p "$found/$1"
  nice "$targets/mha_fuzz_$1" -max_total_time="$2" -max_len=4096 -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=256 \
    -dict="$root/tests/fuzz/$1.dict" -artifact_prefix="$build/fuzz/$1-" -print_final_stats=1 \
    "$found/$1" "$root/tests/fuzz/corpus/$1" >"$logs/fuzz-$1.log" 2>&1 </dev/null &
}

# figure NAME PATTERN: the last number after PATTERN in the log of NAME.
figure() { sed -n "s/.*$2 *\([0-9][0-9]*\).*/\1/p" "$logs/fuzz-$1.log" | tail -n 1; }

fuzz() {
  local name pids=() bad=0
  for name in $names; do
    start "$name" "$1"
    pids+=($!)
  done
  for name in $names; do
    if wait "${pids[0]}"; then
      printf '%s: %s executions in %s s, %s edges and %s features reached, %s inputs (committed: %s)\n' "$name" \
        "$(figure "$name" 'number_of_executed_units:')" "$1" "$(figure "$name" 'cov:')" "$(figure "$name" 'ft:')" \
        "$(figure "$name" 'corp:')" "$(find "$root/tests/fuzz/corpus/$name" -type f | wc -l)"
    else
      tail -n 40 "$logs/fuzz-$name.log" >&2
      say "fuzzing $name failed (log: $logs/fuzz-$name.log)"
      bad=1
    fi
    pids=("${pids[@]:1}")
  done
  return $bad
}

# Only inputs that reach an edge which nothing in the corpus reaches (counters would keep thousands), those first that reach the most, up
# to 100 files a reader.
keep() {
  local name corpus merged file
  for name in $names; do
    corpus=$root/tests/fuzz/corpus/$name merged=$build/fuzz/merged/$name
    rm -rf "$merged"
    mkdir -p "$merged"
    cp "$corpus"/* "$merged"
    "$targets/mha_fuzz_$name" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$merged" "$found/$name" >"$logs/fuzz-keep.log" 2>&1 ||
      fail "merging failed (log: $logs/fuzz-keep.log)"
    for file in $(ls -tr "$merged"); do  # libFuzzer writes the best first
      [ "$(find "$corpus" -type f | wc -l)" -ge 100 ] || [ -e "$corpus/$file" ] || cp "$merged/$file" "$corpus/"
    done
    echo "$name: $(find "$corpus" -type f | wc -l) files, $(find "$corpus" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }') bytes"
  done
}

build_targets
case ${1:-600} in
  --keep) keep ;;
  *[!0-9]*) fail "usage: tools/fuzz.sh [SECONDS | --keep]" ;;
  *) fuzz "${1:-600}" ;;
esac
