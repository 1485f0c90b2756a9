# shellcheck shell=bash
# Functions that load what a machine needs. tests/run and examples/digits/run source this file from the project's root.
# Every function says what it loads and why, loads nothing that is there already, and tries a failed download once more.

say() { printf '%s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

twice() { "$@" || { say "   failed; once more: $*"; sleep 2; "$@"; }; }

# load_packages WHY PACKAGE…: installs the Debian packages that are missing. A user who may not install packages is told
# what to load, and the run goes on without them; need_commands checks for the programs that are indispensable.
load_packages() {
  local why=$1 package missing=()
  shift
  command -v dpkg-query >/dev/null || return 0  # on other distributions need_commands tells what is missing
  for package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    say ":: missing, $why: ${missing[*]}"
    say "   not root, so nothing was installed; to load them:"
    say "   sudo apt-get install --no-install-recommends ${missing[*]}"
    return 0
  fi
  say ":: apt-get install, $why: ${missing[*]}"
  if [ -z "${apt_lists_are_fresh:-}" ]; then
    twice apt_get update || fail "apt-get update failed: is there a network, and a mirror in /etc/apt?"
    apt_lists_are_fresh=yes
  fi
  twice apt_get install --no-install-recommends "${missing[@]}" || fail "apt-get could not install: ${missing[*]}"
}
apt_get() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120 "$@" >build/logs/apt.log 2>&1 ||
    { tail -n 5 build/logs/apt.log; return 1; }
}

need_commands() {
  local command missing=()
  for command; do command -v "$command" >/dev/null || missing+=("$command"); done
  [ ${#missing[@]} = 0 ] || fail "cannot go on without: ${missing[*]} (Debian 12's packages of these names will do)"
}

# Loads what the build of the core needs. PMIx and hwloc are optional for the library, but its tests need them.
load_build_tools() {
  load_packages "to build" g++ cmake ninja-build ccache pkg-config libhwy-dev
  load_packages "for the plugins (start under PMIx, the machine's topology)" libpmix-dev libhwloc-dev
  load_packages "for the plugins over MPI, and to test them" libmpich-dev mpich libopenmpi-dev openmpi-bin
  load_packages "for checkpoints, and to look at them in tests" libhdf5-103-1 hdf5-tools
  load_packages "for horovodrun --stage" libarchive13
  need_commands g++ cmake ninja
}

# Sets $python to a Python that can make virtual environments and has the C headers for extensions. If a virtual
# environment is active, $python is the Python that this environment was made from: the environments that we make must
# not depend on the active one, which may also be the environment that is to be made anew.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10 python3.9; do
    ! python=$("$candidate" - 2>/dev/null <<'PYTHON'
import ensurepip, os, sys, sysconfig, venv
print(os.path.realpath(sys._base_executable))
sys.exit(sys.version_info < (3, 9) or not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))
PYTHON
    ) || return 0
  done
  return 1
}

load_python() {
  find_python || { load_packages "for Python programs and checks" python3 python3-dev python3-venv; find_python; } ||
    fail "no python3 >= 3.9 with venv and Python.h was found; Debian: python3 python3-dev python3-venv"
}

# make_environment FOLDER WHY REQUIREMENT…: makes FOLDER a virtual environment with these packages.
make_environment() {
  local folder=$1 why=$2
  shift 2
  load_python
  local wanted="$python $*"
  [ "$(cat "$folder/requirements.stamp" 2>/dev/null)" != "$wanted" ] || return 0
  say ":: pip install into $folder, $why: $*"
  [ -x "$folder/bin/python" ] && [ "$(cut -d' ' -f1 "$folder/requirements.stamp" 2>/dev/null)" = "$python" ] ||
    "$python" -m venv --clear "$folder" || fail "$python cannot make a virtual environment in $folder"
  twice pip_install "$folder" "$@" || fail "pip could not install: $*"
  printf '%s' "$wanted" >"$folder/requirements.stamp"
}
pip_install() {
  local folder=$1
  shift
  "$folder/bin/python" -m pip install -qq --progress-bar off --disable-pip-version-check --no-warn-script-location "$@"
}

# Unpacks Debian's packages of Lmod and Environment Modules into build/module-tools, to test modulefiles. They are not
# installed: Debian can install only one of the two, and an installed one changes every shell of the machine.
load_module_tools() {
  load_packages "for Lmod and Environment Modules" lua5.3 lua-posix lua-filesystem lua-term lua-json tcl8.6
  [ ! -e build/module-tools/complete ] || return 0
  command -v apt-get >/dev/null || { say ":: no apt-get: the tests of modulefiles are left out"; return 0; }
  local here tools package
  here=$PWD tools=$PWD/build/module-tools
  rm -rf "$tools" && mkdir -p "$tools" && cd "$tools" || return
  say ":: apt-get download, to test modulefiles: lmod environment-modules"
  if twice apt-get -qq download lmod environment-modules >"$here/build/logs/apt.log" 2>&1; then
    for package in lmod environment-modules; do dpkg -x "$package"_*.deb $package; done
    # The scripts contain the paths of an installation; here these become paths below build/module-tools.
    grep -rlIE '/usr/share/lmod|/etc/lmod' lmod | xargs sed -Ei "s,/(usr/share|etc)/lmod,$tools/lmod&,g"
    grep -rlIE '/usr/share/modules|/etc/environment-modules|modulecmd.tcl' environment-modules |
      xargs sed -Ei \
        "s,/(usr/share/modules|etc/environment-modules|usr/lib/[^/ ]*/modulecmd.tcl),$tools/environment-modules&,g"
    touch complete
  else
    tail -n 5 "$here/build/logs/apt.log"
    say "   the tests of modulefiles are left out"
  fi
  cd "$here" || return
}

# Unpacks Debian's Python for aarch64 into build/aarch64, with PMIx and hwloc, to try the wheel for aarch64 over qemu.
# apt gets a state of its own: this machine does not become one of two architectures.
load_aarch64_python() {
  load_packages "to run programs for aarch64" qemu-user-static
  [ ! -e build/aarch64/complete ] || return 0
  command -v apt-get >/dev/null || { say ":: no apt-get: the wheel for aarch64 is not run"; return 0; }
  local here=$PWD root=$PWD/build/aarch64 package
  rm -rf "$root"
  mkdir -p "$root"/apt/{lists/partial,cache/archives/partial} "$root/packages" && cd "$root" || return
  : >apt/status
  printf '%s\n' "Dir::State::lists \"$root/apt/lists\";" "Dir::State::status \"$root/apt/status\";" \
    "Dir::Cache \"$root/apt/cache\";" 'APT::Architecture "arm64";' 'APT::Architectures {"arm64";};' \
    'APT::Sandbox::User "root";' >apt/conf
  say ":: apt-get download, to try the wheel for aarch64: python3 libpmix2 libhwloc15"
  local -x APT_CONFIG=$root/apt/conf
  if twice apt-get -qq update >"$here/build/logs/apt.log" 2>&1 && cd packages &&
    apt-get -qq -s install --no-install-recommends python3 libpmix2 libhwloc15 2>/dev/null |
      awk '/^Inst/ {print $2}' | xargs apt-get -qq download >>"$here/build/logs/apt.log" 2>&1; then
    for package in *.deb; do dpkg -x "$package" "$root"; done
    touch "$root/complete"
  else
    tail -n 5 "$here/build/logs/apt.log"
    say "   the wheel for aarch64 is not run"
  fi
  cd "$here" && rm -rf "$root/apt" "$root/packages"
}

# $mpich5 is the folder of an MPI with the standard ABI that MPI 5 defines.
mpich5=build/mpich5-venv
load_mpich5() { make_environment $mpich5 "MPICH 5, to build and test the plugin for MPI's standard ABI" mpich==5.0.2; }

# install_horovod FOLDER [PIP_OPTION…]: installs this tree's wheel if a source file has changed since the last time.
install_horovod() {
  local folder=$1 state
  shift
  state=$(find CMakeLists.txt pyproject.toml README.md src schedulers jobscripts -type f \
    -not -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
  [ "$(cat "$folder/horovod.stamp" 2>/dev/null)" != "$state" ] || return 0
  say ":: pip install . into $folder: builds this tree's wheel"
  rm -f "$folder/horovod.stamp"  # pip may be ended while it installs
  # The build folder is kept, so that only changed files are compiled again. --no-build-isolation takes the machine's
  # build tools. The compilers have the names that CMake gives them, because ccache tells compilers apart by name.
  CC=${CC:-cc} CXX=${CXX:-c++} pip_install "$folder" --no-build-isolation --no-deps --force-reinstall \
    --config-settings "build-dir=build/wheel$(basename "$folder")" "$@" . || return 1
  printf '%s' "$state" >"$folder/horovod.stamp"
}

mkdir -p build/logs
