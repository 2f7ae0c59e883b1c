// EmbeddingStore::Compact, and how others find a row that it has moved.

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {
namespace {

// What is done while a shard is locked once: about a millisecond.
constexpr int64_t kRowsAtOnce = 4096;
constexpr int kSegmentsAtOnce = 16;
constexpr int kLeavesAtOnce = 8;

// True: there are no more.
template <typename Rows>
bool ReleaseSegments(Rows* rows) {
  for (int i = 0; i < kSegmentsAtOnce; ++i) {
    if (!rows->ReleaseSegment()) return true;
  }
  return false;
}

// *tag is 0 after the last one.
template <typename Index>
Status CompactLeaves(Index* index, uint32_t* tag) {
  for (int i = 0; i < kLeavesAtOnce; ++i) {
    LODESTAR_RETURN_IF_ERROR(index->CompactLeaf(tag));
    if (*tag == 0) break;
  }
  return Status();
}

}  // namespace

int64_t EmbeddingStore::BytesOf(const Shard& shard) {
  int64_t bytes =
      shard.index.bytes() + shard.rows.row_bytes() + shard.rows.slot_bytes();
  if (shard.order != nullptr) bytes += shard.order->bytes();
  if (shard.pending != nullptr) bytes += shard.pending->bytes();
  return bytes;
}

uint32_t EmbeddingStore::FindRow(const Shard& shard, uint32_t tag, int64_t id) {
  while (true) {
    const uint64_t moves = shard.moves.load(std::memory_order_acquire);
    LeafIndex::Cursor cursor = shard.index.Begin(tag);
    bool any = false;
    uint32_t row;
    while ((row = LeafIndex::Next(tag, &cursor)) != LeafIndex::kNoRow) {
      if (shard.rows.Holds(row, id)) return row;
      any = true;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!any || shard.moves.load(std::memory_order_relaxed) == moves) {
      return row;
    }
  }
}

bool EmbeddingStore::LockAgain(int64_t id, RowRef* ref) const {
  const Shard& shard = *shards_[ref->shard];
  do {
    ref->row = FindRow(shard, PlaceOf(id).tag, id);
    if (!ref->found()) return false;
    ref->meta = shard.rows.meta(ref->row);
  } while (!RowStore::Lock(ref->meta, id));
  return true;
}

void EmbeddingStore::LookAgain(Span<const int64_t> ids,
                               Span<RowRef> refs) const {
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (!refs[i].found()) continue;
    if (RowStore::Holds(refs[i].meta, ids[i])) continue;
    const uint32_t shard = refs[i].shard;
    const uint32_t row = FindRow(*shards_[shard], PlaceOf(ids[i]).tag, ids[i]);
    refs[i] = row == LeafIndex::kNoRow ? RowRef{shard} : RefTo(shard, row);
  }
}

Status EmbeddingStore::Compact(int64_t* returned) {
  *returned = 0;
  for (const auto& pointer : shards_) {
    Shard& shard = *pointer;
    // part(), under the lock, until it says that it was the last.
    const auto in_parts = [&](const auto& part) {
      while (true) {
        ImageBudget::Global().Wait();
        {
          std::lock_guard<std::mutex> lock(shard.mutex);
          const int64_t before = BytesOf(shard);
          const bool last = part();
          *returned += before - BytesOf(shard);
          if (last) return;
        }
        // A mutex goes to who asks first, not to who has waited.
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    };
    uint32_t low = 0;
    in_parts([&] {
      return shard.rows.Compact(
          kRowsAtOnce, &low, [&](uint32_t from, uint32_t to) {
            const int64_t id =
                shard.rows.meta(to)->id.load(std::memory_order_relaxed);
            shard.index.Move(PlaceOf(id).tag, from, to);
            if (shard.order != nullptr) shard.order->Move(from, to);
            shard.moves.fetch_add(1, std::memory_order_release);
            // `from` is gone only after it was told.
            std::atomic_thread_fence(std::memory_order_release);
          });
    });
    in_parts([&] { return ReleaseSegments(&shard.rows); });
    in_parts([&] {
      if (shard.order != nullptr) shard.order->Shrink(shard.rows.capacity());
      return true;
    });
    uint32_t tag = 0;
    Status status;
    in_parts([&] {
      status = CompactLeaves(&shard.index, &tag);
      return !status.ok() || tag == 0;
    });
    LODESTAR_RETURN_IF_ERROR(status);
    if (!UsesAdmission()) continue;
    low = 0;
    in_parts([&] { return shard.pending->Compact(kRowsAtOnce, &low); });
    in_parts([&] { return ReleaseSegments(shard.pending.get()); });
    tag = 0;
    in_parts([&] {
      status = CompactLeaves(shard.pending.get(), &tag);
      return !status.ok() || tag == 0;
    });
    LODESTAR_RETURN_IF_ERROR(status);
  }
  epochs_.Collect();
  return Status();
}

}  // namespace lodestar
