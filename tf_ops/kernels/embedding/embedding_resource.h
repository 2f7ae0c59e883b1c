// The embedding variable as a TensorFlow resource.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_RESOURCE_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_RESOURCE_H_

#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

// Owns the table, which may be replaced at any time. A kernel gets the table
// once and uses it until the end.
class EmbeddingResource : public tensorflow::ResourceBase {
 public:
  EmbeddingResource(std::shared_ptr<Table> table, std::string name)
      : name_(std::move(name)), table_(std::move(table)) {}

  // Name given by the user; empty: unknown.
  const std::string& name() const { return name_; }
  // The gate of all steps and snapshots of this variable.
  const std::shared_ptr<StepGate>& gate() const { return gate_; }

  std::string DebugString() const override {
    return StrCat("EmbeddingVariable(dim=", table()->dim(), ")");
  }
  std::shared_ptr<Table> table() const {
    MutexLock lock(&mutex_);
    return table_;
  }
  // Gets the table for a kernel that works on a GPU or on a CPU. Returns
  // Unimplemented if the table is on the other kind of device.
  Status GetTable(bool on_gpu, std::shared_ptr<Table>* table) const {
    std::shared_ptr<Table> found = this->table();
    if (found->on_gpu() != on_gpu) return OnAnotherDevice();
    *table = std::move(found);
    return Status();
  }
  // Gets the table as an EmbeddingStore or a DeviceStore. Returns
  // Unimplemented if it is of the other kind.
  template <typename Store>
  Status GetStore(std::shared_ptr<Store>* store) const {
    *store = std::dynamic_pointer_cast<Store>(table());
    return *store != nullptr ? Status() : OnAnotherDevice();
  }
  // Kernels that hold the old table keep it alive. Requires: the same dim and
  // type.
  void Replace(std::shared_ptr<Table> table) {
    {
      MutexLock lock(&mutex_);
      table_.swap(table);
    }
    // The old rows may be freed here, outside of the lock, which takes a while.
  }

 private:
  static Status OnAnotherDevice() {
    return Status(StatusCode::kUnimplemented,
                  "the kernel and the table are on different kinds of devices; "
                  "place both on a CPU or both on a GPU.");
  }

  const std::string name_;
  const std::shared_ptr<StepGate> gate_ = std::make_shared<StepGate>();
  mutable Mutex mutex_;
  std::shared_ptr<Table> table_ LODESTAR_GUARDED_BY(mutex_);
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_RESOURCE_H_
