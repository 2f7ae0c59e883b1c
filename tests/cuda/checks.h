// Minimal checks for the programs in this folder, without a test framework.

#ifndef LODESTAR_TESTS_CUDA_CHECKS_H_
#define LODESTAR_TESTS_CUDA_CHECKS_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include "tf_ops/core/base/status.h"

namespace lodestar {

struct CheckCounts {
  int64_t made = 0;
  int64_t failed = 0;
};
inline CheckCounts check_counts;

inline void Expect(bool right, const std::string& what) {
  ++check_counts.made;
  if (right) return;
  ++check_counts.failed;
  if (check_counts.failed <= 20) {
    std::fprintf(stderr, "FAILED %s\n", what.c_str());
  }
}

inline void ExpectOk(const Status& status, const std::string& what) {
  Expect(status.ok(), what + ": " + status.message());
}

inline void ExpectError(const Status& status, StatusCode code,
                        const std::string& part) {
  Expect(
      status.code() == code && status.message().find(part) != std::string::npos,
      "expected an error with '" + part + "', got '" + status.message() + "'");
}

// Prints a summary and returns the exit status of the program.
inline int ReportChecks() {
  std::printf("%lld checks, %lld failed\n",
              static_cast<long long>(check_counts.made),
              static_cast<long long>(check_counts.failed));
  return check_counts.failed == 0 ? 0 : 1;
}

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CUDA_CHECKS_H_
