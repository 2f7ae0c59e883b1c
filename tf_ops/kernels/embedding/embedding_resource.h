// The embedding variable as a TensorFlow resource.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_RESOURCE_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_RESOURCE_H_

#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

// Owns the store with the rows, which may be replaced at any time. A kernel
// gets the store once and uses it until the end.
class EmbeddingResource : public tensorflow::ResourceBase {
 public:
  EmbeddingResource(std::unique_ptr<EmbeddingStore> store, std::string name)
      : name_(std::move(name)), store_(std::move(store)) {}

  // Name given by the user; empty: unknown.
  const std::string& name() const { return name_; }

  std::string DebugString() const override {
    const std::shared_ptr<EmbeddingStore> store = this->store();
    return StrCat("EmbeddingVariable(dim=", store->dim(),
                  ", rows=", store->size(), ")");
  }
  std::shared_ptr<EmbeddingStore> store() const {
    MutexLock lock(&mutex_);
    return store_;
  }
  // Kernels that hold the old store keep it alive. Requires: the same dim and
  // type.
  void Replace(std::shared_ptr<EmbeddingStore> store) {
    {
      MutexLock lock(&mutex_);
      store_.swap(store);
    }
    // The old rows may be freed here, outside of the lock, which takes a while.
  }

 private:
  const std::string name_;
  mutable Mutex mutex_;
  std::shared_ptr<EmbeddingStore> store_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_RESOURCE_H_
