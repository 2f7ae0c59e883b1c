// Contracts: tf_ops/ops/base/resource_ops.cc.

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

// TensorFlow's own op for this ignores handles that keep their resource alive.
absl::Status RunReleaseResource(OpKernelContext* ctx) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "handle", 0));
  const absl::Status status = ctx->resource_manager()->Delete(
      ctx->input(0).scalar<tensorflow::ResourceHandle>()());
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

LODESTAR_REGISTER_FUNCTION(ReleaseResource);
// It runs on the device of the resource, also in a library without CUDA.
LODESTAR_REGISTER_ON_GPU(ReleaseResource, FunctionKernel<RunReleaseResource>,
                         .HostMemory("handle"));

}  // namespace
}  // namespace lodestar
