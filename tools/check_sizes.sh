#!/usr/bin/env bash
# The size rules of HACKING.md: files under 500 lines, functions under 60, at most 6 parameters. Called by ./test with the path of lizard.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
while read -r lines file; do
  echo "$file: $lines lines, the rule is fewer than 500"
  bad=1
done < <(find include src apps bench examples python tests tools cmake \( -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' \) 2>/dev/null |
  xargs wc -l | awk '$2 != "total" && $1 >= 500')
"$1" -l cpp -w -L 59 -a 6 -C 1000 include src apps bench python tests || bad=1
exit $bad
