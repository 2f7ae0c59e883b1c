#include "tf_ops/core/snapshot/embedding_snapshot.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <new>
#include <utility>

namespace lodestar {
namespace {

constexpr int64_t kBlockBytes = SnapshotFileWriter::kBlockBytes;
constexpr int64_t kMostChunkBytes = int64_t{256} << 10;
constexpr int64_t kLeastImageLimit = int64_t{1} << 20;
// Inverse of the share of the bytes of rows and optimizer slots.
constexpr int64_t kImageShare = 10;

Status AlreadyRunning() {
  return FailedPrecondition("the table already has a running snapshot.");
}

// Appends items in blocks.
template <typename T>
Status AppendAll(SnapshotFileWriter* file, BlockKind kind,
                 const std::vector<T>& items) {
  const int64_t most = kBlockBytes / static_cast<int64_t>(sizeof(T));
  const int64_t size = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < size; i += most) {
    const int64_t count = std::min(most, size - i);
    LODESTAR_RETURN_IF_ERROR(
        file->Append(kind, count, items.data() + i,
                     count * static_cast<int64_t>(sizeof(T))));
  }
  return Status();
}

}  // namespace

// The rows of one RowStore.
struct EmbeddingSnapshot::Part {
  RowStore* rows;
  BlockKind kind;
  SnapshotRowFormat format;
  int64_t end;  // of rows [0, end)
};

EmbeddingSnapshot::EmbeddingSnapshot(std::shared_ptr<EmbeddingStore> store)
    : store_(std::move(store)) {}

EmbeddingSnapshot::~EmbeddingSnapshot() { Abort(); }

Status EmbeddingSnapshot::Begin(
    Span<const Source> sources, const StepGates& gates,
    std::vector<std::unique_ptr<EmbeddingSnapshot>>* out) try {
  std::vector<std::unique_ptr<EmbeddingSnapshot>> snapshots;
  std::vector<std::unique_lock<Mutex>> begun;
  // All callers lock tables in the same order, to avoid deadlocks.
  std::vector<int64_t> order;
  for (int64_t i = 0; i < sources.size(); ++i) {
    std::unique_ptr<EmbeddingSnapshot> snapshot(
        new EmbeddingSnapshot(sources[i].store));
    snapshots.push_back(std::move(snapshot));
    begun.emplace_back(snapshots.back()->mutex_);
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::less<>()(sources[a].store.get(), sources[b].store.get());
  });
  std::vector<ShardLocks> locks;
  for (size_t k = 0; k < order.size(); ++k) {
    EmbeddingStore& store = *sources[order[k]].store;
    if (k > 0 && sources[order[k - 1]].store.get() == &store) {
      return InvalidArgument("the snapshot lists one table twice.");
    }
    ShardedRows& rows = store.parts().rows;
    if (rows.changes().running()) return AlreadyRunning();
    locks.emplace_back(rows, std::defer_lock);
    // Allocates before the gates stop optimizer steps.
    ShardLocks held(rows);
    LODESTAR_RETURN_IF_ERROR(rows.ReserveMarks());
  }
  const auto flip = [&]() -> Status {
    struct Unlocker {
      std::vector<ShardLocks>* locks;
      ~Unlocker() {
        for (ShardLocks& lock : *locks) lock.Unlock();
      }
    };
    for (ShardLocks& lock : locks) lock.Lock();
    const Unlocker unlocker = {&locks};
    for (int64_t i : order) {
      if (sources[i].store->parts().rows.changes().running()) {
        return AlreadyRunning();
      }
    }
    std::shared_ptr<ImageBudget> budget;
    try {
      int64_t limit = 0;
      for (int64_t i : order) {
        snapshots[i]->mutex_.AssertHeld();
        snapshots[i]->Prepare(sources[i].base);
        limit += snapshots[i]->image_limit_;
      }
      budget = std::make_shared<ImageBudget>(gates, limit);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("out of memory for the pending ids.");
    }
    // No error is possible from here on.
    for (int64_t i : order) {
      snapshots[i]->mutex_.AssertHeld();
      snapshots[i]->Start(budget);
    }
    return Status();
  };
  LODESTAR_RETURN_IF_ERROR(gates.Flip(flip));
  *out = std::move(snapshots);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the snapshot of ", sources.size(),
                           " tables.");
}

void EmbeddingSnapshot::Prepare(const std::string& base) {
  TableParts& store = store_->parts();
  table_.dim = store.rows.dim();
  table_.type = store.rows.type();
  table_.whole = base.empty() || store_->base() != base;
  table_.optimizer = store.optimizer.optimizer();
  table_.step = store.step.value();
  table_.seed = store.initializer.seed();
  table_.salt = store.initializer.salt();
  table_.own_step = store.step.own();
  table_.shared_rows = store.shared.count();
  int64_t bytes = 0;
  const auto add_part = [&](RowStore* rows, BlockKind kind) {
    const std::vector<float>& inits = table_.optimizer.slot_inits;
    mutex_.AssertHeld();
    parts_.push_back({rows,
                      kind,
                      {table_.layout(), inits, rows->num_slots()},
                      rows->high_water()});
    bytes += rows->row_bytes() + rows->slot_bytes();
  };
  for (size_t s = 0; s < store.rows.num_shards(); ++s) {
    add_part(&store.rows.shard(s).rows, BlockKind::kRows);
  }
  if (store.shared.any()) {
    add_part(store.rows.shared(), BlockKind::kSharedRows);
  }
  store.occurrence_counter.ForEachPending(
      table_.step, [&](int64_t id, uint32_t occurrences, int64_t last_seen) {
        mutex_.AssertHeld();
        pending_.push_back({id, last_seen, occurrences, 0});
      });
  sketch_ = store.occurrence_counter.sketch();
  removed_.resize(store.rows.num_shards());
  image_limit_ = std::max(bytes / kImageShare, kLeastImageLimit);
}

void EmbeddingSnapshot::Start(const std::shared_ptr<ImageBudget>& budget) {
  budget_ = budget;
  ShardedRows& rows = store_->parts().rows;
  if (rows.changes().base().empty()) rows.StartMarking();
  rows.changes().BeginSnapshot(budget);
  for (size_t s = 0; s < removed_.size(); ++s) {
    RowShard& shard = rows.shard(s);
    shard.mutex.AssertHeld();
    removed_[s] = shard.removed.Take();
  }
  const int64_t chunk =
      std::min(kMostChunkBytes,
               image_limit_ / (4 * static_cast<int64_t>(parts_.size())));
  for (const Part& part : parts_) {
    part.rows->BeginSnapshot(table_.whole, part.format, chunk, budget.get());
  }
  begun_ = true;
}

Status EmbeddingSnapshot::Write(SnapshotFileWriter* file) {
  MutexLock lock(&mutex_);
  if (ended_ || written_) {
    return FailedPrecondition("the snapshot has ended or was already written.");
  }
  written_ = true;
  Status status;
  {
    const ImageBudget::Writer writer(budget_.get());
    try {
      status = WriteAll(file);
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("out of memory for a block of the snapshot.");
    }
  }
  complete_ = status.ok();
  EndImages();
  return status;
}

Status EmbeddingSnapshot::WriteAll(SnapshotFileWriter* file) {
  const std::string table = EncodeTable(table_);
  LODESTAR_RETURN_IF_ERROR(
      file->Append(BlockKind::kTable, 1, table.data(), table.size()));
  if (!table_.whole) {
    for (const std::vector<int64_t>& ids : removed_) {
      LODESTAR_RETURN_IF_ERROR(AppendAll(file, BlockKind::kRemoved, ids));
    }
  }
  LODESTAR_RETURN_IF_ERROR(AppendAll(file, BlockKind::kPending, pending_));
  std::vector<SnapshotPending>().swap(pending_);
  LODESTAR_RETURN_IF_ERROR(AppendAll(file, BlockKind::kSketch, sketch_));
  std::vector<uint8_t>().swap(sketch_);
  RecordBuffer block(file, table_.record_bytes());
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    for (int64_t next = 0; next < part.end;) {
      block.Add(part.rows->SaveRows(part.end, part.format, block.left(), &next,
                                    block.next()));
      if (block.left() == 0) {
        LODESTAR_RETURN_IF_ERROR(block.Flush(part.kind));
        LODESTAR_RETURN_IF_ERROR(WriteImages(file, false));
      }
    }
    if (p + 1 == parts_.size() || parts_[p + 1].kind != part.kind) {
      LODESTAR_RETURN_IF_ERROR(block.Flush(part.kind));
    }
  }
  return WriteImages(file, true);
}

Status EmbeddingSnapshot::WriteImages(SnapshotFileWriter* file, bool all) {
  if (aborted_.load(std::memory_order_relaxed)) {
    return FailedPrecondition("the snapshot was aborted.");
  }
  if (!all && budget_->bytes() == 0) return Status();
  for (const Part& part : parts_) {
    RowImages::Chunk* chunks =
        part.rows->images()->Take(all || budget_->tight());
    Status status;
    while (chunks != nullptr) {
      RowImages::Chunk* const chunk = chunks;
      chunks = std::exchange(chunk->next, nullptr);
      if (status.ok()) {
        status = file->Append(part.kind, chunk->count, chunk->records(),
                              chunk->count * table_.record_bytes());
      }
      RowImages::Release(chunk);
    }
    LODESTAR_RETURN_IF_ERROR(status);
    if (part.rows->images()->failed()) {
      return ResourceExhausted("out of memory for the image of a changed row.");
    }
  }
  return Status();
}

void EmbeddingSnapshot::EndImages() {
  for (const Part& part : parts_) part.rows->EndImages(part.end);
}

void EmbeddingSnapshot::Commit(std::string base) {
  MutexLock lock(&mutex_);
  End(complete_ ? &base : nullptr);
}

void EmbeddingSnapshot::Abort() {
  aborted_ = true;
  MutexLock lock(&mutex_);
  End(nullptr);
}

void EmbeddingSnapshot::End(std::string* base) {
  if (ended_ || !begun_) return;
  ended_ = true;
  EndImages();
  ShardedRows& rows = store_->parts().rows;
  TableChanges& changes = rows.changes();
  const bool marking = changes.HasBaseAfter(base);
  for (size_t p = 0; p < parts_.size(); ++p) {
    const bool shared = parts_[p].kind == BlockKind::kSharedRows;
    RowShard& shard = rows.shard(shared ? 0 : p);
    MutexLock lock(&shard.mutex);
    parts_[p].rows->EndSnapshot(parts_[p].end, base == nullptr);
    if (!marking) parts_[p].rows->StopMarking();
    if (shared) continue;
    if (!marking) {
      shard.removed.Forget();
    } else if (base == nullptr &&
               !shard.removed.Restore(std::move(removed_[p]))) {
      changes.ForgetBase();
    }
  }
  changes.EndSnapshot(base);
  std::vector<std::vector<int64_t>>().swap(removed_);
}

}  // namespace lodestar
