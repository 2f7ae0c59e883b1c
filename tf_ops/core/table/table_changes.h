// Changes of a table since a snapshot: whether they are marked, and which ids
// were removed. Incremental snapshots are written from these.

#ifndef LODESTAR_TF_OPS_CORE_TABLE_TABLE_CHANGES_H_
#define LODESTAR_TF_OPS_CORE_TABLE_TABLE_CHANGES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/rows/row_images.h"

namespace lodestar {

// Ids removed from one shard. Requires the shard's mutex.
class RemovedIds {
 public:
  // Returns false, and forgets all ids, if they are too many for a shard of
  // `rows` rows or if memory runs out.
  bool Add(int64_t id, int64_t rows) {
    if (!known_) return true;
    if (static_cast<int64_t>(ids_.size()) < std::max(rows / 2, kFew)) {
      try {
        ids_.push_back(id);
        return true;
      } catch (const std::bad_alloc&) {
      }
    }
    Forget();
    return false;
  }
  // Adds the ids from before a snapshot that failed. Returns false as Add does.
  bool Restore(std::vector<int64_t> ids) {
    if (!known_) return true;
    if (ids_.size() < ids.size()) ids_.swap(ids);
    try {
      ids_.insert(ids_.end(), ids.begin(), ids.end());
      return true;
    } catch (const std::bad_alloc&) {
    }
    Forget();
    return false;
  }
  // Returns the ids and starts an empty list.
  std::vector<int64_t> Take() {
    known_ = true;
    return std::exchange(ids_, std::vector<int64_t>());
  }
  void Forget() {
    known_ = false;
    std::vector<int64_t>().swap(ids_);
  }

 private:
  static constexpr int64_t kFew = 1024;

  bool known_ = false;
  std::vector<int64_t> ids_;
};

// Thread-safe.
class TableChanges {
 public:
  // The snapshot since which all changes are marked. If empty, the next
  // snapshot is a full one.
  std::string base() const {
    MutexLock lock(&mutex_);
    return base_;
  }
  void SetBase(std::string base) {
    MutexLock lock(&mutex_);
    base_ = std::move(base);
    lost_ = false;
  }
  // Call if a change was not marked. A running snapshot cannot become a base
  // either.
  void ForgetBase() {
    MutexLock lock(&mutex_);
    base_.clear();
    lost_ = true;
  }

  // Budget of the running snapshot; null: none is running.
  std::shared_ptr<ImageBudget> budget() const {
    MutexLock lock(&mutex_);
    return budget_;
  }
  bool running() const { return budget() != nullptr; }
  void BeginSnapshot(std::shared_ptr<ImageBudget> budget) {
    MutexLock lock(&mutex_);
    budget_ = std::move(budget);
    lost_ = false;
  }
  // Replaces the base with `base`; nullptr keeps it.
  void EndSnapshot(std::string* base) {
    MutexLock lock(&mutex_);
    if (base != nullptr && !lost_) base_.swap(*base);
    budget_ = nullptr;
    ended_.NotifyAll();
  }
  // Returns true if changes are still needed after the snapshot.
  bool HasBaseAfter(const std::string* base) const {
    MutexLock lock(&mutex_);
    return !lost_ && !(base == nullptr ? base_ : *base).empty();
  }
  void WaitForEnd() const {
    MutexLock lock(&mutex_);
    while (budget_ != nullptr) ended_.Wait(&mutex_);
  }
  // Waits while the images of a snapshot that is being written exceed their
  // limit. Call before changing many rows outside of a step. Requires: the
  // caller holds no lock.
  void WaitForImages() const {
    const std::shared_ptr<ImageBudget> budget = this->budget();
    if (budget != nullptr) budget->Wait();
  }

 private:
  mutable Mutex mutex_;
  mutable ConditionVariable ended_;
  std::string base_ LODESTAR_GUARDED_BY(mutex_);
  std::shared_ptr<ImageBudget> budget_ LODESTAR_GUARDED_BY(mutex_);
  bool lost_ LODESTAR_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_TABLE_TABLE_CHANGES_H_
