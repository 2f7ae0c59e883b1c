// Times of the CUDA kernels of the sequence ops.

#ifndef LODESTAR_TESTS_CUDA_SEQUENCE_BENCHMARK_H_
#define LODESTAR_TESTS_CUDA_SEQUENCE_BENCHMARK_H_

#include "tests/cuda/sequence_data.h"

namespace lodestar {

// Prints a line a kernel: the median of its times, the bytes that it has to
// read and write, each counted once, in that time, and beside it what a
// device-to-device copy that moves as many bytes reaches.
void RunSequenceBenchmark(Random* random);

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_SEQUENCE_BENCHMARK_H_
