#!/usr/bin/env bash
# Builds and tests the wheel for several TensorFlows; see --help.
set -euo pipefail

help() {
  cat <<HELP
usage: tools/matrix.sh [options] VERSION...

Builds the library for each VERSION of TensorFlow, such as 2.20.0, in a copy of this
checkout, then one wheel with all libraries. For each VERSION, installs the wheel in
a new environment, runs the Python tests there, and prints a row of a Markdown table;
an environment that pip cannot create counts as a failed test. The exit code is 1 if
a test failed. All output is in .matrix. Needs the .venv of ./configure.sh, and the
network.

  --package NAME     package to test: tensorflow-cpu (default) or tensorflow
  --keras VERSION    Keras to test with (default: the newest)
  --python PATH      interpreter to build and test with (default: python3)
  --cuda auto|on|off whether to build CUDA kernels (default: on)
  --library PATH     use this library for its minor release instead of building
                     one; can be repeated
  --jobs N           number of test folders to run concurrently (default: 1)
  --tests PATH       run only these tests, such as tests/python/lookup; can be
                     repeated
  --cache DIR        Bazel's disk cache (default: .matrix/cache)
  --help             print this

The logs are .matrix/results/VERSION/*.log.
HELP
}

# stop STATUS MESSAGE...: 2 for a wrong command line, 1 for other errors.
stop() {
  local status=$1
  shift
  echo "matrix.sh: $*" >&2
  exit "$status"
}

say() { echo "matrix: $*" >&2; }

# from_start PATH: absolute, relative to the user's folder.
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
          stop 2 "'$1' is not a version of TensorFlow such as 2.20.0"
        versions+=("$1")
        shift
        ;;
    esac
  done
  [[ ${#versions[@]} -gt 0 ]] || stop 2 "no VERSION given; see --help"
  [[ $package == tensorflow || $package == tensorflow-cpu ]] ||
    stop 2 "--package must be tensorflow or tensorflow-cpu, got '$package'"
  [[ $jobs =~ ^[1-9][0-9]*$ ]] || stop 2 "--jobs must be a positive number, got '$jobs'"
  # A path to a program; a bare name is looked up in PATH.
  [[ $python != */* ]] || python=$(cd "$start" && realpath -ms "$python")
  check_releases
  local test
  for test in "${tests[@]}"; do
    [[ -e $test ]] || stop 2 "--tests: '$test' does not exist"
  done
  if [[ ${#tests[@]} -eq 0 ]]; then
    mapfile -t tests < <(tests_by_folder)
  fi
}

# Errors that would otherwise appear after hours of building.
check_releases() {
  local version library release known=" "
  for version in "${versions[@]}"; do
    [[ $known != *" ${version%.*} "* ]] ||
      stop 2 "$version: a wheel has one library for all of ${version%.*};" \
        "give one version"
    known+="${version%.*} "
  done
  for library in "${libraries[@]}"; do
    release=$(release_of "$library") ||
      stop 2 "--library: '$library' is not Lodestar's library"
    [[ $known == *" $release "* ]] ||
      stop 2 "--library: '$library' is for TensorFlow $release, not for a" \
        "given VERSION"
  done
}

# One process per folder, so that tests do not affect other folders.
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

# logged NAME COMMAND...: logs to .matrix/logs/NAME.log, shown on failure.
logged() {
  local log=$root/logs/$1.log
  mkdir -p "$root/logs"
  shift
  "$@" >"$log" 2>&1 </dev/null || {
    tail -n 25 "$log" >&2
    stop 1 "$* failed: $log"
  }
}

# copy_of_checkout FOLDER: copies tracked and untracked, not ignored files.
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

# make_environment VERSION: installs the wheel and the tests' dependencies.
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

# note_failed VERSION: writes the results of a failed installation.
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
  # The copy has no package that could shadow the installed one.
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
[[ -x .venv/bin/python ]] || stop 1 ".venv does not exist; run ./configure.sh first"
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
  # In a subshell, so that a failed installation does not end the run.
  if (make_environment "$version"); then
    run_tests "$version"
  else
    note_failed "$version"
  fi
done
.venv/bin/python tools/matrix_table.py "${versions[@]/#/$root/results/}"
