#include <utility>

#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

// Avoids RaggedTensorToVariant, which reads every row split and costs more than
// copying the batch.
absl::Status RunEncodeRagged(OpKernelContext* ctx) {
  const Tensor& like = ctx->input(0);
  LODESTAR_TRY(CheckRank(like, "like", 0));
  // The variant type is private to TensorFlow, so it is taken from a value.
  const tensorflow::Variant& of_type = like.scalar<tensorflow::Variant>()();
  OpInputList values, row_splits;
  LODESTAR_TRY(ctx->input_list("values", &values));
  LODESTAR_TRY(ctx->input_list("row_splits", &row_splits));
  if (values.size() != row_splits.size()) {
    return InvalidArgumentError("found ", values.size(), " `values` and ",
                                row_splits.size(), " `row_splits`");
  }
  if (of_type.TypeName() != "RaggedTensorVariant") {
    return InvalidArgumentError(
        "`like` must be an encoded RaggedTensor, found ", of_type.TypeName());
  }
  for (int i = 0; i < values.size(); ++i) {
    LODESTAR_TRY(CheckRank(values[i], "values", 1));
    LODESTAR_TRY(CheckRank(row_splits[i], "row_splits", 1));
    tensorflow::VariantTensorData data;
    data.set_type_name(of_type.TypeName());
    *data.add_tensors() = row_splits[i];
    *data.add_tensors() = values[i];
    tensorflow::Variant encoded = of_type;
    if (!encoded.Decode(std::move(data))) {
      return InvalidArgumentError("`like` cannot hold a RaggedTensor");
    }
    LODESTAR_TRY(OutputScalar(ctx, i, std::move(encoded)));
  }
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(EncodeRagged);

}  // namespace
}  // namespace lodestar
