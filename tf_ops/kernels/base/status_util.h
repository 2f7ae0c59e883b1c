// Core's Status as TensorFlow's.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_STATUS_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_STATUS_UTIL_H_

#include <new>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/base/status.h"

namespace lodestar {

inline absl::Status ToTensorFlow(const Status& status) {
  const auto code = [&] {
    switch (status.code()) {
      case StatusCode::kOk:
        return absl::StatusCode::kOk;
      case StatusCode::kInvalidArgument:
        return absl::StatusCode::kInvalidArgument;
      case StatusCode::kOutOfRange:
        return absl::StatusCode::kOutOfRange;
      case StatusCode::kNotFound:
        return absl::StatusCode::kNotFound;
      case StatusCode::kAlreadyExists:
        return absl::StatusCode::kAlreadyExists;
      case StatusCode::kPermissionDenied:
        return absl::StatusCode::kPermissionDenied;
      case StatusCode::kFailedPrecondition:
        return absl::StatusCode::kFailedPrecondition;
      case StatusCode::kResourceExhausted:
        return absl::StatusCode::kResourceExhausted;
      case StatusCode::kDataLoss:
        return absl::StatusCode::kDataLoss;
      case StatusCode::kUnimplemented:
        return absl::StatusCode::kUnimplemented;
      case StatusCode::kInternal:
        break;
    }
    return absl::StatusCode::kInternal;
  }();
  return absl::Status(code, status.message());
}

template <typename... Args>
absl::Status InvalidArgumentError(const Args&... args) {
  return ToTensorFlow(InvalidArgument(args...));
}

// Runs the body of a kernel's Compute. An allocation of the standard library
// that fails in it is RESOURCE_EXHAUSTED: TensorFlow would end the process.
template <typename Body>
void CatchBadAlloc(tensorflow::OpKernelContext* ctx, const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    ctx->SetStatus(ToTensorFlow(ResourceExhausted("out of memory")));
  }
}

// The same for what returns a status.
template <typename Body>
absl::Status WithoutBadAlloc(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ToTensorFlow(ResourceExhausted("out of memory"));
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_STATUS_UTIL_H_
