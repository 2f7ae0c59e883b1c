#!/usr/bin/env bash
# Prepares this checkout for building; `./configure.sh --help` says how.
set -euo pipefail

readonly BAZELISK_VERSION=1.28.1
readonly BAZEL_MAJORS="4 5 6"
readonly CUDA_ARCHS=80,90
# pip's toolkit. Its packages do not require equal versions of each other.
readonly CUDA_PACKAGES="nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85"

help() {
  cat <<HELP
usage: ./configure.sh [options]

Creates .venv with the pinned Python packages and a Bazel launcher, .venv/bin/bazel,
and writes this machine's settings to .lodestar.bazelrc. Not interactive. Run it again
after changing options or requirements.txt; it only redoes the steps that changed.

  --python PATH             interpreter of .venv, 3.11 or later (default: python3)
  --tensorflow PACKAGE      TensorFlow's package (default: $default_package)
  --tensorflow-version V    its version (default: $default_version)
  --cuda auto|on|install|off
                            build CUDA kernels if this machine has a GPU and a
                            toolkit; always (an error without a toolkit); always,
                            with pip's toolkit in .venv if there is none; or never
                            (default: \$LODESTAR_CUDA, else auto)
  --cuda-archs LIST         GPUs to build for, such as 80,90a,100: machine code for
                            each, PTX of the last for later ones; implies --cuda on
                            (default: those of $CUDA_ARCHS that nvcc supports)
  --help                    print this

The script uses the CUDA toolkit of \$CUDA_HOME, else nvcc on PATH, else
/usr/local/cuda, else pip's packages of CUDA 13 in .venv.

Bazel $(first_and_last $BAZEL_MAJORS) is \$BAZEL, else bazelisk or bazel on PATH, else bazelisk from npm (in
.venv), else Debian's bazel-bootstrap.

Outside this folder the script only installs missing Debian packages (g++,
libgtest-dev, pythonX.Y-venv, bazel-bootstrap), which requires root, and lists them
first. Bazel itself writes to ~/.cache/bazel.
HELP
}

first_and_last() { echo "$1 to ${!#}"; }

say() { echo "configure: $*"; }

# stop STATUS MESSAGE...: status 2 for a wrong command line, 1 for other errors.
stop() {
  local status=$1
  shift
  echo "configure.sh: $*" >&2
  exit "$status"
}

# Runs a command and prints its output only if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [[ $status -ne 0 ]]; then
    grep -v '^WARNING: ' "$log" | tail -n 25 >&2
  fi
  rm -f "$log"
  return "$status"
}

apt_updated=no

# debian_packages WHY PACKAGE...: installs the packages, or stops and explains
# how.
debian_packages() {
  local why=$1
  shift
  if ! command -v apt-get >/dev/null; then
    stop 1 "$why is missing and there is no apt-get here: install it" \
      "(Debian's name: $*), then run this again"
  fi
  if [[ $(id -u) -ne 0 ]]; then
    stop 1 "$why is missing; as root run: apt-get install -y $*"
  fi
  say "$why is missing: installing Debian packages: $*"
  export DEBIAN_FRONTEND=noninteractive
  if [[ $apt_updated == no ]]; then
    quietly apt-get -qq update || stop 1 "apt-get update failed (above)"
    apt_updated=yes
  fi
  quietly apt-get -qq install -y "$@" ||
    stop 1 "apt-get install $* failed (above)"
}

absolute() { echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"; }

parse_options() {
  package=$default_package version=$default_version python= cuda= cuda_archs=
  while [[ $# -gt 0 ]]; do
    local option=$1
    shift
    case $option in
      --help | -h) help && exit 0 ;;
      --*=*) set -- "${option#*=}" "$@" && option=${option%%=*} ;;
    esac
    case $option in
      --python | --tensorflow | --tensorflow-version | --cuda | --cuda-archs)
        [[ $# -gt 0 && -n $1 ]] || stop 2 "$option needs a value; see --help"
        ;;
      *) stop 2 "unknown option '$option'; see --help" ;;
    esac
    case $option in
      --python) python=$1 ;;
      --tensorflow) package=$1 ;;
      --tensorflow-version) version=$1 ;;
      --cuda) cuda=$1 ;;
      --cuda-archs) check_archs "$1" && cuda_archs=$1 ;;
    esac
    shift
  done
  if [[ -z $cuda && -z $cuda_archs ]]; then
    cuda=${LODESTAR_CUDA:-auto}
    is_choice_of_cuda ||
      stop 2 "\$LODESTAR_CUDA must be auto, on, install or off, got '$cuda'."
  fi
  : "${cuda:=on}"
  is_choice_of_cuda ||
    stop 2 "--cuda must be auto, on, install or off, got '$cuda'."
  [[ $package =~ ^[A-Za-z0-9._-]+$ ]] ||
    stop 2 "--tensorflow must be a package name, got '$package'."
  [[ $version =~ ^[0-9]+\.[0-9]+[0-9A-Za-z.]*$ ]] ||
    stop 2 "--tensorflow-version must be a version such as $default_version, got '$version'."
}

is_choice_of_cuda() { [[ " auto on install off " == *" $cuda "* ]]; }

check_archs() {
  local arch rest=$1,
  while [[ -n $rest ]]; do
    arch=${rest%%,*} rest=${rest#*,}
    [[ $arch =~ ^[1-9][0-9]+[af]?$ ]] ||
      stop 2 "--cuda-archs must be numbers such as $CUDA_ARCHS or 90a, got '$arch'."
  done
}

# An activated .venv must not be used as the system's Python or Bazel.
leave_venv() {
  local entry kept=
  local IFS=:
  for entry in $PATH; do
    [[ $entry -ef .venv/bin ]] || kept+=${kept:+:}$entry
  done
  PATH=$kept
  unset VIRTUAL_ENV PYTHONHOME PYTHONPATH
  if [[ -n ${BAZEL:-} && $BAZEL -ef .venv/bin/bazel ]]; then
    unset BAZEL
  fi
}

check_compiler() {
  command -v g++ >/dev/null || debian_packages "The C++ compiler" g++
  say "C++ compiler: $(command -v g++) $(g++ -dumpfullversion)"
}

check_googletest() {
  local sources=/usr/src/googletest/googletest/src/gtest-all.cc
  [[ -e $sources ]] || debian_packages "GoogleTest" libgtest-dev
  say "GoogleTest: /usr/src/googletest"
}

# Sets `missing` to the missing parts of toolkit $1, and the pip packages that
# have them.
probe_toolkit() {
  local pip part places place
  missing=
  while read -r pip part places; do
    for place in $places; do
      [[ ! -e $1/$place/$part ]] || continue 2
    done
    missing+="${missing:+, }$part (pip: $pip)"
  done <<PARTS
nvidia-nvvm cicc nvvm/bin
nvidia-cuda-nvcc ptxas bin
nvidia-cuda-crt crt/host_config.h include
nvidia-cuda-runtime cuda_runtime.h include
nvidia-cuda-runtime libcudart_static.a lib64 lib
nvidia-cuda-cccl cub/cub.cuh include/cccl include
PARTS
}

# Selects the toolkit of nvcc $1 if it is complete. Otherwise appends the reason
# to $refused.
try_cuda() {
  local nvcc=$1 root version arch known=
  local wanted=${cuda_archs:-$CUDA_ARCHS}
  local dryrun=(--dryrun -x cu -c /dev/null -o /dev/null)
  root=$(readlink -f "$nvcc") || true
  root=${root%/bin/nvcc}
  # Without a profile it is a wrapper, which needs a C++ compiler to answer.
  if [[ ! -e $root/bin/nvcc.profile ]]; then
    root=$("$nvcc" "${dryrun[@]}" 2>&1 | sed -n 's/^#\$ TOP=\(.*[^ ]\) *$/\1/p') || true
    root=$(readlink -f "$root") || true
  fi
  version=$("$nvcc" --version 2>/dev/null | sed -n 's/.* V\([0-9.]*\)$/\1/p') || true
  if [[ -z $root || -z $version ]]; then
    refused+="; $nvcc does not run"
    return 1
  fi
  probe_toolkit "$root"
  if [[ -n $missing ]]; then
    # nvcc on PATH may be the one of /usr/local/cuda.
    [[ $refused == *"$root lacks"* ]] || refused+="; $root lacks $missing"
    return 1
  fi
  for arch in ${wanted//,/ }; do
    # --list-gpu-code omits variants such as 90a. Without a C++ compiler this
    # command fails for all architectures, but with another message.
    if [[ $("$nvcc" "${dryrun[@]}" -gencode "arch=compute_$arch,code=sm_$arch" 2>&1) != \
      *"Unsupported gpu architecture"* ]]; then
      known+=${known:+,}$arch
    elif [[ -n $cuda_archs ]]; then
      stop 2 "nvcc $version ($nvcc) does not support '$arch' of --cuda-archs;" \
        "it supports $("$nvcc" --list-gpu-code | paste -sd ' ')."
    fi
  done
  if [[ -z $known ]]; then
    refused+="; $nvcc is $version, which supports none of $CUDA_ARCHS"
    return 1
  fi
  cuda_home=$root cuda_archs=$known
  say "CUDA: nvcc $version ($nvcc), machine code for sm_${known//,/ sm_}," \
    "PTX of compute_${known##*,}$refused"
}

find_cuda() {
  local path
  refused=
  if [[ -n ${CUDA_HOME:-} ]]; then
    try_cuda "$CUDA_HOME/bin/nvcc" && return
  fi
  path=$(command -v nvcc) && try_cuda "$path" && return
  for path in /usr/local/cuda/bin/nvcc .venv/lib/python3*/site-packages/nvidia/*/bin/nvcc; do
    [[ -e $path ]] && try_cuda "$(absolute "$path")" && return
  done
  for path in .venv/lib/python3*/site-packages/nvidia/cuda_nvcc; do
    [[ ! -e $path ]] || refused+="; pip's nvidia-cuda-nvcc-cu12 has no nvcc program"
  done
  refused=${refused#; }
  : "${refused:=no nvcc in \$CUDA_HOME, on PATH, in /usr/local/cuda or from pip in .venv}"
  return 1
}

# A container without access to the host's GPUs has neither of these.
gpu_is_here() {
  local device
  for device in /dev/nvidia[0-9]*; do
    [[ ! -e $device ]] || return 0
  done
  [[ $(timeout -k 5 20 nvidia-smi -L 2>/dev/null) == GPU* ]]
}

check_cuda() {
  cuda_home=
  if [[ $cuda == off ]]; then
    say "CUDA: off"
  elif [[ $cuda == auto ]] && ! gpu_is_here; then
    say "CUDA: CPU kernels only: this machine has no NVIDIA GPU;" \
      "--cuda on builds CUDA kernels for another machine"
  elif ! find_cuda; then
    [[ $cuda != on ]] || stop 1 "--cuda on, but $refused (docs/install.md)"
    [[ $cuda == install ]] || say "CUDA: CPU kernels only: $refused"
  fi
}

install_cuda() {
  [[ $cuda == install && ! -e $cuda_home/bin/nvcc ]] || return 0
  say "Installing pip's toolkit in .venv (a minute)"
  # shellcheck disable=SC2086
  quietly .venv/bin/python3 -m pip install -q --disable-pip-version-check \
    --no-input --no-cache-dir --only-binary :all: $CUDA_PACKAGES ||
    stop 1 "pip could not install the toolkit (above)."
  find_cuda || stop 1 "--cuda install, but $refused (docs/install.md)"
}

find_python() {
  if [[ -z $python ]] && ! command -v python3 >/dev/null; then
    debian_packages "Python" python3
  fi
  local asked=${python:-python3}
  local probe='import sys; print(sys.executable, "%d.%d" % sys.version_info[:2])'
  local found
  found=$("$asked" -c "$probe" 2>/dev/null) ||
    stop 2 "--python is '$asked', which does not run as a Python interpreter."
  [[ $found == *\ 3.* || $found == *\ 2.* ]] ||
    stop 2 "--python is '$asked', which is not a Python interpreter."
  python=${found% *} python_version=${found##* }
  [[ $python != "$PWD"/.venv/* ]] ||
    stop 2 "--python is '$asked', which is in the .venv that this script creates."
  [[ ${python_version%.*} -eq 3 && ${python_version#*.} -ge 11 ]] ||
    stop 1 "$python is Python $python_version, but 3.11 or later is required." \
      "Use --python to select one."
  if ! "$python" -c "import ensurepip, venv" 2>/dev/null; then
    case $python in
      /usr/bin/*) debian_packages "Python's venv" "python$python_version-venv" ;;
      *) stop 1 "$python has no venv module. Use --python to select another one." ;;
    esac
  fi
}

# Prints requirements.txt with the requested TensorFlow. The other pins only
# apply to the pinned release; other releases bring their own dependencies.
wanted_packages() {
  local replace="s/^$default_package==.*/$package==$version/"
  if [[ $version == "$default_version" ]]; then
    sed -e "$replace" requirements.txt
  else
    # Training requires this Keras with any TensorFlow.
    sed -e "$replace" -e 's/^keras==.*/keras>=3.15/' -e '/^numpy==/d' \
      requirements.txt
  fi
}

make_venv() {
  local stamp=.venv/lodestar.stamp wanted
  wanted=$(
    echo "checkout=$PWD python=$python $python_version"
    wanted_packages
    cat constraints.txt
  )
  if [[ -x .venv/bin/python3 && -e $stamp && $(<"$stamp") == "$wanted" ]]; then
    say "Python packages: in .venv already ($package $version)"
    return
  fi
  say "Python packages: making .venv with $python ($python_version)"
  # Start with an empty folder, since two TensorFlow packages share files.
  rm -rf .venv
  quietly "$python" -m venv .venv || stop 1 "$python -m venv failed (above)."
  say "Python packages: installing $package $version and the rest of" \
    "requirements.txt (some minutes)"
  local constraints=()
  [[ $version == "$default_version" ]] && constraints=(-c constraints.txt)
  wanted_packages >.venv/requirements.txt
  quietly .venv/bin/python3 -m pip install -q --disable-pip-version-check \
    --no-input --no-cache-dir --only-binary :all: \
    -r .venv/requirements.txt "${constraints[@]}" ||
    stop 1 "pip could not install the packages (above)."
  # Makes `import lodestar` work from any folder.
  echo "$PWD/python" >"$(echo .venv/lib/python3*/site-packages)/lodestar.pth"
  echo "$wanted" >"$stamp"
  [[ -z $cuda_home || -e $cuda_home/bin/nvcc || $cuda == install ]] ||
    stop 1 "The CUDA toolkit was in the .venv that has been replaced. Use" \
      "--cuda install."
}

# Sets `refused` to the reason why Bazel $1 cannot be used, or to nothing.
probe_bazel() {
  local bazel=$1 limit=20 answer major
  refused=
  # Bazelisk may have to download Bazel, which takes time.
  if [[ $(basename "$bazel") == bazelisk* ]] && downloads_work; then
    limit=300
  fi
  # Debian's Bazel prints "no_version".
  if ! answer=$(timeout -k 5 $limit "$bazel" --version 2>/dev/null </dev/null) ||
    [[ $answer != bazel\ * ]]; then
    refused="it does not run here (\`$bazel --version\`)"
    return
  fi
  major=$(sed -n 's/^bazel \([0-9][0-9]*\)\..*/\1/p' <<<"$answer")
  if [[ -n $major && " $BAZEL_MAJORS " != *" $major "* ]]; then
    refused="it is ${answer#bazel }, and the WORKSPACE rules need"
    refused+=" $(first_and_last $BAZEL_MAJORS)"
    return
  fi
  # Also start the server, which needs a Java runtime that --version does not.
  if ! timeout -k 5 120 "$bazel" info release >/dev/null 2>&1 </dev/null; then
    refused="its server does not start here (\`$bazel info release\`)"
  fi
}

downloads_work() {
  timeout 10 .venv/bin/python3 - "${BAZELISK_BASE_URL:-https://releases.bazel.build}" \
    >/dev/null 2>&1 <<'PYTHON'
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=8)
except urllib.error.HTTPError:
    pass  # reachable
PYTHON
}

# Uses Bazel $1 if it works; $2 describes where it was found.
try_bazel() {
  local bazel
  bazel=$(absolute "$1")
  probe_bazel "$bazel"
  if [[ -n $refused ]]; then
    say "Bazel: not $bazel ($2): $refused"
    return 1
  fi
  say "Bazel: $bazel ($2)"
  {
    echo "#!/bin/sh"
    echo "# Written by configure.sh."
    if [[ -n ${USE_BAZEL_VERSION:-} ]]; then
      printf 'export USE_BAZEL_VERSION=%q\n' "$USE_BAZEL_VERSION"
    fi
    printf 'exec %q "$@"\n' "$bazel"
  } >.venv/bin/bazel
  chmod +x .venv/bin/bazel
}

npm_bazelisk() {
  command -v npm >/dev/null && command -v node >/dev/null || return 1
  local prefix=$PWD/.venv/bazelisk
  say "Bazel: installing bazelisk $BAZELISK_VERSION from npm into .venv"
  if ! timeout -k 5 120 npm install --no-audit --no-fund --fetch-retries=1 \
    --fetch-retry-maxtimeout=2000 --fetch-retry-mintimeout=1000 \
    --cache "$prefix/cache" --prefix "$prefix" \
    "@bazel/bazelisk@$BAZELISK_VERSION" >/dev/null 2>&1 </dev/null; then
    say "Bazel: npm cannot install it here"
    return 1
  fi
  try_bazel "$prefix/node_modules/.bin/bazelisk" npm
}

find_bazel() {
  local name path
  if [[ -n ${BAZEL:-} ]]; then
    path=$(command -v "$BAZEL") || stop 1 "\$BAZEL is '$BAZEL', which is not a program."
    try_bazel "$path" "\$BAZEL" || stop 1 "\$BAZEL is '$BAZEL': $refused"
    return
  fi
  if [[ -x .venv/bin/bazel ]] &&
    timeout -k 5 20 .venv/bin/bazel --version >/dev/null 2>&1 </dev/null; then
    say "Bazel: .venv/bin/bazel already runs $(sed -n 's/^exec \(.*\) "$@"/\1/p' \
      .venv/bin/bazel)"
    return
  fi
  # Debian's `bazel` requires the exact version of .bazelversion; the program
  # that works is bazel-4.
  for name in bazelisk bazel bazel-6 bazel-5 bazel-4; do
    path=$(command -v "$name") || continue
    try_bazel "$path" "on PATH" && return
  done
  npm_bazelisk && return
  debian_packages "Bazel" bazel-bootstrap
  for path in /usr/bin/bazel-[456]; do
    [[ -x $path ]] && try_bazel "$path" "Debian" && return
  done
  stop 1 "No Bazel runs here. Install bazelisk, or Bazel" \
    "$(first_and_last $BAZEL_MAJORS), and set BAZEL to it."
}

write_settings() {
  local settings
  settings="# Written by configure.sh, which overwrites changes.
build --repo_env=PYTHON_BIN_PATH=$PWD/.venv/bin/python3
build --repo_env=LODESTAR_TF=$package-$version
build --repo_env=LODESTAR_CUDA_HOME=$cuda_home
build --repo_env=LODESTAR_CUDA_ARCHS=$cuda_archs"
  # Off by default, because newer compilers may have more warnings.
  [[ -z ${LODESTAR_WERROR:-} ]] || settings+=$'\nbuild --config=werror'
  if [[ ! -e .lodestar.bazelrc || $(<.lodestar.bazelrc) != "$settings" ]]; then
    echo "$settings" >.lodestar.bazelrc
    say "Settings: wrote .lodestar.bazelrc"
  else
    say "Settings: .lodestar.bazelrc is up to date"
  fi
}

cd "$(dirname "${BASH_SOURCE[0]}")"
pin=$(grep -m 1 '^tensorflow[a-z-]*==' requirements.txt)
default_package=${pin%%==*} default_version=$(sed 's/.*==\([^ ]*\).*/\1/' <<<"$pin")

parse_options "$@"
[[ $PWD != *[[:space:]]* ]] || stop 1 "Bazel cannot build in '$PWD': the path has a space."
leave_venv
say "changes .venv and .lodestar.bazelrc in $PWD," \
  "and installs missing Debian packages"
check_cuda
check_compiler
check_googletest
find_python
make_venv
install_cuda
find_bazel
write_settings
say "done; next: .venv/bin/bazel test //..."
