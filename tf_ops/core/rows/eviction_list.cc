#include "tf_ops/core/rows/eviction_list.h"

#include <algorithm>
#include <new>

namespace lodestar {

EvictionList::EvictionList(EvictionPolicy::Order order, const RowStore* rows,
                           Arena* arena)
    : order_(order),
      rows_(rows),
      arena_(arena),
      groups_(order == EvictionPolicy::Order::kLru ? 1 : kGroups) {}

Status EvictionList::Reserve(int64_t capacity) {
  const int64_t segment = kSegmentLinks;
  while (static_cast<int64_t>(reserved_) * segment < capacity) {
    if (reserved_ < links_.size()) {
      ++reserved_;
      continue;
    }
    Link* links = nullptr;
    try {
      links_.reserve(links_.size() + 1);
      links = static_cast<Link*>(arena_->Allocate(segment * sizeof(Link)));
    } catch (const std::bad_alloc&) {
    }
    if (links == nullptr || capacity > kNone) {
      return ResourceExhausted("out of memory for the eviction order of ",
                               capacity, " rows.");
    }
    links_.push_back(links);
    ++reserved_;
  }
  return Status();
}

int EvictionList::GroupOf(uint32_t row) const {
  if (order_ == EvictionPolicy::Order::kLru) return 0;
  const uint32_t frequency =
      rows_->meta(row)->frequency.load(std::memory_order_relaxed);
  if (frequency < kExact) return static_cast<int>(frequency);
  const int octave = 31 - __builtin_clz(frequency);
  return kExact + (octave - 8) * 8 + ((frequency >> (octave - 3)) & 7);
}

EvictionKey EvictionList::KeyOf(uint32_t row) const {
  const RowMeta* meta = rows_->meta(row);
  EvictionKey key = AgeOf(*meta);
  if (order_ == EvictionPolicy::Order::kLfu) {
    key.frequency = meta->frequency.load(std::memory_order_relaxed);
  }
  return key;
}

uint32_t EvictionList::SeekAfter(Group* group, int64_t step) {
  uint32_t at = group->hint;
  while (true) {
    const uint32_t before = at == kNone ? group->tail : previous(at);
    if (before == kNone || LastSeen(before) <= step) break;
    at = before;
  }
  while (at != kNone && LastSeen(at) <= step) at = next(at);
  group->hint = at;
  return at;
}

void EvictionList::Add(uint32_t row) {
  const int number = GroupOf(row);
  Group& group = groups_[number];
  const int64_t last_seen = LastSeen(row);
  const uint32_t after =
      exact(number) ? SeekAfter(&group, last_seen) : uint32_t{kNone};
  const uint32_t before = after == kNone ? group.tail : previous(after);
  link(row) = {before, after};
  (before == kNone ? group.head : link(before).next) = row;
  if (after == kNone) {
    group.tail = row;
  } else {
    SetPrevious(after, row);
  }
  // The sorted prefix stays sorted only if all of it was seen earlier.
  if (group.sorted != kNone &&
      !(exact(number) && LastSeen(group.sorted) < last_seen)) {
    group.sorted = kNone;
  }
}

void EvictionList::Remove(uint32_t row) {
  Group& group = groups_[GroupOf(row)];
  const uint32_t before = previous(row);
  const uint32_t after = next(row);
  (before == kNone ? group.head : link(before).next) = after;
  if (after == kNone) {
    group.tail = before;
  } else {
    SetPrevious(after, before);
  }
  if (group.hint == row) group.hint = after;
  if (group.sorted == row) group.sorted = before;
}

void EvictionList::Move(uint32_t from, uint32_t to) {
  Group& group = groups_[GroupOf(to)];
  const Link moved = link(from);
  const uint32_t before = previous(from);
  link(to) = moved;
  (before == kNone ? group.head : link(before).next) = to;
  if (moved.next == kNone) {
    group.tail = to;
  } else {
    SetPrevious(moved.next, to);
  }
  if (group.hint == from) group.hint = to;
  if (group.sorted == from) group.sorted = to;
}

void EvictionList::Shrink(int64_t capacity) {
  const int64_t bytes = kSegmentLinks * sizeof(Link);
  while (reserved_ > 0 &&
         static_cast<int64_t>(reserved_ - 1) * kSegmentLinks >= capacity &&
         Arena::Release(links_[reserved_ - 1], bytes)) {
    --reserved_;
  }
}

void EvictionList::Clear() {
  std::fill(groups_.begin(), groups_.end(), Group());
}

void EvictionList::MarkSorted() {
  // A group of several frequencies is ordered by frequency first.
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    if (exact(g)) groups_[g].sorted = groups_[g].tail;
  }
}

int64_t EvictionList::bytes() const {
  return reserved_ * (kSegmentLinks * sizeof(Link)) +
         groups_.size() * sizeof(Group);
}

// Merges two chains linked by `next`, each in order, into one.
uint32_t EvictionList::Merge(uint32_t a, uint32_t b) {
  uint32_t first = kNone;
  uint32_t* end = &first;
  EvictionKey key_a = KeyOf(a);
  EvictionKey key_b = KeyOf(b);
  while (true) {
    if (key_b < key_a) {
      *end = b;
      end = &link(b).next;
      b = *end;
      if (b == kNone) break;
      key_b = KeyOf(b);
    } else {
      *end = a;
      end = &link(a).next;
      a = *end;
      if (a == kNone) break;
      key_a = KeyOf(a);
    }
  }
  *end = a == kNone ? b : a;
  return first;
}

EvictionList::Run EvictionList::Sort(int number, uint32_t first) {
  Group& group = groups_[number];
  const uint32_t before = previous(first);
  const int64_t step = LastSeen(first);
  // In-place merge sort: chains[k] holds 2^k rows or is empty.
  uint32_t chains[32];
  std::fill(chains, chains + 32, uint32_t{kNone});
  uint32_t after = first;
  while (after != kNone && !(exact(number) && LastSeen(after) != step)) {
    uint32_t chain = after;
    after = next(after);
    link(chain).next = kNone;
    int k = 0;
    for (; chains[k] != kNone; ++k) {
      chain = Merge(chains[k], chain);
      chains[k] = kNone;
    }
    chains[k] = chain;
  }
  uint32_t sorted = kNone;
  for (uint32_t chain : chains) {
    if (chain == kNone) continue;
    sorted = sorted == kNone ? chain : Merge(chain, sorted);
  }
  (before == kNone ? group.head : link(before).next) = sorted;
  uint32_t last = before;
  for (uint32_t row = sorted; row != kNone; row = next(row)) {
    SetPrevious(row, last);
    last = row;
  }
  link(last).next = after;
  if (after == kNone) {
    group.tail = last;
  } else {
    SetPrevious(after, last);
  }
  if (group.hint == first) group.hint = sorted;
  if (group.sorted == before) group.sorted = last;
  return {sorted, last};
}

// Advances to the row after row_, or to the first row of the next group.
void EvictionList::Victims::Step() {
  const int groups = static_cast<int>(list_->groups_.size());
  bool in_run = row_ != kNone && row_ != sorted_to_;
  if (row_ != kNone) row_ = list_->next(row_);
  while (true) {
    if (row_ == kNone) {
      do {
        if (++group_ >= groups) return;
      } while (list_->groups_[group_].head == kNone);
      row_ = list_->groups_[group_].head;
      sorted_to_ = list_->groups_[group_].sorted;
      in_run = sorted_to_ != kNone;
    }
    if (list_->exact(group_) && list_->LastSeen(row_) == now_) {
      // Skips all rows of the current step without sorting them.
      row_ = list_->SeekAfter(&list_->groups_[group_], now_);
      in_run = false;
      if (row_ == kNone) continue;
    }
    if (!in_run) {
      const Run run = list_->Sort(group_, row_);
      row_ = run.first;
      sorted_to_ = run.last;
    }
    return;
  }
}

uint32_t EvictionList::Victims::Peek() {
  if (group_ < 0) Step();
  while (row_ != kNone && ((list_->link(row_).previous & kMark) != 0 ||
                           list_->LastSeen(row_) == now_)) {
    Step();
  }
  return row_;
}

void EvictionList::Victims::Pop() {
  const uint32_t row = row_;
  Step();
  list_->Remove(row);
}

}  // namespace lodestar
