#!/usr/bin/env bash
# Formats every C++ file by .clang-format with the pinned clang-format of build/venv (./test makes it). --check changes nothing and fails
# where a file is not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
format=build/venv/bin/clang-format
[ -x $format ] || { echo "no $format yet: run ./test once" >&2; exit 1; }
mode=(-i)
[ "${1:-}" != --check ] || mode=(--dry-run -Werror)
mapfile -t sources < <(find include src apps tests bench examples python -name '*.cpp' -o -name '*.h' -o -name '*.inl' 2>/dev/null)
"$format" "${mode[@]}" "${sources[@]}" || { echo "not formatted: run tools/format.sh" >&2; exit 1; }
