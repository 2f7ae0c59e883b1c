// Kernels of SequenceExpand, SequenceExpandGradient and SequenceExpandAs.
// Contracts: tf_ops/ops/sequence_expand_ops.cc; algorithms:
// tf_ops/core/sequence_expand.h.

#include <limits>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/sequence_expand.h"
#include "tf_ops/kernels/parallel_util.h"
#include "tf_ops/kernels/sequence_util.h"
#include "tf_ops/kernels/status_util.h"
#include "tf_ops/kernels/tensor_util.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Units that repeat: their splits, and where the result has each of them.
struct Expansion {
  Span<const int64_t> splits;
  Span<const int64_t> ref_splits;
  Span<int64_t> starts;
  Tensor starts_buffer;

  int64_t num_rows() const { return splits[splits.size() - 1]; }
  int64_t num_expanded_rows() const { return starts[starts.size() - 1]; }
  int64_t num_repetitions() const { return ref_splits[ref_splits.size() - 1]; }
  // No units to count by: nothing is repeated, nothing is dropped.
  bool passes_on() const { return ref_splits.size() == 1; }
};

// InvalidArgument unless `splits` are the splits of some number of rows.
absl::Status CheckSplits(const Tensor& splits, const char* name) {
  TF_RETURN_IF_ERROR(CheckRank(splits, name, 1));
  const Span<const int64_t> offsets = FlatSpan<int64_t>(splits);
  return ToTensorFlow(ValidateSplits(
      name, offsets, offsets.empty() ? 0 : offsets[offsets.size() - 1]));
}

// Reads row_splits and ref_splits, inputs 1 and 2, both in host memory, of
// which row_splits are known to be right. The starts are not made if the
// expansion passes on.
absl::Status ReadExpansion(OpKernelContext* ctx, Expansion* e) {
  TF_RETURN_IF_ERROR(CheckSplits(ctx->input(2), "ref_splits"));
  e->splits = FlatSpan<int64_t>(ctx->input(1));
  e->ref_splits = FlatSpan<int64_t>(ctx->input(2));
  if (e->passes_on()) return absl::OkStatus();
  if (e->splits.size() != e->ref_splits.size()) {
    return InvalidArgumentError("`row_splits` makes ", e->splits.size() - 1,
                                " sequences, but `ref_splits` makes ",
                                e->ref_splits.size() - 1);
  }
  TF_RETURN_IF_ERROR(ctx->allocate_temp(tensorflow::DT_INT64,
                                        {e->splits.size()}, &e->starts_buffer));
  e->starts = FlatSpan<int64_t>(&e->starts_buffer);
  return ToTensorFlow(ExpandedStarts(e->splits, e->ref_splits, e->starts));
}

class SequenceExpandOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckSequences(values, "values", ctx->input(1)));
    Expansion e;
    OP_REQUIRES_OK(ctx, ReadExpansion(ctx, &e));
    if (e.passes_on()) {
      ctx->set_output(0, values);
      ctx->set_output(1, ctx->input(1));
      return;
    }
    OP_REQUIRES(
        ctx, e.num_repetitions() < std::numeric_limits<int64_t>::max(),
        InvalidArgumentError("`ref_splits` makes ", e.num_repetitions(),
                             " repetitions, whose splits are beyond int64"));
    Tensor* expanded_splits = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {e.num_repetitions() + 1},
                                             &expanded_splits));
    TensorShape shape;
    int64_t dim = 0;
    OP_REQUIRES_OK(
        ctx, ReplaceRows(values.shape(), e.num_expanded_rows(), &shape, &dim));
    Tensor* expanded = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &expanded));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    ExpandedSplits(e.splits, e.ref_splits, e.starts,
                   FlatSpan<int64_t>(expanded_splits), &parallel);
    if (expanded->NumElements() == 0) return;
    VisitCopied(values.dtype(), [&](auto zero) {
      using T = decltype(zero);
      SequenceExpand<T>(CopySource<T>(values), CopyWidth<T>(values, dim),
                        e.splits, e.starts, CopyTarget<T>(expanded), &parallel);
    });
  }
};

template <typename T>
class SequenceExpandGradientOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& gradient = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckNoScalar(gradient, "gradient"));
    OP_REQUIRES_OK(ctx, CheckSplits(ctx->input(1), "row_splits"));
    Expansion e;
    OP_REQUIRES_OK(ctx, ReadExpansion(ctx, &e));
    const int64_t wanted = e.passes_on() ? e.num_rows() : e.num_expanded_rows();
    OP_REQUIRES(ctx, gradient.dim_size(0) == wanted,
                InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                     " rows, but the splits make ", wanted));
    if (e.passes_on()) {
      ctx->set_output(0, gradient);
      return;
    }
    TensorShape shape;
    int64_t dim = 0;
    OP_REQUIRES_OK(ctx,
                   ReplaceRows(gradient.shape(), e.num_rows(), &shape, &dim));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &output));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    SequenceExpandGradient<T>(gradient.flat<T>().data(), dim, e.splits,
                              e.ref_splits, e.starts, output->flat<T>().data(),
                              &parallel);
  }
};

class SequenceExpandAsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckNoScalar(values, "values"));
    OP_REQUIRES_OK(ctx, CheckSplits(ctx->input(1), "row_splits"));
    const Span<const int64_t> splits = FlatSpan<int64_t>(ctx->input(1));
    const int64_t num_expanded = splits[splits.size() - 1];
    OP_REQUIRES(ctx, values.dim_size(0) == splits.size() - 1,
                InvalidArgumentError("`values` has ", values.dim_size(0),
                                     " rows, but `row_splits` makes ",
                                     splits.size() - 1, " sequences"));
    TensorShape shape;
    int64_t dim = 0;
    OP_REQUIRES_OK(ctx,
                   ReplaceRows(values.shape(), num_expanded, &shape, &dim));
    Tensor* expanded = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &expanded));
    if (expanded->NumElements() == 0) return;
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    VisitCopied(values.dtype(), [&](auto zero) {
      using T = decltype(zero);
      SequenceExpandAs<T>(CopySource<T>(values), CopyWidth<T>(values, dim),
                          splits, CopyTarget<T>(expanded), &parallel);
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceExpand").Device(DEVICE_CPU),
                        SequenceExpandOp);
REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceExpandAs").Device(DEVICE_CPU),
                        SequenceExpandAsOp);

#define REGISTER(T)                                               \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>SequenceExpandGradient") \
                              .Device(DEVICE_CPU)                 \
                              .TypeConstraint<T>("T"),            \
                          SequenceExpandGradientOp<T>)
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);
REGISTER(float);
REGISTER(double);
#undef REGISTER

}  // namespace
}  // namespace lodestar
