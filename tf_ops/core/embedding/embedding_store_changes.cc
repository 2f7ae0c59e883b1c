// How EmbeddingStore keeps account of what changes, for snapshots.

#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

void EmbeddingStore::SetBase(const std::string& base) {
  const auto set = [&](ShardLocks* locks) {
    LockBetweenSnapshots(locks);
    std::optional<ShardLocks> shared_locks;
    if (shared_ != nullptr) shared_locks.emplace(*shared_);
    StopMarking();
    if (!base.empty() && ReserveMarks().ok()) {
      StartMarking();
      changes_.SetBase(base);
    } else {
      changes_.SetBase("");
    }
  };
  try {
    ShardLocks locks(*this, std::defer_lock);
    set(&locks);
  } catch (const std::bad_alloc&) {
    changes_.ForgetBase();
  }
}

void EmbeddingStore::LockBetweenSnapshots(ShardLocks* locks) const {
  while (true) {
    changes_.WaitForEnd();
    locks->Lock();
    // One begins under all locks.
    if (!changes_.running()) return;
    locks->Unlock();
  }
}

void EmbeddingStore::ForgetBase() {
  changes_.ForgetBase();
  if (!changes_.running()) StopMarking();
}

Status EmbeddingStore::ReserveMarks() {
  for (const auto& shard : shards_) {
    LODESTAR_RETURN_IF_ERROR(shard->rows.ReserveMarks());
  }
  return shared_ == nullptr ? Status() : shared_->ReserveMarks();
}

void EmbeddingStore::StartMarking() {
  for (const auto& shard : shards_) {
    shard->removed.Take();
    shard->rows.StartMarking();
  }
  if (shared_ != nullptr) shared_->StartMarking();
}

void EmbeddingStore::StopMarking() {
  for (const auto& shard : shards_) {
    shard->rows.StopMarking();
    shard->removed.Forget();
  }
  if (shared_ != nullptr) shared_->shards_[0]->rows.StopMarking();
}

}  // namespace lodestar
