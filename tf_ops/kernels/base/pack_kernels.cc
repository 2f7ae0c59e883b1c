// Contracts: tf_ops/ops/base/pack_ops.cc.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

constexpr int64_t kWord = sizeof(int64_t);

int64_t Words(int64_t bytes) { return (bytes + kWord - 1) / kWord; }

// Reads `num_parts`, and the number of tensors per part.
absl::Status ReadParts(OpKernelConstruction* ctx, int num_tensors,
                       int* num_parts, int* per_part) {
  LODESTAR_TRY(ctx->GetAttr("num_parts", num_parts));
  *per_part = num_tensors / *num_parts;
  if (*per_part * *num_parts == num_tensors) return absl::OkStatus();
  return InvalidArgumentError("`tensors` has ", num_tensors,
                              " tensors, which is not a multiple of `num_parts`"
                              " = ",
                              *num_parts);
}

class PackTensorsOp final : public Kernel {
 public:
  explicit PackTensorsOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(
        ctx, ReadParts(ctx, ctx->num_inputs() - 1, &num_parts_, &per_part_));
  }

 protected:
  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& given = ctx->input(ctx->num_inputs() - 1);
    LODESTAR_TRY(CheckRank(given, "width", 0));
    const int64_t needed = Needed(ctx);
    int64_t width = given.scalar<int64_t>()();
    if (width == 0) width = needed;
    if (width < needed) {
      return InvalidArgumentError("`width` is ", width, ", but a part needs ",
                                  needed);
    }
    Tensor* packed = nullptr;
    LODESTAR_TRY(AllocateOutput(ctx, 0, {num_parts_, width}, &packed));
    int64_t* words = packed->flat<int64_t>().data();
    for (int part = 0; part < num_parts_; ++part) {
      Pack(ctx, part, words + part * width, width);
    }
    return absl::OkStatus();
  }

 private:
  // The size of the largest part.
  int64_t Needed(OpKernelContext* ctx) const {
    int64_t needed = 0;
    for (int part = 0; part < num_parts_; ++part) {
      int64_t words = per_part_;
      for (int i = 0; i < per_part_; ++i) {
        words += Words(ctx->input(part * per_part_ + i).tensor_data().size());
      }
      needed = std::max(needed, words);
    }
    return needed;
  }

  void Pack(OpKernelContext* ctx, int part, int64_t* words,
            int64_t width) const {
    int64_t* const end = words + width;
    int64_t* to = words + per_part_;
    for (int i = 0; i < per_part_; ++i) {
      const Tensor& tensor = ctx->input(part * per_part_ + i);
      const auto bytes = tensor.tensor_data();
      words[i] = tensor.dims() == 0 ? 1 : tensor.dim_size(0);
      if (bytes.empty()) continue;
      to += Words(bytes.size());
      to[-1] = 0;  // its last bytes may be padding
      std::memcpy(to - Words(bytes.size()), bytes.data(), bytes.size());
    }
    std::fill(to, end, 0);
  }

  int num_parts_ = 1;
  int per_part_ = 0;
};

class UnpackTensorsOp final : public Kernel {
 public:
  explicit UnpackTensorsOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("output_shapes", &shapes_));
    OP_REQUIRES_OK(ctx,
                   ReadParts(ctx, ctx->num_outputs(), &num_parts_, &per_part_));
    OP_REQUIRES(
        ctx, static_cast<int>(shapes_.size()) == ctx->num_outputs(),
        InvalidArgumentError("`output_shapes` has ", shapes_.size(),
                             " shapes for ", ctx->num_outputs(), " tensors"));
    for (const auto& shape : shapes_) {
      TensorShape with_one;
      OP_REQUIRES_OK(ctx, WithOneRow(shape, &with_one));
      with_one_.push_back(with_one);
    }
  }

 protected:
  absl::Status Run(OpKernelContext* ctx) override {
    const Tensor& packed = ctx->input(0);
    LODESTAR_TRY(CheckRank(packed, "packed", 2));
    if (packed.dim_size(0) != num_parts_) {
      return InvalidArgumentError("`packed` must have ", num_parts_,
                                  " rows, found shape ",
                                  packed.shape().DebugString());
    }
    const int64_t width = packed.dim_size(1);
    // All sizes are checked before the first output is allocated.
    std::vector<TensorShape> shapes(shapes_.size());
    for (int part = 0; part < num_parts_; ++part) {
      LODESTAR_TRY(Check(ctx, packed, part, width, &shapes));
    }
    for (int part = 0; part < num_parts_; ++part) {
      const int64_t* from =
          packed.flat<int64_t>().data() + part * width + per_part_;
      for (int i = part * per_part_; i < (part + 1) * per_part_; ++i) {
        Tensor* tensor = nullptr;
        LODESTAR_TRY(AllocateOutput(ctx, i, shapes[i], &tensor));
        const auto bytes = tensor->tensor_data();
        if (bytes.empty()) continue;
        std::memcpy(CopyTarget<char>(tensor), from, bytes.size());
        from += Words(bytes.size());
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(OpKernelContext* ctx, const Tensor& packed, int part,
                     int64_t width, std::vector<TensorShape>* shapes) const {
    const int64_t* words = packed.flat<int64_t>().data() + part * width;
    int64_t left = width - per_part_;
    for (int i = part * per_part_; left >= 0 && i < (part + 1) * per_part_;
         ++i) {
      const int64_t first = words[i - part * per_part_];
      const bool is_scalar = with_one_[i].dims() == 0;
      const int64_t known = is_scalar ? 1 : shapes_[i].dim_size(0);
      if (first < 0 || (known >= 0 && first != known)) {
        return InvalidArgumentError(
            "`packed` has ", first, " as the first dimension of tensor ", i,
            ", whose shape is ", shapes_[i].DebugString());
      }
      const int64_t size =
          with_one_[i].num_elements() *
          tensorflow::DataTypeSize(ctx->expected_output_dtype(i));
      if (size > 0 && first > left * kWord / size) {
        left = -1;
        break;
      }
      left -= Words(first * size);
      (*shapes)[i] = with_one_[i];
      if (!is_scalar) {
        LODESTAR_TRY((*shapes)[i].SetDimWithStatus(0, first));
      }
    }
    if (left >= 0) return absl::OkStatus();
    return InvalidArgumentError("`packed` has ", width,
                                " int64 per part, which is too little for its "
                                "tensors");
  }

  // Returns `shape` with 1 as its first dimension.
  static absl::Status WithOneRow(const tensorflow::PartialTensorShape& shape,
                                 TensorShape* with_one) {
    std::vector<int64_t> dims;
    for (int i = 0; i < shape.dims(); ++i) {
      dims.push_back(i == 0 ? 1 : shape.dim_size(i));
    }
    if (shape.unknown_rank() || std::any_of(dims.begin(), dims.end(),
                                            [](int64_t d) { return d < 0; })) {
      return InvalidArgumentError("`output_shapes` has ", shape.DebugString(),
                                  ", of which more than the first dimension is"
                                  " unknown");
    }
    return TensorShape::BuildTensorShape(dims, with_one);
  }

  std::vector<tensorflow::PartialTensorShape> shapes_;
  std::vector<TensorShape> with_one_;
  int num_parts_ = 1;
  int per_part_ = 0;
};

LODESTAR_REGISTER(PackTensors);
LODESTAR_REGISTER(UnpackTensors);

}  // namespace
}  // namespace lodestar
