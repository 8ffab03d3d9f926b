#!/usr/bin/env bash
# What tools/setup.sh says where it cannot do its work: one line with the remedy and exit code 1, each on a copy of its own with commands
# that fail in a known way put before the real ones. Nothing is installed or fetched.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# Commands that stand in for the system's, in a PATH of their own with the few real ones that setup.sh uses.
mkdir "$work/bin"
for tool in bash sh awk basename cat chmod cmp comm cut date df dirname env find flock grep head mkdir mktemp mv paste rm sed sha256sum sort stat tail tr; do
  ln -s "$(command -v $tool)" "$work/bin/$tool"
done
fake() {  # DIR NAME BODY
  mkdir -p "$work/$1"
  printf '#!%s\n%s\n' "$(command -v bash)" "$3" >"$work/$1/$2"
  chmod +x "$work/$1/$2"
}

# expect NAME REGEX FAKES COMMAND...: COMMAND, after setup.sh in a fresh copy of tools, must end with 1 and one last line that matches.
expect() {
  local name=$1 regex=$2 fakes=$3 out code=0 path=$work/bin
  shift 3
  for dir in $fakes; do path=$work/$dir:$path; done
  mkdir -p "$work/$name"
  cp -r "$root/tools" "$root/CMakePresets.json" "$work/$name/"
  mkdir "$work/$name/web" && cp "$root/web/package-lock.json" "$work/$name/web/"
  out=$(env -i HOME="$work/home" PATH="$path" bash -c '. "$1/tools/setup.sh"; setup_begin; shift; "$@"' run "$work/$name" "$@" 2>&1 >/dev/null </dev/null) || code=$?
  if [ $code != 1 ] || ! grep -qE "$regex" <<<"$(tail -n 1 <<<"$out")"; then
    printf '%s: exit code %d, wanted 1 and a last line with: %s\n%s\n' "$name" $code "$regex" "$out"
    bad=1
  fi
  [ "$(grep -vcE '^run: (installing|making|downloading|configuring|building|the model in .* is damaged)' <<<"$out")" = 1 ] || { printf '%s: more than one line:\n%s\n' "$name" "$out"; bad=1; }
}

fake none dpkg-query 'exit 1'
fake root id 'echo 0'
fake user id 'echo 1000'
fake apt apt-get 'exit 0'
fake offline apt-get 'echo "E: Failed to fetch: Temporary failure resolving"; exit 100'
fake full apt-get '[[ "$*" == *update* ]] || { echo "E: You do not have enough free space in /var/cache/apt/archives/."; exit 100; }'
fake locked apt-get 'echo "E: Could not get lock /var/lib/dpkg/lock-frontend"; exit 100'
fake refusing sudo 'exit 1'
fake python python3 'if [ "$1" = -V ]; then echo Python 3.11.2; else mkdir -p "$3/bin"; printf "%s\n" "#!$(command -v bash)" "echo NewConnectionError; exit 1" >"$3/bin/python"; chmod +x "$3/bin/python"; fi'
fake node node 'echo v18.0.0'
fake node npm 'echo "npm ERR! network request to a registry failed: getaddrinfo ENOTFOUND"; exit 1'
fake old_node node 'echo v12.22.9'
fake tiny df 'echo x; echo / 100 97 3 97% /'

expect no_apt 'no apt-get here.* g\+\+ .*MHA_SKIP_PACKAGES=1' "none root" setup_packages run
expect no_sudo 'neither root nor sudo.*apt-get install .*g\+\+' "none user apt" setup_packages run
expect sudo_refuses 'sudo refuses.*apt-get install .*g\+\+' "none user apt refusing" setup_packages run
expect offline_apt 'network cannot be reached.*\(log: .*apt-update.log\)' "none root offline" setup_packages run
expect full_disk 'disk is full.*\(log: .*apt-install.log\)' "none root full" setup_packages run
expect locked_apt 'another package manager' "none root locked" setup_packages run
expect offline_model 'fetching the model failed: the network cannot be reached.*model.log' "python" setup_model
expect no_node 'neither root nor sudo.*apt-get install nodejs npm' "none user apt" setup_packages web
expect old_node 'wants Node 18 or later and .*/node is v12.22.9: ' "node old_node" setup_web
expect offline_npm 'npm ci failed: the network cannot be reached.*npm.log' "node" setup_web
expect little_space 'the model needs 300 MB .* 3 MB are free' "python tiny" setup_model
exit $bad
