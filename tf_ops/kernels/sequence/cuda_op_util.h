// Utilities of GPU kernels. Empty unless LODESTAR_CUDA is set.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_OP_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_OP_UTIL_H_

#if LODESTAR_CUDA

#include <cuda_runtime.h>

#include <vector>

#include "tensorflow/core/framework/device_base.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/device/batch/staging_buffer.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/kernels/base/cuda_stream.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/sequence/cuda/device_splits.h"
#include "tf_ops/kernels/sequence/cuda/number.h"
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"

namespace lodestar {

// Returns Internal if CUDA could not start `what`.
inline absl::Status ToTensorFlow(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return ToTensorFlow(Status(StatusCode::kInternal,
                             StrCat("the GPU's ", what, " did not start: ",
                                    cudaGetErrorString(error))));
}

// The dtypes of LODESTAR_REGISTER_FLOATS and LODESTAR_REGISTER_NUMBERS.
constexpr DataType kFloats[] = {tensorflow::DT_HALF, tensorflow::DT_BFLOAT16,
                                tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE};
constexpr DataType kNumbers[] = {tensorflow::DT_HALF,  tensorflow::DT_BFLOAT16,
                                 tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE,
                                 tensorflow::DT_INT32, tensorflow::DT_INT64};

// The dtypes of ops that move rows, except strings, which are in host memory.
constexpr DataType kMoved[] = {
    tensorflow::DT_HALF,   tensorflow::DT_BFLOAT16,  tensorflow::DT_FLOAT,
    tensorflow::DT_DOUBLE, tensorflow::DT_INT8,      tensorflow::DT_INT16,
    tensorflow::DT_INT32,  tensorflow::DT_INT64,     tensorflow::DT_UINT8,
    tensorflow::DT_UINT16, tensorflow::DT_UINT32,    tensorflow::DT_UINT64,
    tensorflow::DT_BOOL,   tensorflow::DT_COMPLEX64, tensorflow::DT_COMPLEX128};

// Requires: `dtype` is one of kNumbers.
inline Number NumberOf(DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_HALF:
      return Number::kFloat16;
    case tensorflow::DT_BFLOAT16:
      return Number::kBFloat16;
    case tensorflow::DT_DOUBLE:
      return Number::kFloat64;
    case tensorflow::DT_INT32:
      return Number::kInt32;
    case tensorflow::DT_INT64:
      return Number::kInt64;
    default:
      return Number::kFloat32;
  }
}

// Returns the bytes of a row of `dim` values of the dtype of `values`.
inline int64_t RowBytes(const Tensor& values, int64_t dim) {
  return dim * DataTypeSize(values.dtype());
}

// Row splits that are a tensor in device memory.
inline DeviceSplits SplitsOf(const Tensor& row_splits, int64_t num_rows) {
  return {row_splits.flat<int64_t>().data(), row_splits.NumElements() - 1,
          num_rows};
}

// Device memory that lives until the kernel's work on the stream is done.
class DeviceBytes {
 public:
  absl::Status Allocate(OpKernelContext* ctx, int64_t size) {
    return ctx->allocate_temp(tensorflow::DT_INT8, {size}, &tensor_);
  }

  // Copies `size` bytes of host memory, which may change after the return.
  absl::Status CopyFrom(OpKernelContext* ctx, const void* host, int64_t size) {
    LODESTAR_TRY(Allocate(ctx, size));
    const DeviceStream on = {CudaStream(ctx), nullptr};
    return ToTensorFlow(StageToDevice(on, host, size, data()));
  }

  template <typename T>
  absl::Status CopyFrom(OpKernelContext* ctx, Span<const T> host) {
    return CopyFrom(ctx, host.data(),
                    host.size() * static_cast<int64_t>(sizeof(T)));
  }

  void* data() { return tensor_.data(); }
  // The memory as row splits of `num_rows` rows.
  DeviceSplits splits(int64_t num_rows) const {
    return {static_cast<const int64_t*>(tensor_.data()),
            tensor_.NumElements() / static_cast<int64_t>(sizeof(int64_t)) - 1,
            num_rows};
  }

 private:
  Tensor tensor_;
};

// Runs that were computed on the host, in device memory.
class RunsOnDevice {
 public:
  // Requires: one place per run.
  absl::Status Init(OpKernelContext* ctx, Span<const int64_t> offsets,
                    Span<const int64_t> places) {
    std::vector<int64_t> both(offsets.begin(), offsets.end());
    both.insert(both.end(), places.begin(), places.end());
    LODESTAR_TRY(bytes_.CopyFrom(ctx, Span<const int64_t>(both)));
    const auto* device = static_cast<const int64_t*>(bytes_.data());
    runs_ = {{device, places.size(), offsets[places.size()]},
             device + offsets.size()};
    return absl::OkStatus();
  }

  const DeviceRuns& get() const { return runs_; }

 private:
  DeviceBytes bytes_;
  DeviceRuns runs_;
};

}  // namespace lodestar

#endif  // LODESTAR_CUDA

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_CUDA_OP_UTIL_H_
