#include "tf_ops/core/base/batch_unique.h"

#include <algorithm>

#include "tf_ops/core/base/keyed_hash.h"

namespace lodestar {

void BatchUnique(Span<const int64_t> ids, const int64_t* padding_id,
                 std::vector<int64_t>* unique, Span<int64_t> positions) {
  const int64_t n = ids.size();
  unique->resize(n + 1);  // one spare element, see below
  int64_t* const distinct = unique->data();
  int64_t count = 0;
  int bits = 4;
  while ((int64_t{1} << bits) < n * 2) ++bits;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  // Position in `distinct` plus 1. 0 marks a free cell.
  std::vector<uint32_t> table(mask + 1, 0);
  const uint64_t key = ProcessHashKey();
  constexpr int64_t kAhead = 16;
  uint32_t cells[kAhead];  // first cells to probe for the next ids
  const auto begin_search = [&](int64_t i) {
    const uint64_t cell = KeyedHash(static_cast<uint64_t>(ids[i]), key) & mask;
    cells[i % kAhead] = static_cast<uint32_t>(cell);
    __builtin_prefetch(&table[cell], 1);
  };
  for (int64_t i = 0; i < std::min(kAhead, n); ++i) begin_search(i);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = ids[i];
    uint64_t cell = cells[i % kAhead];
    if (i + kAhead < n) begin_search(i + kAhead);
    if (padding_id != nullptr && id == *padding_id) {
      positions[i] = kNoPosition;
      continue;
    }
    // Writes the id before it is known to be new, so that a free cell matches
    // it too. This avoids a branch that the processor cannot predict.
    distinct[count] = id;
    uint32_t entry = table[cell];
    int64_t position = entry == 0 ? count : int64_t{entry} - 1;
    while (__builtin_expect(distinct[position] != id, 0)) {
      cell = (cell + 1) & mask;
      entry = table[cell];
      position = entry == 0 ? count : int64_t{entry} - 1;
    }
    table[cell] = static_cast<uint32_t>(position + 1);
    positions[i] = position;
    count += position == count;
  }
  unique->resize(count);
}

std::vector<uint32_t> CountOccurrences(Span<const int64_t> positions,
                                       int64_t num_unique) {
  std::vector<uint32_t> occurrences(num_unique, 0);
  for (int64_t position : positions) {
    if (position == kNoPosition) continue;
    occurrences[position] += occurrences[position] != 0xffffffffu;
  }
  return occurrences;
}

}  // namespace lodestar
