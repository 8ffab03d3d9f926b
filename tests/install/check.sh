#!/usr/bin/env bash
# Installs BUILD and builds a project from outside against it, then once more with the checkout as a sub-directory, and runs both.
#   tests/install/check.sh BUILD WORK_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
build=$1 work=$2
rm -rf "$work"

user() {  # NAME CMAKE_ARGUMENT...
  cmake -S "$here" -B "$work/$1" -G Ninja "${@:2}"
  cmake --build "$work/$1" --target user model_user
  "$work/$1/user"
  "$work/$1/model_user"
}

cmake --install "$build" --prefix "$work/prefix"
if grep -rlE "$(cd "$here/../.." && pwd -P)(/|\"|;)" "$work"/prefix/lib*/cmake "$work"/prefix/lib/*/cmake 2>/dev/null; then
  echo "the installed CMake files name the checkout"
  exit 1
fi
user installed -DCMAKE_PREFIX_PATH="$work/prefix"
user subdirectory -DMHA_SOURCE_DIR="$here/../.." -DCMAKE_BUILD_TYPE=Debug
if [ -x "$work/prefix/bin/mha" ]; then "$work/prefix/bin/mha" --version; fi
