// Conversion of core's Status to TensorFlow's.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_STATUS_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_STATUS_UTIL_H_

#include <new>

#include "absl/status/status.h"
#include "tensorflow/core/platform/errors.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

inline absl::Status ToTensorFlow(const Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code()),
                      status.message());
}

inline absl::Status ToTensorFlow(absl::Status status) { return status; }

template <typename... Args>
absl::Status InvalidArgumentError(const Args&... args) {
  return ToTensorFlow(InvalidArgument(args...));
}

// Returns the result of `body`. Converts std::bad_alloc to RESOURCE_EXHAUSTED,
// since TensorFlow would terminate the process.
template <typename Body>
absl::Status WithoutBadAlloc(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ToTensorFlow(ResourceExhausted("out of memory."));
  }
}

}  // namespace lodestar

// Returns the error if a status, core's or TensorFlow's, is not OK.
#define LODESTAR_TRY(...) \
  TF_RETURN_IF_ERROR(::lodestar::ToTensorFlow(__VA_ARGS__))

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_STATUS_UTIL_H_
