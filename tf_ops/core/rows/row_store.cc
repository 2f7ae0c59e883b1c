#include "tf_ops/core/rows/row_store.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "tf_ops/core/base/guards.h"

namespace lodestar {
namespace {

typedef uint64_t __attribute__((may_alias)) Word64;
typedef uint32_t __attribute__((may_alias)) Word32;
typedef uint16_t __attribute__((may_alias)) Word16;

typedef uint64_t __attribute__((vector_size(16))) Pair64;

template <typename Word>
inline void CopyWordOut(const char* from, char* to) {
  const Word word =
      __atomic_load_n(reinterpret_cast<const Word*>(from), __ATOMIC_RELAXED);
  __builtin_memcpy(to, &word, sizeof(word));
}

template <typename Word>
inline void CopyWordIn(const char* from, char* to) {
  Word word;
  __builtin_memcpy(&word, from, sizeof(word));
  __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELAXED);
}

// Any load will do, because a reader discards data that a writer was changing.
inline void CopyPairOut(const char* from, char* to) {
  if constexpr (RowStore::kPlainAccess) {
    Pair64 pair;
    __builtin_memcpy(&pair, from, sizeof(pair));
    __builtin_memcpy(to, &pair, sizeof(pair));
  } else {
    CopyWordOut<Word64>(from, to);
    CopyWordOut<Word64>(from + 8, to + 8);
  }
}

}  // namespace

void CopyRowOut(const void* row, int64_t bytes, void* out) {
  const char* from = static_cast<const char*>(row);
  char* to = static_cast<char*>(out);
  int64_t done = 0;
  for (; done + 64 <= bytes; done += 64) {
    for (int i = 0; i < 64; i += 16)
      CopyPairOut(from + done + i, to + done + i);
  }
  for (; done + 16 <= bytes; done += 16) CopyPairOut(from + done, to + done);
  if ((bytes & 8) != 0) {
    CopyWordOut<Word64>(from + done, to + done);
    done += 8;
  }
  if ((bytes & 4) != 0) {
    CopyWordOut<Word32>(from + done, to + done);
    done += 4;
  }
  if ((bytes & 2) != 0) CopyWordOut<Word16>(from + done, to + done);
}

void CopyRowIn(const void* in, int64_t bytes, void* row) {
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(row);
  int64_t done = 0;
  for (; done + 8 <= bytes; done += 8) {
    CopyWordIn<Word64>(from + done, to + done);
  }
  if ((bytes & 4) != 0) {
    CopyWordIn<Word32>(from + done, to + done);
    done += 4;
  }
  if ((bytes & 2) != 0) CopyWordIn<Word16>(from + done, to + done);
}

void RowStore::CopyValuesOut(const RowMeta* meta, void* values) const {
  const void* const from = meta + 1;
  if (stored_.is_same()) return CopyRowOut(from, stored_.bytes(), values);
  if constexpr (kPlainAccess) {
    stored_.Decode(from, values);
  } else {
    std::vector<char> copy(stored_.bytes());
    CopyRowOut(from, stored_.bytes(), copy.data());
    stored_.Decode(copy.data(), values);
  }
}

bool RowStore::Read(const RowMeta* m, int64_t id, void* out) const {
  if (!GuardHolds(StoreGuard::kSequenceWord)) {
    CopyValuesOut(m, out);
    return m->id.load(std::memory_order_relaxed) == id;
  }
  for (int spins = 0;; ++spins) {
    const uint32_t before = m->sequence.load(std::memory_order_acquire);
    if ((before & kHeld) == 0) {
      if ((before & kResident) == 0 ||
          m->id.load(std::memory_order_relaxed) != id) {
        return false;
      }
      CopyValuesOut(m, out);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (m->sequence.load(std::memory_order_relaxed) == before) return true;
    }
    if (spins > 64) std::this_thread::yield();
  }
}

bool RowStore::ReadFrequency(const RowMeta* m, int64_t id,
                             uint32_t* frequency) {
  while (true) {
    const uint32_t before = m->sequence.load(std::memory_order_acquire);
    if ((before & kResident) == 0 ||
        m->id.load(std::memory_order_relaxed) != id) {
      return false;
    }
    // A single word, so it is valid even during a write; but the row must still
    // belong to the id.
    *frequency = m->frequency.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint32_t after = m->sequence.load(std::memory_order_relaxed);
    if ((before | kHeld) == (after | kHeld)) return true;
  }
}

uint32_t RowStore::Hold(const RowMeta* meta) {
  for (int spins = 0;; ++spins) {
    uint32_t word = meta->sequence.load(std::memory_order_relaxed);
    if ((word & kHeld) == 0 &&
        meta->sequence.compare_exchange_weak(word, word | kHeld,
                                             std::memory_order_acquire)) {
      // Keeps the data stores that follow after the store of the held bit.
      std::atomic_thread_fence(std::memory_order_release);
      return word;
    }
    if (spins > 64) std::this_thread::yield();
  }
}

bool RowStore::WaitAndLock(const RowMeta* m, int64_t id) {
  for (int spins = 0;; ++spins) {
    uint32_t word = m->sequence.load(std::memory_order_acquire);
    if ((word & kResident) == 0) return false;
    if ((word & kHeld) == 0 &&
        m->sequence.compare_exchange_weak(word, word | kHeld,
                                          std::memory_order_acquire)) {
      return IsHeldFor(m, id, word);
    }
    if (spins > 64) std::this_thread::yield();
  }
}

bool RowStore::AddSlots(Segment* segment, int bits, int64_t bytes) {
  if (std::max(segment->slots_room, segment->spare_room) >= bytes) return true;
  void* const array = arena_->Allocate(bytes << bits);
  if (array == nullptr) return false;
  Arena::Release(segment->spare, segment->spare_room << bits);
  segment->spare = static_cast<char*>(array);
  segment->spare_room = bytes;
  return true;
}

void RowStore::UseSpare(Segment* segment, int bits, int64_t bytes) const {
  if (segment->slots_room >= bytes) return;
  // Slots inside the rows keep their memory.
  if (segment->slots != segment->rows + bare_bytes_) {
    Arena::Release(segment->slots, segment->slots_room << bits);
  }
  segment->slots = segment->spare;
  segment->slots_stride = segment->slots_room = segment->spare_room;
  segment->spare = nullptr;
  segment->spare_room = 0;
}

bool RowStore::AddSegment() {
  const Address address = AddressOf(static_cast<uint32_t>(capacity_));
  if (address.level >= kLevels) return false;
  if (levels_[address.level].load(std::memory_order_relaxed) == nullptr) {
    const int count = 1 << (address.level + kSegmentBits - address.bits);
    void* memory = arena_->Allocate(count * sizeof(Segment));
    if (memory == nullptr) return false;
    Segment* segments = static_cast<Segment*>(memory);
    for (int i = 0; i < count; ++i) new (segments + i) Segment();
    levels_[address.level].store(segments, std::memory_order_release);
  }
  // Reuses segments left by a failed attempt or by ReleaseSegment.
  Segment& added = segment(address);
  if (added.rows == nullptr) {
    added.stride = RoundUp(bare_bytes_ + reserved_bytes_);
    added.rows =
        static_cast<char*>(arena_->Allocate(added.stride << address.bits));
    if (added.rows == nullptr) return false;
    added.slots = added.rows + bare_bytes_;
    added.slots_stride = added.stride;
    added.slots_room = reserved_bytes_;
  }
  if (!AddSlots(&added, address.bits, reserved_bytes_)) return false;
  UseSpare(&added, address.bits, slots_.count * slot_bytes_);
  if (images_ != nullptr && !AddMarks(&added, address.bits)) return false;
  capacity_ += int64_t{1} << address.bits;
  return true;
}

Status RowStore::Reserve(int64_t count) {
  return ReserveCapacity(live_ + count);
}

Status RowStore::ReserveCapacity(int64_t rows) {
  while (capacity() < rows) {
    if (!AddSegment()) {
      return ResourceExhausted("out of memory for ", rows - capacity(),
                               " more rows of dimension ", dim_, ".");
    }
  }
  return Status();
}

uint32_t RowStore::Allocate() {
  ++live_;
  if (free_head_ != kNone) {
    const uint32_t row = free_head_;
    UnlinkFree(row);
    ForgetUnsaved(row);
    return row;
  }
  const uint32_t row = high_water_++;
  ForgetUnsaved(row);
  if (row == made_) new (meta(made_++)) RowMeta();
  std::atomic<uint32_t>& sequence = meta(row)->sequence;
  if (sequence.load(std::memory_order_relaxed) == 0) {
    sequence.store(first_word_, std::memory_order_relaxed);
  }
  return row;
}

void RowStore::LinkFree(uint32_t row) {
  SetFreeLinks(row, {kNone, free_head_});
  if (free_head_ != kNone) {
    SetFreeLinks(free_head_, {row, free_links(free_head_).next});
  }
  free_head_ = row;
}

void RowStore::UnlinkFree(uint32_t row) {
  const FreeLinks links = free_links(row);
  if (links.previous == kNone) {
    free_head_ = links.next;
  } else {
    SetFreeLinks(links.previous,
                 {free_links(links.previous).previous, links.next});
  }
  if (links.next != kNone) {
    SetFreeLinks(links.next, {links.previous, free_links(links.next).next});
  }
}

void RowStore::Publish(uint32_t row, int64_t id, int64_t last_seen,
                       uint32_t frequency) {
  BeforeWrite(row);
  PublishUnmarked(row, id, last_seen, frequency);
}

void RowStore::PublishUnmarked(uint32_t row, int64_t id, int64_t last_seen,
                               uint32_t frequency) {
  RowMeta* m = meta(row);
  Hold(m);
  m->id.store(id, std::memory_order_relaxed);
  m->last_seen.store(last_seen, std::memory_order_relaxed);
  m->frequency.store(frequency, std::memory_order_relaxed);
  Release(m, kResident);
}

void RowStore::Free(uint32_t row) {
  Hold(meta(row));
  BeforeWrite(row);
  Release(meta(row), 0);
  LinkFree(row);
  --live_;
}

void RowStore::FreeAll() {
  for (uint32_t row = 0; row < high_water_; ++row) {
    Hold(meta(row));
    Release(meta(row), 0);
  }
  free_head_ = kNone;
  live_ = 0;
  high_water_ = 0;
}

void RowStore::Copy(uint32_t from, uint32_t to) {
  RowMeta* const source = meta(from);
  RowMeta* const target = meta(to);
  Hold(source);
  if (marking()) MoveMarks(from, to);
  // Atomic stores, because a late reader may still copy the row that was here.
  const Word64* words = reinterpret_cast<const Word64*>(source + 1);
  Word64* copy = reinterpret_cast<Word64*>(target + 1);
  const int64_t count = RoundUp(stored_.bytes()) / sizeof(Word64);
  for (int64_t i = 0; i < count; ++i) {
    __atomic_store_n(copy + i, words[i], __ATOMIC_RELAXED);
  }
  if (slots_.count > 0) {
    std::memcpy(slot(to, 0), slot(from, 0), slots_.count * slot_bytes_);
  }
  PublishUnmarked(to, source->id.load(std::memory_order_relaxed),
                  source->last_seen.load(std::memory_order_relaxed),
                  source->frequency.load(std::memory_order_relaxed));
}

bool RowStore::ReleaseSegment() {
  if (capacity_ == 0) return false;
  const Address last = AddressOf(static_cast<uint32_t>(capacity_ - 1));
  const int64_t rows = int64_t{1} << last.bits;
  const int64_t first = capacity_ - rows;
  if (first < high_water_) return false;
  for (int64_t row = first; row < std::min<int64_t>(made_, capacity_); ++row) {
    const uint32_t word = meta(static_cast<uint32_t>(row))
                              ->sequence.load(std::memory_order_relaxed);
    first_word_ = std::max(first_word_, (word & ~(kWrite - 1)) + kWrite);
  }
  Segment& released = segment(last);
  if (!Arena::Release(released.rows, rows * released.stride)) return false;
  if (released.slots != released.rows + bare_bytes_) {
    Arena::Release(released.slots, rows * released.slots_room);
  }
  Arena::Release(released.spare, rows * released.spare_room);
  if (released.marks != nullptr) {
    Arena::Release(released.marks, MarkBytes(rows));
  }
  capacity_ = first;
  return true;
}

Status RowStore::ReserveSlots(const SlotShape& slots) {
  const int64_t bytes = slots.Size(dim_) * static_cast<int64_t>(sizeof(float));
  const bool reserved = ForEachSegment([&](Segment* segment, int bits) {
    return AddSlots(segment, bits, bytes);
  });
  if (!reserved) {
    return ResourceExhausted("out of memory for ", slots.count,
                             " optimizer slots of ", capacity_, " rows.");
  }
  reserved_bytes_ = std::max(reserved_bytes_, bytes);
  return Status();
}

void RowStore::AttachSlots(const SlotShape& slots, Span<const float> inits) {
  slots_ = slots;
  slot_bytes_ = slots.Width(dim_) * static_cast<int64_t>(sizeof(float));
  reserved_bytes_ = slots.count * slot_bytes_;
  ForEachSegment([&](Segment* segment, int bits) {
    UseSpare(segment, bits, reserved_bytes_);
    return true;
  });
  const int64_t used = used_bytes_;
  used_bytes_ = std::max(used, reserved_bytes_);
  const auto is_filled = [&](int s) {
    return s * slot_bytes_ >= used && inits[s] == 0.0f;
  };
  const int count = static_cast<int>(slots.count);
  bool filled = true;
  for (int s = 0; s < count; ++s) filled = filled && is_filled(s);
  if (filled) return;
  // Slots of rows allocated later are filled at that time. An existing row may
  // be in use by an update that began earlier.
  for (uint32_t row = 0; row < high_water_; ++row) {
    const uint32_t word = Hold(meta(row));
    for (int s = 0; s < count; ++s) {
      if (!is_filled(s)) FillSlot(row, s, inits[s]);
    }
    Release(meta(row), word & kResident);
  }
}

void RowStore::FillSlot(uint32_t row, int s, float init) {
  std::fill_n(static_cast<float*>(slot(row, s)), slot_width(), init);
}

int64_t RowStore::slot_bytes() const {
  int64_t bytes = 0;
  ForEachSegment([&](const Segment* segment, int bits) {
    bytes += (segment->slots_room + segment->spare_room) << bits;
    return true;
  });
  return bytes;
}

}  // namespace lodestar
