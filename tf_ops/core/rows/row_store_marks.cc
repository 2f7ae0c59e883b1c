// RowStore: marks, and the rows of snapshots.

#include <cstring>
#include <new>
#include <thread>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {

bool RowStore::AddMarks(Segment* segment, int bits) {
  if (segment->marks != nullptr) return true;
  void* memory = arena_->Allocate(MarkBytes(int64_t{1} << bits));
  if (memory == nullptr) return false;
  segment->marks = static_cast<MarkWord*>(memory);
  return true;
}

Status RowStore::ReserveMarks() {
  if (images_ != nullptr) return Status();
  std::unique_ptr<RowImages> images(new (std::nothrow) RowImages());
  const bool reserved =
      images != nullptr && ForEachSegment([&](Segment* segment, int bits) {
        return AddMarks(segment, bits);
      });
  if (!reserved) {
    return ResourceExhausted("out of memory for the change marks of ",
                             capacity_, " rows.");
  }
  images_ = std::move(images);
  return Status();
}

void RowStore::StartMarking() {
  for (int64_t row = 0; row < high_water_; row += kMarkedRows) {
    mark(RowMark::kChanged, static_cast<uint32_t>(row))
        .store(0, std::memory_order_relaxed);
  }
  marking_.store(Marking::kChanges, std::memory_order_release);
}

// Save the image before setting the mark. A writer outside of the step gate may
// be preempted here while one snapshot ends and the next begins, which clears
// the marks. Once the row is marked, the next snapshot must include it: that
// snapshot waits for the row lock and saves the row as written.
void RowStore::MarkWritten(uint32_t row, Marking marking) {
  const auto save_image = [&] {
    if (GuardHolds(StoreGuard::kCopyOnWrite) && marking == Marking::kSnapshot &&
        Has(RowMark::kUnsaved, row)) {
      SaveImage(row);
    }
  };
  PauseAt(PausePoint::kBeforeMarking);
  if (GuardHolds(StoreGuard::kMarkAfterImage)) save_image();
  if (GuardHolds(StoreGuard::kChangeMarks) && !Has(RowMark::kChanged, row)) {
    Set(RowMark::kChanged, row);
  }
  PauseAt(PausePoint::kMarkWritten);
  if (!GuardHolds(StoreGuard::kMarkAfterImage)) save_image();
}

void RowStore::SaveImage(uint32_t row) {
  MutexLock lock(&images_->mutex());
  // The snapshot may have ended.
  if (!Has(RowMark::kUnsaved, row)) return;
  char* const record = images_->Add();
  if (record != nullptr) WriteRecord(row, images_->format(), record);
  Unset(RowMark::kUnsaved, row);
}

void RowStore::WriteRecord(uint32_t row, const SnapshotRowFormat& format,
                           char* out) const {
  const RowMeta* m = meta(row);
  const SnapshotRowLayout& layout = format.layout;
  const SnapshotRowHead head = {m->id.load(std::memory_order_relaxed),
                                m->last_seen.load(std::memory_order_relaxed),
                                m->frequency.load(std::memory_order_relaxed),
                                0};
  std::memcpy(out, &head, sizeof(head));
  const int64_t values_end = layout.values() + layout.value_bytes();
  std::memset(out + values_end, 0, layout.slot(0) - values_end);
  ReadValues(row, out + layout.values());
  for (int s = 0; s < format.slot_inits.size(); ++s) {
    char* const to = out + layout.slot(s);
    if (s < format.stored) {
      std::memcpy(to, slot(row, s), layout.slot_bytes());
    } else {
      std::fill_n(reinterpret_cast<float*>(to), layout.slot_width(),
                  format.slot_inits[s]);
    }
    std::memset(to + layout.slot_bytes(), 0,
                layout.slot(s + 1) - layout.slot(s) - layout.slot_bytes());
  }
}

void RowStore::ForgetUnsaved(uint32_t row) {
  if (IsUnsaved(row)) Unset(RowMark::kUnsaved, row);
}

void RowStore::MoveMarks(uint32_t from, uint32_t to) {
  if (IsUnsaved(from)) SaveImage(from);
  ForgetUnsaved(to);
  for (const RowMark kind : {RowMark::kChanged, RowMark::kTaken}) {
    if (Has(kind, from)) {
      Set(kind, to);
    } else {
      Unset(kind, to);
    }
    Unset(kind, from);
  }
}

bool RowStore::LockResident(uint32_t row) const {
  const RowMeta* const m = meta(row);
  for (int spins = 0;; ++spins) {
    uint32_t word = m->sequence.load(std::memory_order_acquire);
    if ((word & kResident) == 0) return false;
    if ((word & kHeld) == 0 &&
        m->sequence.compare_exchange_weak(word, word | kHeld,
                                          std::memory_order_acquire)) {
      return true;
    }
    if (spins > 64) std::this_thread::yield();
  }
}

void RowStore::BeginSnapshot(bool whole, const SnapshotRowFormat& format,
                             int64_t chunk_bytes, ImageBudget* budget) {
  {
    MutexLock lock(&images_->mutex());
    images_->Start(format, chunk_bytes, budget);
  }
  for (int64_t row = 0; row < high_water_; row += kMarkedRows) {
    const uint32_t first = static_cast<uint32_t>(row);
    MarkWord& word = mark(RowMark::kChanged, first);
    const uint64_t changed = word.load(std::memory_order_relaxed) == 0
                                 ? 0
                                 : word.exchange(0, std::memory_order_relaxed);
    mark(RowMark::kTaken, first).store(changed, std::memory_order_relaxed);
    uint64_t unsaved = changed;
    if (whole) {
      const int64_t rows = high_water_ - row;
      unsaved = rows < kMarkedRows ? (uint64_t{1} << rows) - 1 : ~uint64_t{0};
    }
    mark(RowMark::kUnsaved, first).store(unsaved, std::memory_order_release);
  }
  marking_.store(Marking::kSnapshot, std::memory_order_release);
}

int64_t RowStore::SaveRows(int64_t end, const SnapshotRowFormat& format,
                           int64_t most, int64_t* next, char* out) {
  // Changed rows are scattered, so prefetch this many at a time.
  constexpr int kRows = 16;
  uint32_t rows[kRows];
  int64_t count = 0;
  while (*next < end && count < most) {
    int found = 0;
    while (*next < end && found < std::min<int64_t>(kRows, most - count)) {
      const uint32_t first = static_cast<uint32_t>(*next);
      // Ignores bits before `first`.
      const uint64_t bits =
          mark(RowMark::kUnsaved, first).load(std::memory_order_acquire) &
          ~(BitOf(first) - 1);
      const int64_t word = *next / kMarkedRows * kMarkedRows;
      if (bits == 0) {
        *next = word + kMarkedRows;
        continue;
      }
      const uint32_t row = static_cast<uint32_t>(word) + __builtin_ctzll(bits);
      *next = int64_t{row} + 1;
      PrefetchWithSlots(row, meta(row), format.stored);
      rows[found++] = row;
    }
    for (int i = 0; i < found; ++i) {
      const uint32_t row = rows[i];
      // A row that is not resident was not resident when the snapshot began
      // either, because whoever frees a row saves its image first.
      const bool held = LockResident(row);
      if (held && Has(RowMark::kUnsaved, row)) {
        WriteRecord(row, format, out + count * format.layout.bytes());
        ++count;
      }
      Unset(RowMark::kUnsaved, row);
      if (held) UnlockUnchanged(row);
    }
  }
  *next = std::min(*next, end);
  return count;
}

void RowStore::EndImages(int64_t end) {
  RowImages::Chunk* chunks;
  {
    MutexLock lock(&images_->mutex());
    for (int64_t row = 0; row < end; row += kMarkedRows) {
      MarkWord& word = mark(RowMark::kUnsaved, static_cast<uint32_t>(row));
      if (word.load(std::memory_order_relaxed) != 0) {
        word.store(0, std::memory_order_release);
      }
    }
    chunks = images_->Stop();
  }
  RowImages::Release(chunks);
}

void RowStore::EndSnapshot(int64_t end, bool failed) {
  for (int64_t row = 0; row < end; row += kMarkedRows) {
    const uint32_t first = static_cast<uint32_t>(row);
    MarkWord& word = mark(RowMark::kTaken, first);
    const uint64_t taken = word.load(std::memory_order_relaxed);
    if (taken == 0) continue;
    if (failed) {
      mark(RowMark::kChanged, first).fetch_or(taken, std::memory_order_relaxed);
    }
    word.store(0, std::memory_order_relaxed);
  }
  marking_.store(Marking::kChanges, std::memory_order_release);
}

}  // namespace lodestar
