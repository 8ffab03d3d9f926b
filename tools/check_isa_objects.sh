#!/usr/bin/env bash
# No code compiled with ISA flags may leak: the object of every src/kernels/isa_*.cpp exports exactly one data symbol (its table) and has
# no weak one, since of several weak copies the linker keeps any, and a plain CPU would then run AVX code.
#   tools/check_isa_objects.sh BUILD_DIR | OBJECT...
set -euo pipefail
objects=("$@")
[ ! -d "$1" ] || mapfile -t objects < <(find "$1" -path '*kernels/isa_*.o' | sort)
[ ${#objects[@]} -gt 0 ] || { echo "no isa_*.o under $1"; exit 1; }
bad=0
for object in "${objects[@]}"; do
  symbols=$(nm -C "$object")
  weak=$(awk '$2 ~ /^[WwVvu]$/ || $1 ~ /^[WwVv]$/' <<<"$symbols")
  data=$(awk '$2 ~ /^[BDGRS]$/' <<<"$symbols")
  code=$(awk '$2 == "T"' <<<"$symbols")
  if [ -n "$weak" ] || [ -n "$code" ] || [ "$(grep -c . <<<"$data")" != 1 ]; then
    printf '%s: wanted one exported data symbol, no exported function, nothing weak; has:\n%s\n' "$object" "$(printf "%s\n" "$data" "$code" "$weak" | sort -u)"
    bad=1
  fi
done
[ $bad != 0 ] || echo "${#objects[@]} ISA objects export one table each"
exit $bad
