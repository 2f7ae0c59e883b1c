// What kernels over rows in sequences check first.

#ifndef LODESTAR_TF_OPS_KERNELS_SEQUENCE_SEQUENCE_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_SEQUENCE_SEQUENCE_UTIL_H_

#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/base/tensor_util.h"

// register_type(name, T), one of kernel.h, for the dtypes that have gradients,
// and for all that sequences compute with.
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

// The numbers in a row of [N, ...]; 0 where there are no rows.
inline int64_t NumbersInARow(const Tensor& values) {
  return values.dim_size(0) == 0 ? 0
                                 : values.NumElements() / values.dim_size(0);
}

// InvalidArgument unless `values`, an input called `name`, has rows.
inline absl::Status CheckNoScalar(const Tensor& values, const char* name) {
  if (values.dims() >= 1) return absl::OkStatus();
  return InvalidArgumentError("`", name,
                              "` must have rank 1 or more, found a scalar");
}

// InvalidArgument unless `splits`, an input called `name`, are the splits of
// `num_rows` rows.
inline absl::Status CheckSplits(const Tensor& splits, const char* name,
                                int64_t num_rows) {
  LODESTAR_TRY(CheckRank(splits, name, 1));
  return ToTensorFlow(
      ValidateSplits(name, FlatSpan<int64_t>(splits), num_rows));
}

// The same of some number of rows.
inline absl::Status CheckSplits(const Tensor& splits, const char* name) {
  const Span<const int64_t> offsets = FlatSpan<int64_t>(splits);
  return CheckSplits(splits, name,
                     offsets.empty() ? 0 : offsets[offsets.size() - 1]);
}

// InvalidArgument unless `values`, an input called `name`, is [N, ...] and
// `row_splits` are splits of N rows.
inline absl::Status CheckSequences(const Tensor& values, const char* name,
                                   const Tensor& row_splits) {
  LODESTAR_TRY(CheckNoScalar(values, name));
  return CheckSplits(row_splits, "row_splits", values.dim_size(0));
}

// The same of `row_splits` in a GPU's memory, whose offsets cannot be checked
// here beyond that there is one.
inline absl::Status CheckDeviceSequences(const Tensor& values, const char* name,
                                         const Tensor& row_splits) {
  LODESTAR_TRY(CheckNoScalar(values, name));
  LODESTAR_TRY(CheckRank(row_splits, "row_splits", 1));
  if (row_splits.NumElements() > 0) return absl::OkStatus();
  return InvalidArgumentError(
      "`row_splits` is empty, wanted at least one offset");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_SEQUENCE_SEQUENCE_UTIL_H_
