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
};

EmbeddingSnapshot::EmbeddingSnapshot(std::shared_ptr<EmbeddingStore> store)
    : store_(std::move(store)), source_(store_->snapshot_source()) {}

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
    if (k > 0 && sources[order[k - 1]].store == sources[order[k]].store) {
      return InvalidArgument("the snapshot lists one table twice.");
    }
    SnapshotSource& source = snapshots[order[k]]->source_;
    if (source.budget() != nullptr) return AlreadyRunning();
    locks.push_back(source.Locks());
    // Allocates before the gates stop optimizer steps.
    locks.back().Lock();
    const Status reserved = source.ReserveMarks();
    locks.back().Unlock();
    LODESTAR_RETURN_IF_ERROR(reserved);
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
      if (snapshots[i]->source_.budget() != nullptr) return AlreadyRunning();
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
  table_.dim = store_->dim();
  table_.type = store_->type();
  table_.whole = base.empty() || store_->base() != base;
  table_.optimizer = source_.optimizer();
  table_.step = source_.step().value();
  table_.seed = source_.initializer().seed();
  table_.salt = source_.initializer().salt();
  table_.own_step = source_.step().own();
  table_.shared_rows = source_.num_shared_rows();
  int64_t bytes = 0;
  for (RowStore* rows : source_.stores()) {
    const bool shared = parts_.size() == source_.num_shards();
    parts_.push_back(
        {rows,
         shared ? BlockKind::kSharedRows : BlockKind::kRows,
         {table_.layout(), table_.optimizer.slot_inits, rows->num_slots()}});
    ends_.push_back(rows->high_water());
    bytes += rows->row_bytes() + rows->slot_bytes();
  }
  source_.occurrence_counter().ForEachPending(
      table_.step, [&](int64_t id, uint32_t occurrences, int64_t last_seen) {
        mutex_.AssertHeld();
        pending_.push_back({id, last_seen, occurrences, 0});
      });
  sketch_ = source_.occurrence_counter().sketch();
  removed_.resize(source_.num_shards());
  image_limit_ = std::max(bytes / kImageShare, kLeastImageLimit);
}

void EmbeddingSnapshot::Start(const std::shared_ptr<ImageBudget>& budget) {
  budget_ = budget;
  source_.Begin(budget, &removed_);
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
    for (int64_t next = 0; next < ends_[p];) {
      block.Add(part.rows->SaveRows(ends_[p], part.format, block.left(), &next,
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
  for (size_t p = 0; p < parts_.size(); ++p) {
    parts_[p].rows->EndImages(ends_[p]);
  }
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
  source_.End(ends_, std::move(removed_), base);
}

}  // namespace lodestar
