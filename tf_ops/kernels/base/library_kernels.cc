#include <string>

#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/base/version.h"

namespace lodestar {
namespace {

absl::Status RunLibraryVersion(OpKernelContext* ctx) {
  return OutputScalar(
      ctx, 0,
      std::string(LODESTAR_VERSION " for TensorFlow " LODESTAR_TF_VERSION));
}

LODESTAR_REGISTER_FUNCTION(LibraryVersion);

}  // namespace
}  // namespace lodestar
