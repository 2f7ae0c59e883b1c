#include "tf_ops/core/snapshot/embedding_snapshot.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <new>
#include <utility>

#include "tf_ops/core/snapshot/snapshot_table.h"

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

int64_t ImageLimit(const SnapshotState& state) {
  return std::max(state.bytes / kImageShare, kLeastImageLimit);
}

BlockKind KindOf(const SnapshotSource& source, size_t part) {
  return source.has_shared_rows(part) ? BlockKind::kSharedRows
                                      : BlockKind::kRows;
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

EmbeddingSnapshot::~EmbeddingSnapshot() { Abort(); }

Status EmbeddingSnapshot::Begin(
    Span<const Source> sources, const StepGates& gates,
    std::vector<std::unique_ptr<EmbeddingSnapshot>>* out) try {
  std::vector<std::unique_ptr<EmbeddingSnapshot>> snapshots;
  std::vector<std::unique_lock<Mutex>> begun;
  // All callers lock tables in the same order, to avoid deadlocks.
  std::vector<int64_t> order;
  for (int64_t i = 0; i < sources.size(); ++i) {
    std::unique_ptr<SnapshotSource> source;
    LODESTAR_RETURN_IF_ERROR(
        sources[i].table->MakeSnapshotSource(sources[i].on, &source));
    std::unique_ptr<EmbeddingSnapshot> snapshot(
        new EmbeddingSnapshot(sources[i].table, std::move(source)));
    snapshots.push_back(std::move(snapshot));
    begun.emplace_back(snapshots.back()->mutex_);
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::less<>()(sources[a].table.get(), sources[b].table.get());
  });
  std::vector<SnapshotSource*> ordered;
  for (size_t k = 0; k < order.size(); ++k) {
    if (k > 0 && sources[order[k - 1]].table == sources[order[k]].table) {
      return InvalidArgument("the snapshot lists one table twice.");
    }
    ordered.push_back(snapshots[order[k]]->source_.get());
    if (ordered.back()->budget() != nullptr) return AlreadyRunning();
    // Allocates before the gates stop optimizer steps.
    LODESTAR_RETURN_IF_ERROR(ordered.back()->Reserve());
  }
  const auto flip = [&]() -> Status {
    struct Unlocker {
      const std::vector<SnapshotSource*>& sources;
      ~Unlocker() {
        for (SnapshotSource* source : sources) source->Unlock();
      }
    };
    for (SnapshotSource* source : ordered) source->Lock();
    const Unlocker unlocker = {ordered};
    for (const SnapshotSource* source : ordered) {
      if (source->budget() != nullptr) return AlreadyRunning();
    }
    std::shared_ptr<ImageBudget> budget;
    try {
      int64_t limit = 0;
      for (int64_t i : order) {
        SnapshotState* const state = &snapshots[i]->state_;
        LODESTAR_RETURN_IF_ERROR(
            snapshots[i]->source_->Describe(sources[i].base, state));
        limit += ImageLimit(*state);
      }
      budget = std::make_shared<ImageBudget>(gates, limit);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("out of memory for the pending ids.");
    }
    // No error is possible from here on.
    for (int64_t i : order) {
      EmbeddingSnapshot* const snapshot = snapshots[i].get();
      snapshot->mutex_.AssertHeld();
      snapshot->budget_ = budget;
      snapshot->source_->Begin(budget, kMostChunkBytes,
                               ImageLimit(snapshot->state_) / 4);
      snapshot->begun_ = true;
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
  source_->EndImages();
  return status;
}

Status EmbeddingSnapshot::WriteAll(SnapshotFileWriter* file) {
  const std::string table = EncodeTable(state_.table);
  LODESTAR_RETURN_IF_ERROR(
      file->Append(BlockKind::kTable, 1, table.data(), table.size()));
  if (!state_.table.whole) {
    for (const std::vector<int64_t>& ids : source_->removed()) {
      LODESTAR_RETURN_IF_ERROR(AppendAll(file, BlockKind::kRemoved, ids));
    }
  }
  LODESTAR_RETURN_IF_ERROR(
      AppendAll(file, BlockKind::kPending, state_.pending));
  std::vector<SnapshotPending>().swap(state_.pending);
  LODESTAR_RETURN_IF_ERROR(AppendAll(file, BlockKind::kSketch, state_.sketch));
  std::vector<uint8_t>().swap(state_.sketch);
  RecordBuffer block(file, state_.table.record_bytes());
  for (size_t p = 0; p < source_->num_parts(); ++p) {
    for (int64_t next = 0; next < source_->num_rows(p);) {
      int64_t count = 0;
      LODESTAR_RETURN_IF_ERROR(
          source_->SaveRows(p, block.left(), &next, block.next(), &count));
      block.Add(count);
      if (block.left() == 0) {
        LODESTAR_RETURN_IF_ERROR(block.Flush(KindOf(*source_, p)));
        LODESTAR_RETURN_IF_ERROR(WriteImages(file, false));
      }
    }
    if (p + 1 == source_->num_parts() ||
        KindOf(*source_, p + 1) != KindOf(*source_, p)) {
      LODESTAR_RETURN_IF_ERROR(block.Flush(KindOf(*source_, p)));
    }
  }
  return WriteImages(file, true);
}

Status EmbeddingSnapshot::WriteImages(SnapshotFileWriter* file, bool all) {
  if (aborted_.load(std::memory_order_relaxed)) {
    return FailedPrecondition("the snapshot was aborted.");
  }
  if (!all && budget_->bytes() == 0) return Status();
  for (size_t p = 0; p < source_->num_parts(); ++p) {
    RowImages::Chunk* chunks = nullptr;
    Status status = source_->TakeImages(p, all || budget_->tight(), &chunks);
    while (chunks != nullptr) {
      RowImages::Chunk* const chunk = chunks;
      chunks = std::exchange(chunk->next, nullptr);
      if (status.ok()) {
        status =
            file->Append(KindOf(*source_, p), chunk->count, chunk->records(),
                         chunk->count * state_.table.record_bytes());
      }
      RowImages::Release(chunk);
    }
    LODESTAR_RETURN_IF_ERROR(status);
  }
  return Status();
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
  source_->EndImages();
  source_->End(base);
}

}  // namespace lodestar
