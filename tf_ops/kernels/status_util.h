// Core's Status as TensorFlow's.

#ifndef LODESTAR_TF_OPS_KERNELS_STATUS_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_STATUS_UTIL_H_

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/status.h"
#include "tf_ops/core/status.h"

namespace lodestar {

inline tensorflow::Status ToTensorFlow(const Status& status) {
  using tensorflow::errors::DataLoss;
  using tensorflow::errors::FailedPrecondition;
  using tensorflow::errors::Internal;
  using tensorflow::errors::InvalidArgument;
  using tensorflow::errors::NotFound;
  using tensorflow::errors::OutOfRange;
  using tensorflow::errors::ResourceExhausted;
  using tensorflow::errors::Unimplemented;
  switch (status.code()) {
    case StatusCode::kOk:
      return tensorflow::Status();
    case StatusCode::kInvalidArgument:
      return InvalidArgument(status.message());
    case StatusCode::kOutOfRange:
      return OutOfRange(status.message());
    case StatusCode::kNotFound:
      return NotFound(status.message());
    case StatusCode::kFailedPrecondition:
      return FailedPrecondition(status.message());
    case StatusCode::kResourceExhausted:
      return ResourceExhausted(status.message());
    case StatusCode::kDataLoss:
      return DataLoss(status.message());
    case StatusCode::kUnimplemented:
      return Unimplemented(status.message());
    case StatusCode::kInternal:
      break;
  }
  return Internal(status.message());
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_STATUS_UTIL_H_
