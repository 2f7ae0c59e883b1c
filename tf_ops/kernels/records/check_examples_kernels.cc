#include <cstdint>
#include <string>

#include "tf_ops/core/records/example_format.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

absl::Status RunCheckExamples(OpKernelContext* ctx) {
  const Tensor& names = ctx->input(0);
  const Tensor& examples = ctx->input(1);
  LODESTAR_TRY(CheckRank(names, "names", 1));
  if (names.shape() != examples.shape()) {
    return InvalidArgumentError("`examples` must have the shape of `names`, ",
                                names.shape().DebugString(), ", found ",
                                examples.shape().DebugString());
  }
  const auto name = names.vec<tstring>();
  const auto example = examples.vec<tstring>();
  for (int64_t i = 0; i < example.size(); ++i) {
    const tstring& bytes = example(i);
    if (IsExample(bytes.data(), bytes.data() + bytes.size())) continue;
    return InvalidArgumentError(std::string(name(i)),
                                ": is not a tf.Example: its ", bytes.size(),
                                " bytes are not those of a protocol buffer");
  }
  ctx->set_output(0, examples);
  return absl::OkStatus();
}

LODESTAR_REGISTER_FUNCTION(CheckExamples);

}  // namespace
}  // namespace lodestar
