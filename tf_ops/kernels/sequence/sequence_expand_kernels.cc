#include <limits>

#include "tf_ops/core/sequence/sequence_expand.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/sequence/sequence_util.h"
#if LODESTAR_CUDA
#include "tf_ops/kernels/sequence/cuda/sequence_cuda.h"
#include "tf_ops/kernels/sequence/cuda_op_util.h"
#endif

namespace lodestar {
namespace {

// Units to repeat: their splits, their starts in the result, and the output
// with `dim` values per row.
struct Expansion {
  Span<const int64_t> splits;
  Span<const int64_t> ref_splits;
  Span<int64_t> starts;
  Tensor starts_buffer;
  int64_t dim = 0;
  Tensor* output = nullptr;  // null for a pass-through

  int64_t num_rows() const { return splits[splits.size() - 1]; }
  int64_t num_expanded_rows() const { return starts[starts.size() - 1]; }
  int64_t num_repetitions() const { return ref_splits[ref_splits.size() - 1]; }
  // Without units, the input is passed through unchanged.
  bool passes_through() const { return ref_splits.size() == 1; }
  bool is_done() const {
    return passes_through() || output->NumElements() == 0;
  }
};

// Reads row_splits, which must be valid, and ref_splits, inputs 1 and 2, both
// in host memory. Does not compute the starts for a pass-through.
absl::Status ReadExpansion(OpKernelContext* ctx, Expansion* e) {
  LODESTAR_TRY(CheckSplits(ctx->input(2), "ref_splits"));
  e->splits = FlatSpan<int64_t>(ctx->input(1));
  e->ref_splits = FlatSpan<int64_t>(ctx->input(2));
  if (e->passes_through()) return absl::OkStatus();
  if (e->splits.size() != e->ref_splits.size()) {
    // Uses Python's names: units are x's sequences or rows, y's of any level.
    return InvalidArgumentError("`x` has ", e->splits.size() - 1,
                                " units to repeat, but `y` has ",
                                e->ref_splits.size() - 1, ".");
  }
  tensorflow::AllocatorAttributes host;
  host.set_on_host(true);
  LODESTAR_TRY(ctx->allocate_temp(tensorflow::DT_INT64, {e->splits.size()},
                                  &e->starts_buffer, host));
  e->starts = FlatSpan<int64_t>(&e->starts_buffer);
  return ToTensorFlow(ExpandedStarts(e->splits, e->ref_splits, e->starts));
}

// Checks the inputs of SequenceExpand, computes expanded_splits and allocates
// `expanded`. For a pass-through, sets both outputs.
absl::Status PrepareExpand(OpKernelContext* ctx, Expansion* e) {
  const Tensor& values = ctx->input(0);
  LODESTAR_TRY(CheckSequences(values, "values", ctx->input(1)));
  LODESTAR_TRY(ReadExpansion(ctx, e));
  if (e->passes_through()) {
    ctx->set_output(0, values);
    ctx->set_output(1, ctx->input(1));
    return absl::OkStatus();
  }
  if (e->num_repetitions() == std::numeric_limits<int64_t>::max()) {
    return InvalidArgumentError("`ref_splits` makes ", e->num_repetitions(),
                                " repetitions, whose splits overflow int64.");
  }
  Tensor* expanded_splits = nullptr;
  LODESTAR_TRY(
      AllocateOutput(ctx, 1, {e->num_repetitions() + 1}, &expanded_splits));
  LODESTAR_TRY(AllocateRows(ctx, 0, values, e->num_expanded_rows(), &e->dim,
                            &e->output));
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  ExpandedSplits(e->splits, e->ref_splits, e->starts,
                 FlatSpan<int64_t>(expanded_splits), &parallel);
  return absl::OkStatus();
}

absl::Status RunSequenceExpand(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  Expansion e;
  LODESTAR_TRY(PrepareExpand(ctx, &e));
  if (e.is_done()) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  VisitCopied(values.dtype(), [&](auto zero) {
    using T = decltype(zero);
    SequenceExpand<T>(CopySource<T>(values), CopyWidth<T>(values, e.dim),
                      e.splits, e.starts, CopyTarget<T>(e.output), &parallel);
  });
  return absl::OkStatus();
}

// Checks the inputs of SequenceExpandGradient and allocates the output. For a
// pass-through, sets it.
absl::Status PrepareExpandGradient(OpKernelContext* ctx, Expansion* e) {
  const Tensor& gradient = ctx->input(0);
  LODESTAR_TRY(CheckNotScalar(gradient, "gradient"));
  LODESTAR_TRY(CheckSplits(ctx->input(1), "row_splits"));
  LODESTAR_TRY(ReadExpansion(ctx, e));
  const int64_t wanted =
      e->passes_through() ? e->num_rows() : e->num_expanded_rows();
  if (gradient.dim_size(0) != wanted) {
    return InvalidArgumentError("`gradient` has ", gradient.dim_size(0),
                                " rows, but the splits produce ", wanted, ".");
  }
  if (e->passes_through()) {
    ctx->set_output(0, gradient);
    return absl::OkStatus();
  }
  return AllocateRows(ctx, 0, gradient, e->num_rows(), &e->dim, &e->output);
}

template <typename T>
absl::Status RunSequenceExpandGradient(OpKernelContext* ctx) {
  Expansion e;
  LODESTAR_TRY(PrepareExpandGradient(ctx, &e));
  if (e.is_done()) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  SequenceExpandGradient<T>(ctx->input(0).flat<T>().data(), e.dim, e.splits,
                            e.ref_splits, e.starts, e.output->flat<T>().data(),
                            &parallel);
  return absl::OkStatus();
}

// Checks the inputs of SequenceExpandAs, with row_splits in host memory, and
// allocates the output with `dim` values per row.
absl::Status PrepareExpandAs(OpKernelContext* ctx, Span<const int64_t>* splits,
                             int64_t* dim, Tensor** expanded) {
  const Tensor& values = ctx->input(0);
  LODESTAR_TRY(CheckNotScalar(values, "values"));
  LODESTAR_TRY(CheckSplits(ctx->input(1), "row_splits"));
  *splits = FlatSpan<int64_t>(ctx->input(1));
  const int64_t batch = splits->size() - 1;
  if (values.dim_size(0) != batch) {
    return InvalidArgumentError("`x` has ", values.dim_size(0),
                                " rows to repeat, but `y` has ", batch,
                                " sequences.");
  }
  return AllocateRows(ctx, 0, values, (*splits)[batch], dim, expanded);
}

absl::Status RunSequenceExpandAs(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  Span<const int64_t> splits;
  int64_t dim = 0;
  Tensor* expanded = nullptr;
  LODESTAR_TRY(PrepareExpandAs(ctx, &splits, &dim, &expanded));
  if (expanded->NumElements() == 0) return absl::OkStatus();
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  VisitCopied(values.dtype(), [&](auto zero) {
    using T = decltype(zero);
    SequenceExpandAs<T>(CopySource<T>(values), CopyWidth<T>(values, dim),
                        splits, CopyTarget<T>(expanded), &parallel);
  });
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SequenceExpand);
LODESTAR_REGISTER_FUNCTION(SequenceExpandAs);
LODESTAR_REGISTER_FLOATS(LODESTAR_REGISTER_FUNCTION_TYPE,
                         SequenceExpandGradient);

#if LODESTAR_CUDA

// The splits of an expansion, checked on the host, in device memory.
class ExpansionOnDevice {
 public:
  absl::Status Init(OpKernelContext* ctx, const Expansion& e) {
    LODESTAR_TRY(splits_.CopyFrom(ctx, e.splits));
    LODESTAR_TRY(starts_.CopyFrom(ctx, Span<const int64_t>(e.starts)));
    expansion_ = {splits_.splits(e.num_rows()),
                  starts_.splits(e.num_expanded_rows())};
    return absl::OkStatus();
  }

  const DeviceExpansion& get() const { return expansion_; }

 private:
  DeviceBytes splits_;
  DeviceBytes starts_;
  DeviceExpansion expansion_;
};

absl::Status RunSequenceExpandOnGpu(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  Expansion e;
  LODESTAR_TRY(PrepareExpand(ctx, &e));
  if (e.is_done()) return absl::OkStatus();
  ExpansionOnDevice expansion;
  LODESTAR_TRY(expansion.Init(ctx, e));
  return ToTensorFlow(LaunchSequenceExpand(CudaStream(ctx), values.data(),
                                           RowBytes(values, e.dim),
                                           expansion.get(), e.output->data()),
                      "expansion");
}

absl::Status RunSequenceExpandGradientOnGpu(OpKernelContext* ctx) {
  Expansion e;
  LODESTAR_TRY(PrepareExpandGradient(ctx, &e));
  if (e.is_done()) return absl::OkStatus();
  ExpansionOnDevice expansion;
  LODESTAR_TRY(expansion.Init(ctx, e));
  const Number number = NumberOf(e.output->dtype());
  DeviceBytes scratch;
  LODESTAR_TRY(
      scratch.Allocate(ctx, SequenceExpandGradientScratchBytes(
                                number, e.num_expanded_rows(), e.dim)));
  return ToTensorFlow(LaunchSequenceExpandGradient(
                          CudaStream(ctx), number, ctx->input(0).data(), e.dim,
                          expansion.get(), scratch.data(), e.output->data()),
                      "gradient of expansion");
}

absl::Status RunSequenceExpandAsOnGpu(OpKernelContext* ctx) {
  const Tensor& values = ctx->input(0);
  Span<const int64_t> splits;
  int64_t dim = 0;
  Tensor* expanded = nullptr;
  LODESTAR_TRY(PrepareExpandAs(ctx, &splits, &dim, &expanded));
  if (expanded->NumElements() == 0) return absl::OkStatus();
  DeviceBytes device_splits;
  LODESTAR_TRY(device_splits.CopyFrom(ctx, splits));
  return ToTensorFlow(
      LaunchSequenceExpandAs(
          CudaStream(ctx), values.data(), RowBytes(values, dim),
          device_splits.splits(expanded->dim_size(0)), expanded->data()),
      "expansion");
}

LODESTAR_REGISTER_ON_GPU(SequenceExpand, FunctionKernel<RunSequenceExpandOnGpu>,
                         .TypeConstraint("T", kMoved)
                             .HostMemory("row_splits")
                             .HostMemory("ref_splits")
                             .HostMemory("expanded_splits"));
LODESTAR_REGISTER_ON_GPU(SequenceExpandAs,
                         FunctionKernel<RunSequenceExpandAsOnGpu>,
                         .TypeConstraint("T", kMoved).HostMemory("row_splits"));

LODESTAR_REGISTER_ON_GPU(SequenceExpandGradient,
                         FunctionKernel<RunSequenceExpandGradientOnGpu>,
                         .TypeConstraint("T", kFloats)
                             .HostMemory("row_splits")
                             .HostMemory("ref_splits"));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
