#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

// The alignment that TensorFlow's kernels may assume.
constexpr int64_t kAlignment = 64;

class CutBufferOp : public Kernel {
 public:
  explicit CutBufferOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("output_types", &types_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("output_shapes", &shapes_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& buffer = ctx->input(0);
    const Tensor& places = ctx->input(1);
    const int64_t count = static_cast<int64_t>(types_.size());
    LODESTAR_TRY(CheckRank(buffer, "buffer", 1));
    if (places.shape() != TensorShape({count, 3})) {
      return InvalidArgumentError("`places` must have shape [", count,
                                  ",3], found ", places.shape().DebugString());
    }
    const auto place = places.matrix<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      Tensor piece;
      LODESTAR_TRY(
          Cut(buffer, place(i, 0), place(i, 1), place(i, 2), i, &piece));
      ctx->set_output(static_cast<int>(i), piece);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Cut(const Tensor& buffer, int64_t begin, int64_t end,
                   int64_t first, int64_t i, Tensor* piece) const {
    if (begin < 0 || begin % kAlignment != 0 || end < begin ||
        end > buffer.NumElements()) {
      return InvalidArgumentError("`places[", i, "]`: no piece of ",
                                  buffer.NumElements(), " bytes is at ", begin,
                                  " to ", end);
    }
    const int64_t bytes = end - begin;
    const int64_t size = tensorflow::DataTypeSize(types_[i]);
    TensorShape shape;
    if (bytes % size != 0 ||
        !Complete(shapes_[i], first, bytes / size, &shape)) {
      return InvalidArgumentError(
          "`places[", i, "]`: ", bytes, " bytes and a first dimension of ",
          first, " do not fit the shape ", shapes_[i].DebugString());
    }
    return piece->BitcastFrom(buffer.Slice(begin, end), types_[i], shape);
  }

  // Completes `partial` to a shape of `count` values. Returns false if that is
  // impossible.
  static bool Complete(const tensorflow::PartialTensorShape& partial,
                       int64_t first, int64_t count, TensorShape* shape) {
    if (partial.dims() < 1 || first < 0) return false;
    if (partial.dim_size(0) >= 0 && partial.dim_size(0) != first) return false;
    int unknown = 0;
    for (int d = 0; d < partial.dims(); ++d) {
      int64_t dim = d == 0 ? first : partial.dim_size(d);
      if (dim < 0) {
        unknown = d;
        dim = 1;
      }
      if (!shape->AddDimWithStatus(dim).ok()) return false;
    }
    if (unknown > 0 && shape->num_elements() > 0) {
      shape->set_dim(unknown, count / shape->num_elements());
    }
    return shape->num_elements() == count;
  }

  std::vector<DataType> types_;
  std::vector<tensorflow::PartialTensorShape> shapes_;
};

LODESTAR_REGISTER(CutBuffer);

}  // namespace
}  // namespace lodestar
