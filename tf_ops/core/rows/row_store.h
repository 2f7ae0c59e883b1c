// RowStore: the rows of one shard, in segments that never move.
//
//   segment   rows     [ id, last seen, sequence, frequency, D numbers,
//                        slots of D numbers each ]...
//             slot s   [ D numbers ]...   if it came after the segment
//
// What a lookup needs of a row is in one place, and so is what an update needs
// of one that is made after the optimizer came. Segments hang in levels, of
// which each holds as many rows as all before it and one more segment: 1024
// rows a segment, from 65536 rows on a sixty-fourth of its level. So a row's
// address is two loads away for ever, of a table that stays in the first
// caches, and growth copies nothing. Stores of one table that grow alike begin
// at different places of the first levels, so that they do not all come to the
// end of a segment, and touch memory for the first time, in one call.
//
// The sequence word is a seqlock: bit 0 is held by a writer, bit 1 says that
// the row is resident, the other bits count writes. A reader copies between
// two equal even words; it never waits for a lock of a table. Values are
// written with atomic stores; optimizer slots are touched only by who holds
// bit 0.
//
// Removed rows are linked to each other through their metadata. Compaction
// moves the last rows to their places and gives segments back to the system;
// these stay readable, as rows that are not resident, for who still looks for a
// row there. Three things keep such a reader or writer from being deceived:
//  - only a resident row is held, except by who has the shard's mutex; so no
//    one writes to a segment that is given back, or puts a word back into it
//    that he took before;
//  - a moved row is resident in its new place before it is gone from the old;
//  - the words of a segment that is used again begin above all those that it
//    ever had, so a reader never sees the word that he began with again.
//
// A table that takes snapshots has marks beside its rows (row_marks.h). Who
// writes to a resident row says so first, while he holds its word: so a delta
// knows what has changed, and a running snapshot that has not saved the row yet
// gets its image as it was.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_ROW_STORE_H_
#define LODESTAR_TF_OPS_CORE_ROWS_ROW_STORE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/rows/row_images.h"
#include "tf_ops/core/rows/row_marks.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

struct RowMeta {
  std::atomic<int64_t> id;
  std::atomic<int64_t> last_seen;
  mutable std::atomic<uint32_t> sequence;  // who only reads holds it, too
  std::atomic<uint32_t> frequency;         // sightings of the row, decayed
};

// Reads and writes of row data that another thread may be doing the opposite
// to; the sequence word tells whether the copy holds together. `row` starts on
// 8 bytes; `bytes` is even.
void CopyRowOut(const void* row, int64_t bytes, void* out);
void CopyRowIn(const void* in, int64_t bytes, void* row);

// The same with the numbers of a row of T as they are computed with, by who
// holds the row's word.
template <typename T>
inline void CopyComputedOut(const void* row, int dim, ComputeOf<T>* out) {
  if constexpr (std::is_same_v<T, ComputeOf<T>>) {
    CopyRowOut(row, dim * sizeof(T), out);
  } else {
    ToComputeRow(static_cast<const T*>(row), dim, out);
  }
}
template <typename T>
inline void CopyComputedIn(const ComputeOf<T>* in, int dim, void* row) {
  if constexpr (std::is_same_v<T, ComputeOf<T>>) {
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
  // Who holds a row's word may write to its value with any stores, and a reader
  // may use any loads: he discards what he saw of it. ThreadSanitizer wants
  // atomic ones.
#ifdef __SANITIZE_THREAD__
  static constexpr bool kPlainAccess = false;
#else
  static constexpr bool kPlainAccess = true;
#endif

  RowStore(int dim, Arena* arena, uint32_t number = 0,
           RowType type = RowType::kFloat32)
      : dim_(dim),
        type_(type),
        value_bytes_(dim * SizeOf(type)),
        slot_bytes_(dim * SizeOf(ComputeType(type))),
        first_((1 + number % kStarts) << kSegmentBits),
        bare_bytes_(sizeof(RowMeta) + RoundUp(value_bytes_)),
        arena_(arena) {}
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  RowMeta* meta(uint32_t row) { return MetaOf(row); }
  const RowMeta* meta(uint32_t row) const { return MetaOf(row); }
  // Numbers of the store's type.
  void* values(uint32_t row) { return meta(row) + 1; }
  const void* values(uint32_t row) const { return meta(row) + 1; }
  // Numbers of the type that its rows are computed as.
  // REQUIRES: AttachSlots was called for it at some time.
  void* slot(uint32_t row, int s) { return SlotOf(row, s); }
  const void* slot(uint32_t row, int s) const { return SlotOf(row, s); }
  // Begins to load what a lookup needs of a row.
  void Prefetch(const RowMeta* meta) const {
    PrefetchRow<0>(meta, bare_bytes_);
  }
  // What an update writes of it.
  void PrefetchWithSlots(uint32_t row, const RowMeta* meta,
                         int num_slots) const {
    PrefetchRow<1>(meta, bare_bytes_);
    for (int s = 0; s < num_slots; ++s) {
      PrefetchRow<1>(slot(row, s), slot_bytes_);
    }
    PrefetchMarks(row);
  }
  void PrefetchMarks(uint32_t row) const {
    if (marking()) __builtin_prefetch(&mark(RowMark::kChanged, row), 1);
  }

  // Any thread.

  // Copies the row if it holds `id` now; false: it does not.
  bool Read(uint32_t row, int64_t id, void* out) const {
    return Read(meta(row), id, out);
  }
  bool Read(const RowMeta* meta, int64_t id, void* out) const;

  // The row's frequency if it holds `id` now; false: it does not.
  static bool ReadFrequency(const RowMeta* meta, int64_t id,
                            uint32_t* frequency);

  // Waits for the row's word and holds it; false (and not held): the row does
  // not hold `id`.
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
  // The same of a row that was only read.
  void UnlockUnchanged(uint32_t row) const {
    meta(row)->sequence.store(WordOf(row), std::memory_order_release);
  }
  // Of a row that the caller holds: another one after every Unlock, and in
  // every other place.
  int64_t Version(uint32_t row) const {
    return static_cast<int64_t>((uint64_t{row} << 32) | WordOf(row));
  }
  // By who holds the word of a resident row, before he writes to value, slot or
  // metadata.
  void BeforeWrite(uint32_t row) {
    const Marking marking = marking_.load(std::memory_order_acquire);
    if (marking == Marking::kNone ||
        (marking == Marking::kChanges && Has(RowMark::kChanged, row))) {
      return;
    }
    MarkWritten(row, marking);
  }
  // By who holds the shard's mutex in place of the word: whether the running
  // snapshot wants the row as it is, so that it takes the word to write to it.
  bool IsUnsaved(uint32_t row) const {
    return marking_.load(std::memory_order_acquire) == Marking::kSnapshot &&
           Has(RowMark::kUnsaved, row);
  }
  bool marking() const {
    return marking_.load(std::memory_order_acquire) != Marking::kNone;
  }
  // Of a row that the caller holds.
  void WriteRecord(uint32_t row, const SnapshotRowFormat& format,
                   char* out) const;

  // One thread at a time (the shard's mutex).

  // Room for `count` more Allocate calls. ResourceExhausted: out of memory.
  Status Reserve(int64_t count);
  // Segments for `rows` rows in all.
  Status ReserveCapacity(int64_t rows);
  // A row that no reader takes for resident until Publish.
  uint32_t Allocate();
  // The row now holds `id`; its data are written.
  void Publish(uint32_t row, int64_t id, int64_t last_seen, uint32_t frequency);
  // From here on no reader takes it for resident; the index forgets it next.
  void Free(uint32_t row);
  // Frees all rows; their memory is kept for the next ones.
  void FreeAll();

  // Moves rows from the end into the places of removed ones, which it finds
  // from row `*low` on, 0 at first. moved(from, to) is called while both rows
  // are resident with the same content and `from` is held. True: it is done;
  // false: it has worked for about as long as it takes to move `most` rows.
  template <typename Moved>
  bool Compact(int64_t most, uint32_t* low, const Moved& moved);
  // Gives the last segment back to the system if it holds no row; false: it
  // does hold one.
  bool ReleaseSegment();

  // Memory for `count` optimizer slots beside every row there is and will be.
  // ResourceExhausted: out of memory, and the slots that there were stay.
  Status ReserveSlots(int64_t count);
  // From here on rows have these slots; existing rows hold the inits.
  // REQUIRES: as many are reserved.
  void AttachSlots(Span<const float> inits);
  // Sets all numbers of slot `s` of a row.
  void FillSlot(uint32_t row, int s, float init);
  int num_slots() const { return num_slots_; }

  // Memory for marks beside every row there is and will be. ResourceExhausted:
  // out of memory.
  Status ReserveMarks();
  // From here on rows that change are marked; none has changed yet.
  // REQUIRES: ReserveMarks.
  void StartMarking();
  // From here on none is marked.
  void StopMarking() {
    marking_.store(Marking::kNone, std::memory_order_release);
  }

  // A snapshot begins: of all resident rows, or of those that are changed, none
  // of which is changed from here on. Who writes to one leaves an image first,
  // in chunks of about `chunk_bytes`; `format` is how.
  // REQUIRES: marking, and none is running.
  void BeginSnapshot(bool whole, const SnapshotRowFormat& format,
                     int64_t chunk_bytes);
  // Any thread: records of rows of the snapshot that no one has saved yet, up
  // to `most`, from row *next on, of which it began with `end`. Returns how
  // many; *next is `end` after the last one.
  int64_t SaveRows(int64_t end, const SnapshotRowFormat& format, int64_t most,
                   int64_t* next, char* out);
  // Any thread: no more images are kept, and those there are are forgotten.
  void EndImages(int64_t end);
  // After EndImages. failed: what was changed when the snapshot began is so
  // again.
  void EndSnapshot(int64_t end, bool failed);
  // REQUIRES: ReserveMarks.
  RowImages* images() const { return images_.get(); }

  // Rows [0, high_water) have been given out at least once.
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
  int64_t slot_bytes() const { return capacity_ * slot_places_ * slot_bytes_; }

 private:
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kResident = 2;
  static constexpr uint32_t kWrite = 4;
  static constexpr uint32_t kNone = 0xffffffff;
  static constexpr int kLevels = 22;  // row numbers fit LeafIndex

  static constexpr int kSegmentBits = 10;  // of the smallest segment
  static constexpr int kSegmentsBits = 6;  // of a level's segments, at most
  static constexpr uint32_t kStarts = 16;

  // In one cache line.
  struct alignas(64) Segment {
    char* rows;
    int64_t stride;   // bytes from row to row
    int64_t in_rows;  // the first slots, which lie in the rows
    std::atomic<char*> slots[kMaxSlots];  // the others
    MarkWord* marks;  // all of a kind, then the next; null until there are any
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
    if (s < in.in_rows) {
      return in.rows + address.offset * in.stride + bare_bytes_ +
             s * slot_bytes_;
    }
    return in.slots[s].load(std::memory_order_acquire) +
           address.offset * slot_bytes_;
  }
  Segment& segment(const Address& address) const {
    return levels_[address.level].load(
        std::memory_order_acquire)[address.segment];
  }
  // A removed row, as part of the list of them.
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
  // kSnapshot: changes, and images of rows that are written to.
  enum class Marking { kNone, kChanges, kSnapshot };

  // The word of a row's mark. REQUIRES: ReserveMarks.
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
  // To whole words.
  static constexpr int64_t RoundUp(int64_t bytes) {
    return (bytes + 7) / 8 * 8;
  }
  static int64_t MarkBytes(int64_t rows) {
    return rows / kMarkedRows * kRowMarks *
           static_cast<int64_t>(sizeof(MarkWord));
  }
  void MarkWritten(uint32_t row, Marking marking);
  // By who holds the row's word.
  void SaveImage(uint32_t row);
  // A free row is given out: no snapshot wants what will be written to it.
  void ForgetUnsaved(uint32_t row);
  void MoveMarks(uint32_t from, uint32_t to);
  // The word of a row that is resident, whichever id it has; false (and not
  // held): it is not.
  bool LockResident(uint32_t row) const;
  bool AddMarks(Segment* segment, int bits);
  // Publish without a mark.
  void Show(uint32_t row, int64_t id, int64_t last_seen, uint32_t frequency);

  void LinkFree(uint32_t row);
  void UnlinkFree(uint32_t row);
  // Both rows hold the content of `from`, which stays held.
  void Copy(uint32_t from, uint32_t to);

  // Of a held row, without the bit that says so.
  uint32_t WordOf(uint32_t row) const {
    return meta(row)->sequence.load(std::memory_order_relaxed) & ~kHeld;
  }
  static uint32_t Hold(const RowMeta* meta);
  static void Release(RowMeta* meta, uint32_t resident) {
    const uint32_t word = meta->sequence.load(std::memory_order_relaxed);
    meta->sequence.store(((word & ~(kHeld | kResident)) + kWrite) | resident,
                         std::memory_order_release);
  }
  // Of a row that was just held and had `word`; lets another id's go.
  static bool IsHeldFor(const RowMeta* meta, int64_t id, uint32_t word) {
    // The data stores that follow stay behind the held bit.
    std::atomic_thread_fence(std::memory_order_release);
    if (meta->id.load(std::memory_order_relaxed) == id) return true;
    meta->sequence.store(word, std::memory_order_release);
    return false;
  }
  static bool WaitAndLock(const RowMeta* meta, int64_t id);
  bool AddSegment();
  bool AddSlots(Segment* segment, int bits, int count);

  const int dim_;
  const RowType type_;
  const int64_t value_bytes_;  // of a row's numbers
  const int64_t slot_bytes_;   // of a slot's
  const uint32_t first_;       // where among the levels row 0 lies
  const int64_t bare_bytes_;   // of a row with its metadata, without slots
  Arena* const arena_;
  std::atomic<Segment*> levels_[kLevels] = {};
  std::atomic<Marking> marking_{Marking::kNone};
  int64_t capacity_ = 0;
  uint32_t high_water_ = 0;
  uint32_t made_ = 0;  // rows with metadata
  int64_t live_ = 0;
  uint32_t free_head_ = kNone;
  uint32_t first_word_ = 0;  // of rows whose segment was given back
  int slot_places_ = 0;      // slots that every segment has; never fewer again
  int used_slots_ = 0;       // that an optimizer ever had
  int num_slots_ = 0;        // that the optimizer has
  std::unique_ptr<RowImages> images_;  // null until there are marks
};

template <typename Moved>
bool RowStore::Compact(int64_t most, uint32_t* low, const Moved& moved) {
  constexpr int64_t kMove = 16;  // as long as so many rows are looked at
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
