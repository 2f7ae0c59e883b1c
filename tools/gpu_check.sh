#!/bin/sh
# Checks and times everything that needs a GPU, in under 10 minutes:
#
#   ./configure.sh --cuda on
#   .venv/bin/bazel build //tf_ops:_lodestar_ops.so //tests/cuda/... \
#     //benchmarks/cuda:device_store_benchmark //benchmarks/cuda:sequence_kernels_benchmark
#   PYTHON=.venv/bin/python tools/gpu_check.sh [FOLDER]
#
# PYTHON needs TensorFlow's GPU build and pytest. Each step writes a log to
# FOLDER (default: gpu_check), runs on its own and may fail; the last lines list
# the steps with their results. Without a GPU it rehearses the steps: tests are
# skipped and benchmarks run small on the CPU.
set -u
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-python3}
logs=${1:-gpu_check}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
export PYTHONPATH="$PWD/python:$PWD/tests/python:$PWD/benchmarks:${PYTHONPATH:-}"
export PYTHONDONTWRITEBYTECODE=1
summary="$logs/summary"
: > "$summary"

# step NAME SECONDS COMMAND...
step() {
  name=$1 limit=$2
  shift 2
  begin=$(date +%s)
  timeout "$limit" "$@" > "$logs/$name.log" 2>&1
  code=$?
  echo "$name: exit $code after $(($(date +%s) - begin)) s; $(tail -n 1 "$logs/$name.log" | cut -c 1-160)" | tee -a "$summary"
}

gpus=$("$python" -c 'import tensorflow as tf; print(len(tf.config.list_physical_devices("GPU")))' 2> /dev/null)
echo "GPUs that TensorFlow sees: ${gpus:-none}" | tee -a "$summary"
size=
device=/GPU:0
if [ "${gpus:-0}" -eq 0 ]; then
  size=--small
  device=/CPU:0
else
  export LODESTAR_EMULATED_GPUS=2
fi

step training_benchmark 200 "$python" benchmarks/cuda/training_benchmark.py --runs 100 --device "$device" $size
step python_tests 200 "$python" -m pytest -q -p no:cacheprovider tests/python/gpu
for program in device_store_test device_policies_test device_unfused_test device_snapshot_test device_collection_test device_partition_test sequence_kernels_test sequence_moves_test; do
  step "$program" 60 "bazel-bin/tests/cuda/$program"
done
for program in device_store_benchmark sequence_kernels_benchmark; do
  step "$program" 90 "bazel-bin/benchmarks/cuda/$program"
done
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    for program in device_store_test device_policies_test device_unfused_test device_snapshot_test device_collection_test device_partition_test; do
      step "${tool}_$program" 60 compute-sanitizer --tool "$tool" "bazel-bin/tests/cuda/$program" --few
    done
  done
fi
echo "Results:"
cat "$summary"
