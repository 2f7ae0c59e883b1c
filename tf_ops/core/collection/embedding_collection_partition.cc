#include <algorithm>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/id_parts.h"
#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/core/embedding/embedding_pool.h"

namespace lodestar {

Status CollectionBatch::PartitionBags(int64_t num_parts,
                                      std::vector<std::vector<PartBags>>* parts,
                                      const std::vector<Span<int64_t>>& places,
                                      const ParallelFor* parallel) const {
  const int64_t num_features = static_cast<int64_t>(parts_.size());
  int64_t num_ids = 0;
  for (const int64_t count : num_ids_) num_ids += count;
  parts->resize(num_features);
  return RunAllocating(parallel, num_features, 20 * num_ids / num_features + 1,
                       [&](int64_t begin, int64_t end) {
                         for (int64_t f = begin; f < end; ++f) {
                           (*parts)[f].resize(num_parts);
                           PartitionFeature(parts_[f], (*parts)[f].data(),
                                            num_parts, places[f]);
                         }
                       });
}

void CollectionBatch::PartitionFeature(const Part& part, PartBags* parts,
                                       int64_t num_parts,
                                       Span<int64_t> places) {
  // Correct also if each bag is one id: then the splits are the tensors' own.
  const Bags& bags = part.bags;
  const Span<const int64_t> whole = part.tensors.row_splits;
  std::vector<int64_t> positions(bags.ids.size());
  std::vector<int64_t> owners(bags.ids.size());
  std::vector<float> factors(bags.ids.size());
  for (int64_t i = 0; i < bags.ids.size(); ++i) {
    const bool padding = bags.is_padding(bags.ids[i]);
    positions[i] = padding ? kNoPosition : 0;
    owners[i] = padding ? 0 : PartOfId(bags.ids[i], num_parts);
  }
  std::fill(places.begin(), places.end(), int64_t{-1});
  for (int64_t p = 0; p < num_parts; ++p) parts[p].row_splits = {0};
  for (int64_t b = 0; b < bags.size(); ++b) {
    const int64_t first = bags.row_splits[b];
    const int64_t last = bags.row_splits[b + 1];
    BagFactors(bags, positions, b, factors.data() + first);
    for (int64_t i = first; i < last; ++i) {
      const bool padding = positions[i] == kNoPosition;
      PartBags& own = parts[owners[i]];
      places[whole[b] + i - first] = static_cast<int64_t>(own.ids.size());
      own.ids.push_back(bags.ids[i]);
      own.factors.push_back(padding ? 0.0f : factors[i]);
    }
    for (int64_t p = 0; p < num_parts; ++p) {
      parts[p].row_splits.push_back(static_cast<int64_t>(parts[p].ids.size()));
    }
  }
  // Places are relative to their part until here.
  std::vector<int64_t> begins = {0};
  for (int64_t p = 0; p < num_parts; ++p) {
    begins.push_back(begins.back() + static_cast<int64_t>(parts[p].ids.size()));
  }
  for (int64_t b = 0; b < bags.size(); ++b) {
    for (int64_t i = bags.row_splits[b]; i < bags.row_splits[b + 1]; ++i) {
      places[whole[b] + i - bags.row_splits[b]] += begins[owners[i]];
    }
  }
}

}  // namespace lodestar
