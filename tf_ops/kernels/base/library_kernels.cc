#include <string>

#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"

namespace lodestar {
namespace {

// Must equal the version in python/lodestar/version.py.
constexpr char kVersion[] = "0.1.0";

absl::Status RunLibraryVersion(OpKernelContext* ctx) {
  return OutputScalar(
      ctx, 0, std::string(kVersion) + " for TensorFlow " LODESTAR_TF_VERSION);
}

LODESTAR_REGISTER_FUNCTION(LibraryVersion);

}  // namespace
}  // namespace lodestar
