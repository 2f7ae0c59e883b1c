// RowStore: the rows of one shard, in segments that never move. Reads and
// updates of resident rows take no mutex: each row has a sequence word that is
// both a seqlock for readers and a lock for writers. Compaction may move a row
// or return its segment while a late reader still holds its address, so readers
// and writers must confirm the id (Read, Lock). docs/internals/storage.md
// describes the layout, the protocol and the marks of snapshots.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_STORE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_STORE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/rows/row_images.h"
#include "tf_ops/core/rows/row_marks.h"
#include "tf_ops/core/rows/row_type.h"
#include "tf_ops/core/rows/slot_shape.h"
#include "tf_ops/core/rows/stored_row.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

struct RowMeta {
  std::atomic<int64_t> id;
  std::atomic<int64_t> last_seen;
  mutable std::atomic<uint32_t> sequence;  // readers lock it too
  std::atomic<uint32_t> frequency;         // occurrences of the id, decayed
};

// Copies row data that another thread may be accessing; the sequence word tells
// whether the copy is consistent. Requires: `row` is aligned to 8 bytes, or to
// `bytes` if less, and `bytes` is even.
void CopyRowOut(const void* row, int64_t bytes, void* out);
void CopyRowIn(const void* in, int64_t bytes, void* row);

// Copies a row of T, converted to or from float. Requires the row lock.
template <typename T>
inline void CopyComputedOut(const void* row, int dim, float* out) {
  if constexpr (std::is_same_v<T, float>) {
    CopyRowOut(row, dim * sizeof(T), out);
  } else {
    ToComputeRow(static_cast<const T*>(row), dim, out);
  }
}
template <typename T>
inline void CopyComputedIn(const float* in, int dim, void* row) {
  if constexpr (std::is_same_v<T, float>) {
    CopyRowIn(in, dim * sizeof(T), row);
  } else {
    constexpr int kPart = 256;
    T rounded[kPart];
    for (int c = 0; c < dim; c += kPart) {
      const int count = std::min(kPart, dim - c);
      RoundRow(in + c, count, rounded);
      CopyRowIn(rounded, count * sizeof(T), static_cast<T*>(row) + c);
    }
  }
}

class RowStore {
 public:
  static constexpr int kMaxSlots = 4;
  // A writer that holds the row lock may use plain stores, and a reader plain
  // loads, because the reader discards inconsistent data. ThreadSanitizer needs
  // atomic ones.
#ifdef __SANITIZE_THREAD__
  static constexpr bool kPlainAccess = false;
#else
  static constexpr bool kPlainAccess = true;
#endif

  RowStore(int dim, Arena* arena, uint32_t number = 0,
           RowType type = RowType::kFloat32,
           RowStorage storage = RowStorage::kSame)
      : dim_(dim),
        type_(type),
        stored_(dim, type, storage),
        first_((1 + number % kStarts) << kSegmentBits),
        bare_bytes_(sizeof(RowMeta) + RoundUp(stored_.bytes())),
        arena_(arena) {}
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  RowMeta* meta(uint32_t row) { return MetaOf(row); }
  const RowMeta* meta(uint32_t row) const { return MetaOf(row); }
  // The row's values, as stored.
  const StoredRow& stored() const { return stored_; }
  void* values(uint32_t row) { return meta(row) + 1; }
  const void* values(uint32_t row) const { return meta(row) + 1; }
  // A slot, in the type that rows are computed in. The slots of a row are
  // consecutive. Requires: it is one of slots().
  void* slot(uint32_t row, int s) { return SlotOf(row, s); }
  const void* slot(uint32_t row, int s) const { return SlotOf(row, s); }
  // Copies the row's values in the store's type. WriteValues requires the row
  // lock, unless the row is not visible yet; ReadValues requires the row lock.
  void WriteValues(uint32_t row, const void* values) {
    char* const to = static_cast<char*>(this->values(row));
    stored_.Encode(values, [to](const void* part, int64_t bytes, int64_t at) {
      CopyRowIn(part, bytes, to + at);
    });
  }
  void ReadValues(uint32_t row, void* values) const {
    CopyValuesOut(meta(row), values);
  }
  // Prefetches the parts of a row that a lookup reads. `width`: bytes of its
  // stored values.
  template <typename Width>
  static void Prefetch(const RowMeta* meta, Width width) {
    PrefetchRow<0>(meta, int64_t{sizeof(RowMeta)} + width);
  }
  // Prefetches the parts of a row that an update writes.
  void PrefetchWithSlots(uint32_t row, const RowMeta* meta,
                         int num_slots) const {
    PrefetchRow<1>(meta, bare_bytes_);
    if (num_slots > 0) PrefetchRow<1>(slot(row, 0), num_slots * slot_bytes_);
    PrefetchMarks(row);
  }
  void PrefetchMarks(uint32_t row) const {
    if (marking()) __builtin_prefetch(&mark(RowMark::kChanged, row), 1);
  }

  // Thread-safe methods.

  // Copies the row if it holds `id`; else returns false.
  bool Read(uint32_t row, int64_t id, void* out) const {
    return Read(meta(row), id, out);
  }
  bool Read(const RowMeta* meta, int64_t id, void* out) const;
  // The same, compiled for the width in bytes that VisitWidth passes: a loop
  // over rows spends a third less time in it. Requires: an integer, or
  // stored().is_same().
  template <typename Width>
  bool Read(const RowMeta* meta, int64_t id, Width width, void* out) const {
    if constexpr (kPlainAccess && !std::is_integral_v<Width> &&
                  GuardHolds(StoreGuard::kSequenceWord)) {
      const uint32_t before = meta->sequence.load(std::memory_order_acquire);
      if ((before & (kHeld | kResident)) == kResident &&
          meta->id.load(std::memory_order_relaxed) == id) {
        std::memcpy(out, meta + 1, width);
        PauseAt(PausePoint::kReadRow);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (meta->sequence.load(std::memory_order_relaxed) == before) {
          return true;
        }
      }
    }
    return Read(meta, id, out);
  }

  // Reads the row's frequency if it holds `id`; else returns false.
  static bool ReadFrequency(const RowMeta* meta, int64_t id,
                            uint32_t* frequency);

  // Acquires the row lock, waiting if necessary. Returns false, without the
  // lock, if the row does not hold `id`.
  static bool Lock(const RowMeta* meta, int64_t id) {
    uint32_t word = meta->sequence.load(std::memory_order_acquire);
    if ((word & (kResident | kHeld)) != kResident ||
        !meta->sequence.compare_exchange_strong(word, word | kHeld,
                                                std::memory_order_acquire)) {
      return WaitAndLock(meta, id);
    }
    return IsHeldFor(meta, id, word);
  }
  static void Unlock(RowMeta* meta) { Release(meta, kResident); }
  bool Lock(uint32_t row, int64_t id) const { return Lock(meta(row), id); }
  void Unlock(uint32_t row) { Unlock(meta(row)); }
  // Unlocks a row that was only read.
  void UnlockUnchanged(uint32_t row) const {
    meta(row)->sequence.store(WordOf(row), std::memory_order_release);
  }
  // Returns a version that changes on every Unlock and is unique per row.
  // Requires the row lock.
  int64_t Version(uint32_t row) const {
    return static_cast<int64_t>((uint64_t{row} << 32) | WordOf(row));
  }
  // Call before writing the value, a slot or the metadata of a resident row.
  // Requires the row lock.
  void BeforeWrite(uint32_t row) {
    const Marking marking = marking_.load(std::memory_order_acquire);
    if (marking == Marking::kNone ||
        (marking == Marking::kChanges && Has(RowMark::kChanged, row))) {
      return;
    }
    MarkWritten(row, marking);
  }
  // Returns true if the running snapshot still needs this row as it is. A
  // caller that holds the shard's mutex must then take the row lock to write.
  // Requires the shard's mutex.
  bool IsUnsaved(uint32_t row) const {
    return marking_.load(std::memory_order_acquire) == Marking::kSnapshot &&
           Has(RowMark::kUnsaved, row);
  }
  bool marking() const {
    return marking_.load(std::memory_order_acquire) != Marking::kNone;
  }
  // Requires the row lock.
  void WriteRecord(uint32_t row, const SnapshotRowFormat& format,
                   char* out) const;

  // Methods for one thread at a time. Requires the shard's mutex.

  // Makes room for `count` Allocate calls. Returns ResourceExhausted if out of
  // memory.
  Status Reserve(int64_t count);
  // Allocates segments for `rows` rows in total.
  Status ReserveCapacity(int64_t rows);
  // Returns a row that readers do not treat as resident until Publish.
  uint32_t Allocate();
  // Makes a written row resident under `id`.
  void Publish(uint32_t row, int64_t id, int64_t last_seen, uint32_t frequency);
  // Readers stop treating the row as resident. Remove it from the index next.
  void Free(uint32_t row);
  // Frees all rows and keeps their memory.
  void FreeAll();

  // Moves rows from the end into the places of removed ones, searching from row
  // `*low` on (initially 0). Calls moved(from, to) while both rows are resident
  // with the same content and `from` is locked. Returns true when done, and
  // false after about as much work as moving `most` rows.
  template <typename Moved>
  bool Compact(int64_t most, uint32_t* low, const Moved& moved);
  // Returns the last segment to the system. Returns false if it holds a row.
  bool ReleaseSegment();

  // Allocates optimizer slots for all existing and future rows. Returns
  // ResourceExhausted if out of memory; existing slots stay.
  Status ReserveSlots(const SlotShape& slots);
  // Replaces the slots of all rows by slots of this shape, set to `inits`.
  // Requires: ReserveSlots; no other thread uses existing slots.
  void AttachSlots(const SlotShape& slots, Span<const float> inits);
  // Sets all values of slot `s` of a row.
  void FillSlot(uint32_t row, int s, float init);
  const SlotShape& slots() const { return slots_; }
  // Of one slot of a row.
  int64_t slot_width() const { return slots_.Width(dim_); }
  int64_t bytes_per_slot() const { return slot_bytes_; }

  // Allocates marks for all existing and future rows. Returns ResourceExhausted
  // if out of memory.
  Status ReserveMarks();
  // Starts marking changed rows, with no row changed yet. Requires:
  // ReserveMarks.
  void StartMarking();
  // Stops marking rows.
  void StopMarking() {
    marking_.store(Marking::kNone, std::memory_order_release);
  }

  // Begins a snapshot of all resident rows, or of the changed ones, and clears
  // the changed marks. From here on writers save images of unsaved rows, in
  // chunks of about `chunk_bytes` and in the given format. The budget must
  // outlive the images. Requires: marking() and no running snapshot.
  void BeginSnapshot(bool whole, const SnapshotRowFormat& format,
                     int64_t chunk_bytes, ImageBudget* budget);
  // Writes up to `most` records of rows that are not saved yet, starting at row
  // *next; `end` is the high-water mark when the snapshot began. Returns the
  // number of records and sets *next, to `end` when done. Thread-safe.
  int64_t SaveRows(int64_t end, const SnapshotRowFormat& format, int64_t most,
                   int64_t* next, char* out);
  // Stops keeping images and drops the existing ones. Thread-safe.
  void EndImages(int64_t end);
  // If `failed`, rows that were changed when the snapshot began are marked
  // changed again. Call after EndImages.
  void EndSnapshot(int64_t end, bool failed);
  // Requires: ReserveMarks.
  RowImages* images() const { return images_.get(); }

  // Rows [0, high_water) were allocated at least once.
  uint32_t high_water() const { return high_water_; }
  int64_t live() const { return live_; }
  bool resident(uint32_t row) const {
    return (meta(row)->sequence.load(std::memory_order_acquire) & kResident) !=
           0;
  }
  bool Holds(uint32_t row, int64_t id) const { return Holds(meta(row), id); }
  static bool Holds(const RowMeta* meta, int64_t id) {
    return meta->id.load(std::memory_order_relaxed) == id &&
           (meta->sequence.load(std::memory_order_acquire) & kResident) != 0;
  }
  int64_t capacity() const { return capacity_; }
  int64_t row_bytes() const {
    return capacity_ * bare_bytes_ +
           (images_ == nullptr ? 0 : MarkBytes(capacity_));
  }
  int64_t slot_bytes() const;

 private:
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kResident = 2;
  static constexpr uint32_t kWrite = 4;
  static constexpr uint32_t kNone = 0xffffffff;
  static constexpr int kLevels = 22;  // row numbers fit LeafIndex

  static constexpr int kSegmentBits = 10;  // of the smallest segment
  static constexpr int kSegmentsBits = 6;  // at most, of a level's segments
  static constexpr uint32_t kStarts = 16;

  // One cache line.
  struct alignas(64) Segment {
    char* rows;
    int64_t stride;  // bytes from row to row
    // The slots of row 0, inside the rows or in an array of their own, and the
    // bytes from row to row.
    char* slots;
    int64_t slots_stride;
    int64_t slots_room;  // bytes for the slots of one row
    // Reserved memory for larger slots, and its bytes per row.
    char* spare;
    int64_t spare_room;
    MarkWord* marks;  // grouped by kind; null until ReserveMarks
  };
  struct Address {
    int level;
    int bits;  // of a segment of the level
    uint32_t segment;
    int64_t offset;
  };

  Address AddressOf(uint32_t row) const {
    const uint64_t number = uint64_t{row} + first_;
    const int number_bits = 63 - __builtin_clzll(number);
    const int level = number_bits - kSegmentBits;
    const int bits =
        kSegmentBits + (level > kSegmentsBits ? level - kSegmentsBits : 0);
    const uint64_t within = number ^ (uint64_t{1} << number_bits);
    return {level, bits, static_cast<uint32_t>(within >> bits),
            static_cast<int64_t>(within & ((uint64_t{1} << bits) - 1))};
  }
  RowMeta* MetaOf(uint32_t row) const {
    const Address address = AddressOf(row);
    const Segment& in = segment(address);
    return reinterpret_cast<RowMeta*>(in.rows + address.offset * in.stride);
  }
  void* SlotOf(uint32_t row, int s) const {
    const Address address = AddressOf(row);
    const Segment& in = segment(address);
    return in.slots + address.offset * in.slots_stride + s * slot_bytes_;
  }
  Segment& segment(const Address& address) const {
    return levels_[address.level].load(
        std::memory_order_acquire)[address.segment];
  }
  // Links of a removed row in the free list.
  struct FreeLinks {
    uint32_t previous;
    uint32_t next;
  };
  FreeLinks free_links(uint32_t row) const {
    const uint64_t word =
        static_cast<uint64_t>(meta(row)->id.load(std::memory_order_relaxed));
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)};
  }
  void SetFreeLinks(uint32_t row, FreeLinks links) {
    const uint64_t word = (uint64_t{links.previous} << 32) | links.next;
    meta(row)->id.store(static_cast<int64_t>(word), std::memory_order_relaxed);
  }
  // kSnapshot: marks changes and saves images of rows before they change.
  enum class Marking { kNone, kChanges, kSnapshot };

  // Returns the word that holds the row's mark. Requires: ReserveMarks.
  MarkWord& mark(RowMark kind, uint32_t row) const {
    const Address address = AddressOf(row);
    const int64_t words = (int64_t{1} << address.bits) / kMarkedRows;
    return segment(address)
        .marks[static_cast<int>(kind) * words + address.offset / kMarkedRows];
  }
  static uint64_t BitOf(uint32_t row) {
    return uint64_t{1} << (row % kMarkedRows);
  }
  bool Has(RowMark kind, uint32_t row) const {
    return (mark(kind, row).load(std::memory_order_acquire) & BitOf(row)) != 0;
  }
  void Set(RowMark kind, uint32_t row) {
    mark(kind, row).fetch_or(BitOf(row), std::memory_order_relaxed);
  }
  void Unset(RowMark kind, uint32_t row) {
    mark(kind, row).fetch_and(~BitOf(row), std::memory_order_release);
  }
  // Rounds up to whole words.
  static constexpr int64_t RoundUp(int64_t bytes) {
    return (bytes + 7) / 8 * 8;
  }
  static int64_t MarkBytes(int64_t rows) {
    return rows / kMarkedRows * kRowMarks *
           static_cast<int64_t>(sizeof(MarkWord));
  }
  void MarkWritten(uint32_t row, Marking marking);
  // Requires the row lock.
  void SaveImage(uint32_t row);
  // Call when a free row is allocated: the snapshot does not need it.
  void ForgetUnsaved(uint32_t row);
  void MoveMarks(uint32_t from, uint32_t to);
  // Locks a resident row, whichever id it holds. Returns false, without the
  // lock, if it is not resident.
  bool LockResident(uint32_t row) const;
  bool AddMarks(Segment* segment, int bits);
  // Publishes the row without marking it as changed.
  void PublishUnmarked(uint32_t row, int64_t id, int64_t last_seen,
                       uint32_t frequency);

  void LinkFree(uint32_t row);
  void UnlinkFree(uint32_t row);
  // Copies a row and publishes the copy; `from` stays locked.
  void Copy(uint32_t from, uint32_t to);

  // Returns the word of a locked row without the held bit.
  uint32_t WordOf(uint32_t row) const {
    return meta(row)->sequence.load(std::memory_order_relaxed) & ~kHeld;
  }
  static uint32_t Hold(const RowMeta* meta);
  static void Release(RowMeta* meta, uint32_t resident) {
    const uint32_t word = meta->sequence.load(std::memory_order_relaxed);
    meta->sequence.store(((word & ~(kHeld | kResident)) + kWrite) | resident,
                         std::memory_order_release);
  }
  // Returns true if a row just locked with `word` holds `id`; else unlocks it.
  static bool IsHeldFor(const RowMeta* meta, int64_t id, uint32_t word) {
    // Keeps the data stores that follow after the store of the held bit.
    std::atomic_thread_fence(std::memory_order_release);
    if (meta->id.load(std::memory_order_relaxed) == id) return true;
    meta->sequence.store(word, std::memory_order_release);
    return false;
  }
  static bool WaitAndLock(const RowMeta* meta, int64_t id);
  void CopyValuesOut(const RowMeta* meta, void* values) const;
  bool AddSegment();
  // Calls visit(segment, bits) for each segment of `capacity_` until it returns
  // false; then returns false.
  template <typename Visit>
  bool ForEachSegment(const Visit& visit) const;
  // Makes room for `bytes` of slots per row, in place or as spare.
  bool AddSlots(Segment* segment, int bits, int64_t bytes);
  // Uses the spare memory if the slots have less than `bytes` per row.
  void UseSpare(Segment* segment, int bits, int64_t bytes) const;

  const int dim_;
  const RowType type_;
  const StoredRow stored_;
  const uint32_t first_;      // position of row 0 among the levels
  const int64_t bare_bytes_;  // of a row with metadata and without slots
  Arena* const arena_;
  std::atomic<Segment*> levels_[kLevels] = {};
  std::atomic<Marking> marking_{Marking::kNone};
  int64_t capacity_ = 0;
  uint32_t high_water_ = 0;
  uint32_t made_ = 0;  // rows with metadata
  int64_t live_ = 0;
  uint32_t free_head_ = kNone;
  uint32_t first_word_ = 0;     // for rows of returned segments
  SlotShape slots_;             // of the current optimizer
  int64_t slot_bytes_ = 0;      // of one of its slots
  int64_t reserved_bytes_ = 0;  // of a row's slots in new segments
  int64_t used_bytes_ = 0;      // of a row's slots that any optimizer ever used
  std::unique_ptr<RowImages> images_;  // null until ReserveMarks
};

template <typename Visit>
bool RowStore::ForEachSegment(const Visit& visit) const {
  for (int64_t row = 0; row < capacity_;) {
    const Address address = AddressOf(static_cast<uint32_t>(row));
    if (!visit(&segment(address), address.bits)) return false;
    row += int64_t{1} << address.bits;
  }
  return true;
}

template <typename Moved>
bool RowStore::Compact(int64_t most, uint32_t* low, const Moved& moved) {
  constexpr int64_t kMove = 16;  // cost in rows looked at
  for (int64_t work = most * kMove; work > 0; --work) {
    if (*low >= high_water_) return true;
    const uint32_t last = high_water_ - 1;
    if (!resident(last)) {
      UnlinkFree(last);
      --high_water_;
      work -= kMove / 2;
    } else if (resident(*low)) {
      ++*low;
    } else {
      UnlinkFree(*low);
      Copy(last, *low);
      moved(last, *low);
      Release(meta(last), 0);
      --high_water_;
      ++*low;
      work -= kMove;
    }
  }
  return false;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_ROW_STORE_H_
