// The main function of the programs in this folder.

#ifndef LODESTAR_TESTS_CUDA_RUN_TESTS_H_
#define LODESTAR_TESTS_CUDA_RUN_TESTS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/random.h"

namespace lodestar {

// Less work, for a slow device.
inline bool few = false;

struct NamedTest {
  const char* name;
  void (*run)(Random*);
};

// Runs all tests with the options of a program: --seed=NUMBER and --few.
// Returns its exit status.
inline int RunTests(int argc, char** argv,
                    const std::vector<NamedTest>& tests) {
  uint64_t seed = std::random_device()();
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seed=", 7) == 0) {
      seed = std::strtoull(argv[i] + 7, nullptr, 10);
    } else if (std::strcmp(argv[i], "--few") == 0) {
      few = true;
    } else {
      std::fprintf(stderr, "usage: %s [--seed=NUMBER] [--few]\n", argv[0]);
      return 2;
    }
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no CUDA device (%s); nothing was checked\n",
                cudaGetErrorString(error));
    return 0;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  for (const NamedTest& test : tests) {
    const int64_t failed = check_counts.failed;
    test.run(&random);
    std::printf("%-12s %s\n", test.name,
                check_counts.failed == failed ? "passed" : "FAILED");
    std::fflush(stdout);
  }
  return ReportChecks();
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_RUN_TESTS_H_
