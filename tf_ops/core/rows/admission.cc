#include "tf_ops/core/rows/admission.h"

#include <algorithm>

#include "tf_ops/core/rows/admission_rule.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

PendingIds::PendingIds(EpochDomain* epochs, bool by_age)
    : epochs_(epochs), index_(epochs), entries_(0, &arena_) {
  if (by_age) order_.emplace(EvictionPolicy::Order::kLru, &entries_, &arena_);
}

uint32_t PendingIds::Find(uint32_t tag, int64_t id) const {
  LeafIndex::Cursor cursor = index_.Begin(tag);
  while (true) {
    const uint32_t entry = LeafIndex::Next(tag, &cursor);
    if (entry == LeafIndex::kNoRow ||
        entries_.meta(entry)->id.load(std::memory_order_relaxed) == id) {
      return entry;
    }
  }
}

uint32_t PendingIds::occurrences(uint32_t entry) const {
  return entries_.meta(entry)->frequency.load(std::memory_order_relaxed);
}

int64_t PendingIds::last_seen(uint32_t entry) const {
  return entries_.meta(entry)->last_seen.load(std::memory_order_relaxed);
}

Status PendingIds::Reserve(Span<const uint32_t> tags) {
  LODESTAR_RETURN_IF_ERROR(entries_.Reserve(tags.size()));
  LODESTAR_RETURN_IF_ERROR(index_.Reserve(tags));
  return order_.has_value() ? order_->Reserve(entries_.capacity()) : Status();
}

void PendingIds::Add(uint32_t tag, int64_t id, uint32_t occurrences,
                     int64_t last_seen) {
  const uint32_t entry = entries_.Allocate();
  entries_.Publish(entry, id, last_seen, occurrences);
  index_.Insert(tag, entry);
  if (order_.has_value()) order_->Add(entry);
  ++size_;
}

void PendingIds::Set(uint32_t entry, uint32_t occurrences, int64_t last_seen) {
  RowMeta* meta = entries_.meta(entry);
  if (order_.has_value()) order_->Remove(entry);
  meta->frequency.store(occurrences, std::memory_order_relaxed);
  meta->last_seen.store(last_seen, std::memory_order_relaxed);
  if (order_.has_value()) order_->Add(entry);
}

void PendingIds::Remove(uint32_t tag, uint32_t entry) {
  if (order_.has_value()) order_->Remove(entry);
  index_.Remove(tag, entry);
  entries_.Free(entry);
  --size_;
}

void PendingIds::Clear() {
  if (size_ == 0) return;
  LeafIndex empty(epochs_);
  index_.Replace(&empty);
  entries_.FreeAll();
  if (order_.has_value()) order_->Clear();
  size_ = 0;
}

void PendingIds::RemoveOlder(int64_t max_age, int64_t now,
                             const std::function<uint32_t(int64_t)>& tag_of) {
  const auto remove = [&](uint32_t entry) {
    if (!IsOlder(last_seen(entry), now, max_age)) return false;
    const RowMeta& meta = *entries_.meta(entry);
    Remove(tag_of(meta.id.load(std::memory_order_relaxed)), entry);
    return true;
  };
  if (order_.has_value()) {
    while (order_->oldest() != EvictionList::kNone &&
           remove(order_->oldest())) {
    }
    return;
  }
  for (uint32_t entry = 0; entry < entries_.high_water(); ++entry) {
    if (entries_.resident(entry)) remove(entry);
  }
}

bool PendingIds::ReleaseSegment() {
  const bool released = entries_.ReleaseSegment();
  if (order_.has_value()) order_->Shrink(entries_.capacity());
  return released;
}

bool PendingIds::Compact(int64_t most, uint32_t* low,
                         const std::function<uint32_t(int64_t)>& tag_of) {
  return entries_.Compact(most, low, [&](uint32_t from, uint32_t to) {
    const int64_t id = entries_.meta(to)->id.load(std::memory_order_relaxed);
    index_.Move(tag_of(id), from, to);
    if (order_.has_value()) order_->Move(from, to);
  });
}

void PendingIds::ForEach(
    const std::function<void(int64_t, uint32_t, int64_t)>& fn) const {
  for (uint32_t entry = 0; entry < entries_.high_water(); ++entry) {
    if (!entries_.resident(entry)) continue;
    fn(entries_.meta(entry)->id.load(std::memory_order_relaxed),
       occurrences(entry), last_seen(entry));
  }
}

Status CountingSketch::Reserve() {
  if (data() != nullptr) return Status();
  pages_ = AllocateZeroedPages(num_counters_);
  if (data() == nullptr) {
    return ResourceExhausted("out of memory for ", num_counters_,
                             " admission counters.");
  }
  return Status();
}

Status CountingSketch::Assign(Span<const uint8_t> counters) {
  Clear();
  if (counters.empty()) return Status();
  LODESTAR_RETURN_IF_ERROR(Reserve());
  std::copy(counters.begin(), counters.end(), data());
  counted_ = true;
  return Status();
}

uint32_t CountingSketch::Estimate(int64_t id) const {
  if (data() == nullptr) return 0;
  uint32_t estimate = kMaxSketchCount;
  ForEachCounter(id, num_counters_, num_hashes_, [&](int64_t c) {
    estimate = std::min<uint32_t>(estimate, data()[c]);
  });
  return estimate;
}

void CountingSketch::Raise(int64_t id, uint32_t occurrences) {
  const uint8_t wanted =
      static_cast<uint8_t>(std::min<uint32_t>(occurrences, kMaxSketchCount));
  counted_ = true;
  ForEachCounter(id, num_counters_, num_hashes_, [&](int64_t c) {
    if (data()[c] < wanted) data()[c] = wanted;
  });
}

void CountingSketch::Clear() {
  FreePages(std::exchange(pages_, PageRun()));
  counted_ = false;
}

}  // namespace lodestar
