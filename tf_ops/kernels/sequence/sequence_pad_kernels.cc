#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/sequence/lod.h"
#include "tf_ops/core/sequence/sequence_pad.h"
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

// The checked inputs of SequencePad and its outputs. `lengths` is already
// computed. It, row_splits and maxlen are in host memory.
struct Padding {
  Span<const int64_t> splits;
  int64_t steps = 0;
  int64_t dim = 0;
  // Whether pad_value is a scalar although a step has another shape.
  bool pads_by_scalar = false;
  Tensor* padded = nullptr;
};

absl::Status PreparePad(OpKernelContext* ctx, Padding* p) {
  const Tensor& values = ctx->input(0);
  const Tensor& pad_value = ctx->input(2);
  LODESTAR_TRY(CheckSequences(values, "values", ctx->input(1)));
  LODESTAR_TRY(CheckRank(ctx->input(3), "maxlen", 0));
  p->splits = FlatSpan<int64_t>(ctx->input(1));
  LODESTAR_TRY(
      PaddedSteps(p->splits, ctx->input(3).scalar<int64_t>()(), &p->steps));
  TensorShape step;
  LODESTAR_TRY(AppendDims(values, 1, &step));
  p->dim = step.num_elements();
  if (pad_value.dims() != 0 && pad_value.shape() != step) {
    return InvalidArgumentError("`pad_value` must have shape [] or ",
                                step.DebugString(), ", got ",
                                pad_value.shape().DebugString(), ".");
  }
  p->pads_by_scalar = pad_value.dims() == 0;
  const int64_t batch = p->splits.size() - 1;
  TensorShape shape;
  LODESTAR_TRY(shape.AddDimWithStatus(batch));
  LODESTAR_TRY(shape.AddDimWithStatus(p->steps));
  LODESTAR_TRY(shape.AppendShapeWithStatus(step));
  LODESTAR_TRY(AllocateOutput(ctx, 0, shape, &p->padded));
  Tensor* lengths = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 1, {batch}, &lengths));
  for (int64_t b = 0; b < batch; ++b) {
    lengths->flat<int64_t>()(b) = p->splits[b + 1] - p->splits[b];
  }
  return absl::OkStatus();
}

// T: see VisitCopied.
template <typename T>
absl::Status Pad(OpKernelContext* ctx, const Padding& p) {
  const Tensor& values = ctx->input(0);
  const int64_t width = CopyWidth<T>(values, p.dim);
  const T* pad = CopySource<T>(ctx->input(2));
  const int64_t pad_width = p.pads_by_scalar ? CopyWidth<T>(values, 1) : width;
  Tensor buffer;
  if (pad_width < width) {
    LODESTAR_TRY(ctx->allocate_temp(values.dtype(), {p.dim}, &buffer));
    VisitWidth<T>(pad_width, [&](auto pad_width) {
      RepeatRow(pad, p.dim, pad_width, CopyTarget<T>(&buffer));
    });
    pad = CopySource<T>(buffer);
  }
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  SequencePad<T>(CopySource<T>(values), width, p.splits, pad, p.steps,
                 CopyTarget<T>(p.padded), &parallel);
  return absl::OkStatus();
}

absl::Status RunSequencePad(OpKernelContext* ctx) {
  Padding p;
  LODESTAR_TRY(PreparePad(ctx, &p));
  if (p.padded->NumElements() == 0) return absl::OkStatus();
  absl::Status status;
  VisitCopied(ctx->input(0).dtype(),
              [&](auto zero) { status = Pad<decltype(zero)>(ctx, p); });
  return status;
}

// The checked inputs of SequenceUnpad and its outputs. row_splits is already
// computed. It and lengths are in host memory.
struct Unpadding {
  int64_t steps = 0;
  int64_t dim = 0;
  Tensor* values = nullptr;
  Tensor* splits = nullptr;
};

absl::Status PrepareUnpad(OpKernelContext* ctx, Unpadding* u) {
  const Tensor& padded = ctx->input(0);
  const Tensor& lengths = ctx->input(1);
  if (padded.dims() < 2) {
    return InvalidArgumentError("`padded` must have rank 2 or more, got shape ",
                                padded.shape().DebugString(), ".");
  }
  LODESTAR_TRY(CheckRank(lengths, "lengths", 1));
  const int64_t batch = padded.dim_size(0);
  if (lengths.NumElements() != batch) {
    return InvalidArgumentError("`lengths` has ", lengths.NumElements(),
                                " elements, but `padded` has ", batch,
                                " rows.");
  }
  LODESTAR_TRY(AllocateOutput(ctx, 1, {batch + 1}, &u->splits));
  const Span<int64_t> splits = FlatSpan<int64_t>(u->splits);
  u->steps = padded.dim_size(1);
  LODESTAR_TRY(LengthsToOffsets("lengths", FlatSpan<int64_t>(lengths), u->steps,
                                splits));
  TensorShape step;
  LODESTAR_TRY(AppendDims(padded, 2, &step));
  u->dim = step.num_elements();
  TensorShape shape;
  LODESTAR_TRY(shape.AddDimWithStatus(splits[batch]));
  LODESTAR_TRY(shape.AppendShapeWithStatus(step));
  return AllocateOutput(ctx, 0, shape, &u->values);
}

absl::Status RunSequenceUnpad(OpKernelContext* ctx) {
  Unpadding u;
  LODESTAR_TRY(PrepareUnpad(ctx, &u));
  if (u.values->NumElements() == 0) return absl::OkStatus();
  const Tensor& padded = ctx->input(0);
  const ParallelFor parallel = IntraOpParallelFor(ctx);
  VisitCopied(padded.dtype(), [&](auto zero) {
    using T = decltype(zero);
    SequenceUnpad<T>(CopySource<T>(padded), CopyWidth<T>(padded, u.dim),
                     u.steps, FlatSpan<int64_t>(u.splits),
                     CopyTarget<T>(u.values), &parallel);
  });
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(SequencePad);
LODESTAR_REGISTER_FUNCTION(SequenceUnpad);

#if LODESTAR_CUDA

absl::Status RunSequencePadOnGpu(OpKernelContext* ctx) {
  Padding p;
  LODESTAR_TRY(PreparePad(ctx, &p));
  if (p.padded->NumElements() == 0) return absl::OkStatus();
  const Tensor& values = ctx->input(0);
  const int64_t number_bytes = DataTypeSize(values.dtype());
  const void* pad_value = ctx->input(2).data();
  DeviceBytes splits;
  LODESTAR_TRY(splits.CopyFrom(ctx, p.splits));
  DeviceBytes pad_row;
  if (!p.pads_by_scalar) {
    LODESTAR_TRY(pad_row.CopyFrom(ctx, pad_value, p.dim * number_bytes));
  }
  return ToTensorFlow(
      LaunchSequencePad(CudaStream(ctx), values.data(), p.dim * number_bytes,
                        splits.splits(values.dim_size(0)), p.steps,
                        p.pads_by_scalar ? nullptr : pad_row.data(), pad_value,
                        number_bytes, p.padded->data()),
      "padding");
}

absl::Status RunSequenceUnpadOnGpu(OpKernelContext* ctx) {
  Unpadding u;
  LODESTAR_TRY(PrepareUnpad(ctx, &u));
  if (u.values->NumElements() == 0) return absl::OkStatus();
  const Tensor& padded = ctx->input(0);
  DeviceBytes splits;
  LODESTAR_TRY(
      splits.CopyFrom(ctx, Span<const int64_t>(FlatSpan<int64_t>(u.splits))));
  return ToTensorFlow(LaunchSequenceUnpad(CudaStream(ctx), padded.data(),
                                          u.steps, RowBytes(padded, u.dim),
                                          splits.splits(u.values->dim_size(0)),
                                          u.values->data()),
                      "unpadding");
}

LODESTAR_REGISTER_ON_GPU(SequencePad, FunctionKernel<RunSequencePadOnGpu>,
                         .TypeConstraint("T", kMoved)
                             .HostMemory("row_splits")
                             .HostMemory("pad_value")
                             .HostMemory("maxlen")
                             .HostMemory("lengths"));
LODESTAR_REGISTER_ON_GPU(SequenceUnpad, FunctionKernel<RunSequenceUnpadOnGpu>,
                         .TypeConstraint("T", kMoved)
                             .HostMemory("lengths")
                             .HostMemory("row_splits"));

#endif  // LODESTAR_CUDA

}  // namespace
}  // namespace lodestar
