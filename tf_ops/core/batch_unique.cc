#include "tf_ops/core/batch_unique.h"

#include "tf_ops/core/hash.h"

namespace lodestar {

void BatchUnique(Span<const int64_t> ids, const int64_t* padding_id,
                 std::vector<int64_t>* unique, Span<int64_t> positions) {
  unique->clear();
  unique->reserve(ids.size());
  int bits = 4;
  while ((int64_t{1} << bits) < ids.size() * 2) ++bits;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  // Place + 1 in `unique`; 0: free.
  std::vector<uint32_t> table(mask + 1, 0);
  constexpr int kAhead = 16;
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (i + kAhead < ids.size()) {
      __builtin_prefetch(
          &table[Mix64(static_cast<uint64_t>(ids[i + kAhead])) & mask]);
    }
    const int64_t id = ids[i];
    if (padding_id != nullptr && id == *padding_id) {
      positions[i] = kNoPosition;
      continue;
    }
    uint64_t place = Mix64(static_cast<uint64_t>(id)) & mask;
    while (table[place] != 0 && (*unique)[table[place] - 1] != id) {
      place = (place + 1) & mask;
    }
    if (table[place] == 0) {
      unique->push_back(id);
      table[place] = static_cast<uint32_t>(unique->size());
    }
    positions[i] = table[place] - 1;
  }
}

}  // namespace lodestar
