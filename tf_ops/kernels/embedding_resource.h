// The embedding variable as a TensorFlow resource.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_RESOURCE_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_RESOURCE_H_

#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/embedding_store.h"

namespace lodestar {

class EmbeddingResource : public tensorflow::ResourceBase {
 public:
  explicit EmbeddingResource(std::unique_ptr<EmbeddingStore> store)
      : store_(std::move(store)) {}

  std::string DebugString() const override {
    return StrCat("EmbeddingVariable(dim=", store_->dim(),
                  ", rows=", store_->size(), ")");
  }
  EmbeddingStore* store() const { return store_.get(); }

 private:
  const std::unique_ptr<EmbeddingStore> store_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_RESOURCE_H_
