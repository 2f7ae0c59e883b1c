// Checks of sequences, shared by their kernels.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_SEQUENCE_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_SEQUENCE_UTIL_H_

#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"

// Calls register_type(name, T), a macro of kernel.h, for the differentiable
// dtypes, and for all dtypes of sequence ops.
#define LODESTAR_REGISTER_FLOATS(register_type, name) \
  register_type(name, Eigen::half);                   \
  register_type(name, ::tensorflow::bfloat16);        \
  register_type(name, float);                         \
  register_type(name, double)
#define LODESTAR_REGISTER_NUMBERS(register_type, name) \
  LODESTAR_REGISTER_FLOATS(register_type, name);       \
  register_type(name, int32_t);                        \
  register_type(name, int64_t)

namespace lodestar {

// Returns the number of values per row of [N, ...]; 0 if there are no rows.
inline int64_t ValuesPerRow(const Tensor& values) {
  return values.dim_size(0) == 0 ? 0
                                 : values.NumElements() / values.dim_size(0);
}

// Allocates an output of `rows` rows with the row shape and dtype of `like`, a
// tensor of rank 1 or more. Sets *dim to the number of values per row.
inline absl::Status AllocateRows(OpKernelContext* ctx, int index,
                                 const Tensor& like, int64_t rows, int64_t* dim,
                                 Tensor** output) {
  TensorShape shape;
  LODESTAR_TRY(ReplaceRows(like.shape(), rows, &shape, dim));
  return AllocateOutput(ctx, index, shape, output);
}

// Appends the dimensions of `values` from `first` on.
inline absl::Status AppendDims(const Tensor& values, int first,
                               TensorShape* shape) {
  for (int d = first; d < values.dims(); ++d) {
    LODESTAR_TRY(shape->AddDimWithStatus(values.dim_size(d)));
  }
  return absl::OkStatus();
}

// Returns InvalidArgument unless `values`, an input called `name`, has rows.
inline absl::Status CheckNotScalar(const Tensor& values, const char* name) {
  if (values.dims() >= 1) return absl::OkStatus();
  return InvalidArgumentError("`", name,
                              "` must have rank 1 or more, got a scalar.");
}

// Returns InvalidArgument unless `splits`, an input called `name`, are valid
// for `num_rows` rows.
inline absl::Status CheckSplits(const Tensor& splits, const char* name,
                                int64_t num_rows) {
  LODESTAR_TRY(CheckRank(splits, name, 1));
  return ToTensorFlow(
      ValidateSplits(name, FlatSpan<int64_t>(splits), num_rows));
}

// Returns InvalidArgument unless `splits` are valid for some number of rows.
inline absl::Status CheckSplits(const Tensor& splits, const char* name) {
  const Span<const int64_t> offsets = FlatSpan<int64_t>(splits);
  return CheckSplits(splits, name,
                     offsets.empty() ? 0 : offsets[offsets.size() - 1]);
}

// Returns InvalidArgument unless `values`, an input called `name`, is [N, ...]
// and `row_splits` are valid for N rows.
inline absl::Status CheckSequences(const Tensor& values, const char* name,
                                   const Tensor& row_splits) {
  LODESTAR_TRY(CheckNotScalar(values, name));
  return CheckSplits(row_splits, "row_splits", values.dim_size(0));
}

// Like CheckSequences for `row_splits` in GPU memory, of which it only checks
// that there are any.
inline absl::Status CheckDeviceSequences(const Tensor& values, const char* name,
                                         const Tensor& row_splits) {
  LODESTAR_TRY(CheckNotScalar(values, name));
  LODESTAR_TRY(CheckRank(row_splits, "row_splits", 1));
  if (row_splits.NumElements() > 0) return absl::OkStatus();
  return InvalidArgumentError(
      "`row_splits` is empty, but must have at least one offset.");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_SEQUENCE_UTIL_H_
