#!/usr/bin/env bash
# Builds and tests the wheel with TensorFlows; `tools/matrix.sh --help` says how.
set -euo pipefail

help() {
  cat <<HELP
usage: tools/matrix.sh [options] VERSION...

For each VERSION of TensorFlow, as 2.20.0, builds the library in a copy of this
checkout, then one wheel with all of them. For each VERSION again installs that wheel
into a new environment, runs the Python tests there, and prints a row of a Markdown
table; an environment that pip cannot make counts as a test that failed. Ends with 1
if one did. All it writes is in .matrix; it needs the .venv of ./configure.sh, and
the network.

  --package NAME     tensorflow-cpu (default) or tensorflow, which is tested
  --keras VERSION    Keras to test with (default: the newest that pip takes)
  --python PATH      interpreter to build and test with (default: python3)
  --cuda auto|on|off CUDA kernels in the libraries (default: on)
  --library PATH     a library that is built already for the minor release of a
                     VERSION, for which no copy is built. May be given again
  --jobs N           folders of tests that run at a time (default: 1)
  --tests PATH       these tests alone, as tests/python/lookup of the checkout.
                     May be given again
  --cache DIR        Bazel's disk cache (default: .matrix/cache)
  --help             print this

The logs are .matrix/results/VERSION/*.log.
HELP
}

# stop STATUS MESSAGE...: 2 for a wrong command line, 1 for anything else.
stop() {
  local status=$1
  shift
  echo "matrix.sh: $*" >&2
  exit "$status"
}

say() { echo "matrix: $*" >&2; }

# from_start PATH: absolute, as seen from where the user is.
from_start() { (cd "$start" && realpath -m "$1"); }

parse_options() {
  package=tensorflow-cpu keras= python=python3 cuda=on jobs=1
  cache=$PWD/.matrix/cache versions=() libraries=() tests=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --help | -h) help && exit 0 ;;
      --*)
        [[ $# -gt 1 && -n $2 ]] || stop 2 "$1 needs a value; see --help"
        case $1 in
          --package) package=$2 ;;
          --keras) keras=$2 ;;
          --python) python=$2 ;;
          --cuda) cuda=$2 ;;
          --library) libraries+=("$(from_start "$2")") ;;
          --jobs) jobs=$2 ;;
          --tests) tests+=("$2") ;;
          --cache) cache=$(from_start "$2") ;;
          *) stop 2 "unknown option '$1'; see --help" ;;
        esac
        shift 2
        ;;
      *)
        [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9a-z]+$ ]] ||
          stop 2 "'$1' is no version of TensorFlow such as 2.20.0"
        versions+=("$1")
        shift
        ;;
    esac
  done
  [[ ${#versions[@]} -gt 0 ]] || stop 2 "which versions? see --help"
  [[ $package == tensorflow || $package == tensorflow-cpu ]] ||
    stop 2 "--package is '$package', wanted tensorflow or tensorflow-cpu"
  [[ $jobs =~ ^[1-9][0-9]*$ ]] || stop 2 "--jobs is '$jobs', wanted a number"
  # A program in a folder; another is looked for in PATH.
  [[ $python != */* ]] || python=$(cd "$start" && realpath -ms "$python")
  check_releases
  local test
  for test in "${tests[@]}"; do
    [[ -e $test ]] || stop 2 "--tests: there is no '$test'"
  done
  if [[ ${#tests[@]} -eq 0 ]]; then
    mapfile -t tests < <(tests_by_folder)
  fi
}

# What the wheel would refuse after hours of building.
check_releases() {
  local version library release known=" "
  for version in "${versions[@]}"; do
    [[ $known != *" ${version%.*} "* ]] ||
      stop 2 "$version: another version of ${version%.*} is given; a wheel has" \
        "one library for both"
    known+="${version%.*} "
  done
  for library in "${libraries[@]}"; do
    release=$(release_of "$library") ||
      stop 2 "--library: '$library' is not Lodestar's library"
    [[ $known == *" $release "* ]] ||
      stop 2 "--library: '$library' is for TensorFlow $release, which no" \
        "VERSION is"
  done
}

# A process for each: what one test leaves behind does not reach all others.
tests_by_folder() {
  local path
  for path in tests/python/*; do
    if [[ -d $path ]] && compgen -G "$path/*" >/dev/null; then
      [[ $path == */__pycache__ ]] || echo "$path"
    elif [[ $path == *_test.py ]]; then
      echo "$path"
    fi
  done
}

# logged NAME COMMAND...: output into .matrix/logs/NAME.log, shown if it fails.
logged() {
  local log=$root/logs/$1.log
  mkdir -p "$root/logs"
  shift
  "$@" >"$log" 2>&1 </dev/null || {
    tail -n 25 "$log" >&2
    stop 1 "$* failed: $log"
  }
}

# copy_of_checkout FOLDER: what git knows or would take, and nothing older.
copy_of_checkout() {
  mkdir -p "$1"
  find "$1" -mindepth 1 -maxdepth 1 ! -name .venv ! -name 'bazel-*' \
    ! -name .lodestar.bazelrc -exec rm -rf {} +
  git ls-files -z --cached --others --exclude-standard |
    xargs -0 -r sh -c 'for f; do [ -e "$f" ] && printf "%s\0" "$f"; done' - |
    tar --null -T - -cf - | tar -xf - -C "$1"
}

# release_of LIBRARY: "2.20".
release_of() {
  grep -saom1 'LODESTAR_BUILT_FOR_TENSORFLOW=[0-9]*\.[0-9]*' "$1" | sed 's/.*=//'
}

# build VERSION: sets `built` to its library.
build() {
  local version=$1 copy=$root/build-$1 library
  for library in "${libraries[@]}"; do
    built=$library
    if [[ $(release_of "$library") == "${version%.*}" ]]; then
      return
    fi
  done
  say "TensorFlow $version: building"
  copy_of_checkout "$copy"
  # One library serves both packages; the smaller one has the same headers.
  logged "configure-$version" "$copy/configure.sh" --python "$python" \
    --cuda "$cuda" --tensorflow tensorflow-cpu --tensorflow-version "$version"
  (cd "$copy" && logged "build-$version" .venv/bin/bazel build \
    "--disk_cache=$cache" //tf_ops:_lodestar_ops.so)
  built=$copy/bazel-bin/tf_ops/_lodestar_ops.so
}

build_wheel() {
  rm -rf "$root/dist"
  PYTHONPATH=tools .venv/bin/python - "$root/dist" "$@" <<'PYTHON'
import pathlib
import sys

import build_wheel

output, *libraries = map(pathlib.Path, sys.argv[1:])
try:
    print(build_wheel.build_wheel(libraries, output))
except build_wheel.WheelError as error:
    raise SystemExit(f"matrix.sh: {error}") from None
PYTHON
}

# make_environment VERSION: a new one, with the wheel and what tests import.
make_environment() {
  local version=$1 environment=$root/test-$1
  local pins='^(hypothesis|keras-rs|matplotlib|pandas|polars|pytest)=='
  say "TensorFlow $version: installing the wheel"
  rm -rf "$environment"
  logged "venv-$version" "$python" -m venv "$environment"
  grep -E "$pins" requirements.txt >"$environment/requirements.txt"
  logged "install-$version" "$environment/bin/python" -m pip install -q \
    --disable-pip-version-check --no-input --only-binary :all: \
    "$wheel" "$package==$version" \
    ${keras:+"keras==$keras"} -r "$environment/requirements.txt"
}

# note_failed VERSION: what the table shows of one that cannot be installed.
note_failed() {
  local results=$root/results/$1
  rm -rf "$results"
  mkdir -p "$results"
  printf '%s\n' "$package $1" - - - >"$results/versions"
  echo "not installed" >"$results/install.status"
}

# run_tests VERSION
run_tests() {
  local version=$1 results=$root/results/$1
  say "TensorFlow $version: testing"
  rm -rf "$results"
  mkdir -p "$results"
  "$root/test-$version/bin/python" - "$package" >"$results/versions" <<'PYTHON'
import importlib.metadata
import platform
import sys

package = sys.argv[1]
print(package, importlib.metadata.version(package))
print(importlib.metadata.version("keras"))
print(platform.python_version())
print(importlib.metadata.version("numpy"))
PYTHON
  # The copy has no package that could be taken for the installed one.
  (
    cd "$root/tests"
    unset PYTHONPATH KERAS_BACKEND
    export TF_CPP_MIN_LOG_LEVEL=3
    printf '%s\0' "${tests[@]}" | xargs -0 -P "$jobs" -I{} sh -c '
      name=$(echo "$3" | tr / .)
      "$1" -m pytest -q -p no:cacheprovider --junitxml "$2/$name.xml" "$3" \
        >"$2/$name.log" 2>&1 </dev/null
      echo "$?" >"$2/$name.status"
    ' - "$root/test-$version/bin/python" "$results" {}
  )
}

start=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD/.matrix
parse_options "$@"
[[ -x .venv/bin/python ]] || stop 1 "there is no .venv: run ./configure.sh first"
all=()
for version in "${versions[@]}"; do
  build "$version"
  all+=("$built")
done
wheel=$(build_wheel "${all[@]}")
say "wheel: $wheel, $(stat -c %s "$wheel") bytes"
copy_of_checkout "$root/tests"
rm -rf "$root/tests/python"
for version in "${versions[@]}"; do
  # In a shell of its own: one that cannot be installed does not end the others.
  if (make_environment "$version"); then
    run_tests "$version"
  else
    note_failed "$version"
  fi
done
.venv/bin/python tools/matrix_table.py "${versions[@]/#/$root/results/}"
