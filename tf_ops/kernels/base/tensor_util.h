// Checks and views of tensors.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_TENSOR_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_TENSOR_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/kernels/base/kernel.h"

namespace lodestar {

template <typename T>
Span<const T> FlatSpan(const Tensor& tensor) {
  return Span<const T>(tensor.flat<T>().data(), tensor.NumElements());
}

template <typename T>
Span<T> FlatSpan(Tensor* tensor) {
  return Span<T>(tensor->flat<T>().data(), tensor->NumElements());
}

// Returns InvalidArgument unless `tensor`, an input called `name`, has this
// rank.
inline absl::Status CheckRank(const Tensor& tensor, const char* name,
                              int rank) {
  if (tensor.dims() == rank) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` must have rank ", rank,
                              ", found shape ", tensor.shape().DebugString());
}

// Sets *replaced to `shape` with `rows` as its first dimension, and *dim to the
// number of values per row. If a tensor has no rows, the product of its other
// dimensions may overflow int64. Requires: rank >= 1.
inline absl::Status ReplaceRows(const TensorShape& shape, int64_t rows,
                                TensorShape* replaced, int64_t* dim) {
  *replaced = shape;
  LODESTAR_TRY(replaced->SetDimWithStatus(0, 1));
  *dim = replaced->num_elements();
  return replaced->SetDimWithStatus(0, rows);
}

// Returns InvalidArgument unless input `rows` has one row per id.
inline absl::Status CheckRowsOfIds(const Tensor& rows, int64_t num_ids) {
  if (rows.dims() >= 1 && rows.dim_size(0) == num_ids) return absl::OkStatus();
  return InvalidArgumentError("`rows` has shape ", rows.shape().DebugString(),
                              ", but there are ", num_ids, " ids.");
}

// Calls ctx->allocate_output. Returns ResourceExhausted if the size in bytes
// overflows int64, which TensorFlow's allocator does not detect.
inline absl::Status AllocateOutput(OpKernelContext* ctx, int index,
                                   const TensorShape& shape, Tensor** output) {
  const int64_t size =
      tensorflow::DataTypeSize(ctx->expected_output_dtype(index));
  if (size > 0 &&
      shape.num_elements() > std::numeric_limits<int64_t>::max() / size) {
    return ToTensorFlow(ResourceExhausted("output ", index, " of shape ",
                                          shape.DebugString(),
                                          " is too large to allocate."));
  }
  return ctx->allocate_output(index, shape, output);
}

// The tensor element type of T.
template <typename T>
using TensorType =
    std::conditional_t<std::is_same_v<T, std::string>, tstring, T>;

// Outputs a scalar.
template <typename T>
absl::Status OutputScalar(OpKernelContext* ctx, int output, const T& value) {
  Tensor* tensor = nullptr;
  LODESTAR_TRY(ctx->allocate_output(output, {}, &tensor));
  tensor->scalar<TensorType<T>>()() = value;
  return absl::OkStatus();
}

// Outputs a copy of `values` as a vector.
template <typename T>
absl::Status OutputVector(OpKernelContext* ctx, int output,
                          const std::vector<T>& values) {
  Tensor* tensor = nullptr;
  LODESTAR_TRY(ctx->allocate_output(
      output, {static_cast<int64_t>(values.size())}, &tensor));
  std::copy(values.begin(), values.end(), tensor->flat<TensorType<T>>().data());
  return absl::OkStatus();
}

// Views a tensor for copying: T is tstring, or char for the bytes of any other
// dtype.
template <typename T>
const T* CopySource(const Tensor& tensor) {
  if constexpr (std::is_same_v<T, char>) {
    return tensor.tensor_data().data();
  } else {
    return tensor.flat<T>().data();
  }
}
template <typename T>
T* CopyTarget(Tensor* tensor) {
  return const_cast<T*>(CopySource<T>(*tensor));
}

// Number of T in `dim` values of a tensor.
template <typename T>
int64_t CopyWidth(const Tensor& tensor, int64_t dim) {
  if constexpr (std::is_same_v<T, char>) {
    return dim * tensorflow::DataTypeSize(tensor.dtype());
  } else {
    return dim;
  }
}

// Calls f with a value of the type T by which a tensor of `dtype` is copied.
template <typename F>
void VisitCopied(DataType dtype, const F& f) {
  if (dtype == tensorflow::DT_STRING) {
    f(tstring());
  } else {
    f(char());
  }
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_TENSOR_UTIL_H_
