#include "tf_ops/kernels/embedding/op_table.h"

#include <memory>
#include <string>
#include <string_view>

#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/platform/abi.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/version.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"
#include "tf_ops/kernels/embedding/table_kernel.h"

namespace lodestar {
namespace {

absl::Status OpenTable(std::string_view version, OpKernelContext* ctx,
                       int input, OpenedTable* opened) {
  const std::string& op = ctx->op_kernel().type_string();
  // Before the first use of *opened, which other headers may declare otherwise.
  if (version != LODESTAR_VERSION) {
    return ToTensorFlow(FailedPrecondition(
        "op '", op, "' was compiled with the headers of Lodestar ", version,
        ", but Lodestar " LODESTAR_VERSION " is loaded. Compile it again."));
  }
  const std::string wanted = StrCat("input ", input, " of op '", op,
                                    "' must be the `resource_handle` of an "
                                    "EmbeddingVariable, got ");
  if (input < 0 || input >= ctx->num_inputs()) {
    return InvalidArgumentError(wanted, ctx->num_inputs(), " inputs.");
  }
  if (ctx->input_dtype(input) != tensorflow::DT_RESOURCE) {
    return InvalidArgumentError(wanted, "a tensor of ",
                                DataTypeString(ctx->input_dtype(input)), ".");
  }
  const Tensor& tensor = ctx->input(input);
  if (tensor.NumElements() != 1) {
    return InvalidArgumentError(wanted, tensor.NumElements(), " handles.");
  }
  const auto& handle = tensor.flat<tensorflow::ResourceHandle>()(0);
  if (!handle.ValidateType<EmbeddingResource>().ok()) {
    return InvalidArgumentError(
        wanted, "the handle of a ",
        tensorflow::port::MaybeAbiDemangle(handle.maybe_type_name().c_str()),
        ".");
  }
  tensorflow::core::RefCountPtr<EmbeddingResource> resource;
  LODESTAR_TRY(FindResource(ctx, tensor, &resource));
  const auto execution = std::make_shared<const KernelExecution>(ctx);
  std::shared_ptr<Table> table;
  LODESTAR_TRY(WithTableName(
      resource->name(),
      ToTensorFlow(resource->GetTable(execution->on().on_gpu(), &table))));
  opened->table = std::move(table);
  opened->on = std::shared_ptr<const Execution>(execution, &execution->on());
  return absl::OkStatus();
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) bool lodestar_open_table(
    const char* version, OpKernelContext* ctx, int input, OpenedTable* opened) {
  const absl::Status status =
      WithoutBadAlloc([&] { return OpenTable(version, ctx, input, opened); });
  ctx->SetStatus(status);
  return status.ok();
}

__attribute__((visibility("default"))) void lodestar_fail(OpKernelContext* ctx,
                                                          int input, int code,
                                                          const char* message) {
  ctx->SetStatus(WithoutBadAlloc([&] {
    return WithTableName(
        ctx, absl::Status(static_cast<absl::StatusCode>(code), message), input);
  }));
}

}  // extern "C"
}  // namespace lodestar
