// A reference to an embedding variable for ops on variables of several devices.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_TABLE_REFERENCE_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_TABLE_REFERENCE_H_

#include <functional>
#include <memory>
#include <string>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"

namespace lodestar {

// TensorFlow runs an op with the handle of a resource on the device of the
// resource. This one is on the first CPU, whose ops work on a table of a GPU
// through the GPU's own stream.
struct TableReference : public tensorflow::ResourceBase {
  std::string DebugString() const override { return variable->DebugString(); }

  tensorflow::core::RefCountPtr<EmbeddingResource> variable;
  std::string device;  // where lookups run
  // For a table on a GPU.
  std::shared_ptr<const DeviceStream> stream;
  std::function<void()> make_gpu_current;  // on the calling thread

  // Where the calling thread works on the table. Valid as long as this object
  // and `parallel`.
  Execution On(const ParallelFor* parallel) const {
    if (stream == nullptr) return Execution(parallel);
    make_gpu_current();
    return Execution(*stream);
  }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_TABLE_REFERENCE_H_
