#include <new>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/core/embedding/embedding_gradient.h"
#include "tf_ops/core/embedding/embedding_pool.h"
#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {
Status CollectionBatch::SumGradients(const std::vector<const void*>& gradients,
                                     const std::vector<const int64_t*>& winners,
                                     const std::vector<Sums>& tables,
                                     const ParallelFor* parallel) const try {
  std::vector<std::vector<float>> factors(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    factors[t].resize(num_ids_[t]);
  }
  ForEachTask(10, parallel, [&](const Task& task) {
    const Part& part = parts_[task.part];
    if (!part.pooled) return;
    const Bags& bags = part.bags;
    const int64_t table = part.feature->table;
    const Span<const int64_t> positions = PositionsOf(part, tables[table]);
    for (int64_t b = task.begin; b < task.end; ++b) {
      BagFactors(bags, positions, b,
                 factors[table].data() + part.offset + bags.row_splits[b]);
    }
  });
  const int64_t num_tables = static_cast<int64_t>(tables.size());
  // With many tables, each one is a single part.
  const int64_t num_parts = num_tables >= kSumParts ? 1 : kSumParts;
  int64_t cost = 0;
  for (int64_t t = 0; t < num_tables; ++t) {
    cost += num_ids_[t] * (tables[t].dim + 8) / 4;
  }
  const int64_t num_tasks = num_tables * num_parts;
  RunParallel(parallel, num_tasks, cost / num_tasks + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end;) {
                  const int64_t t = i / num_parts;
                  // A single part does not have to filter positions.
                  const bool whole = i % num_parts == 0 && i + num_parts <= end;
                  VisitRowType(tables[t].type, [&](auto zero) {
                    using T = decltype(zero);
                    SumPart<T>(t, i % num_parts, whole ? 1 : num_parts,
                               gradients, winners, factors[t].data(),
                               tables[t]);
                  });
                  i += whole ? num_parts : 1;
                }
              });
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradient of a batch.");
}

template <typename T>
void CollectionBatch::SumPart(int64_t t, int64_t part, int64_t num_parts,
                              const std::vector<const void*>& gradients,
                              const std::vector<const int64_t*>& winners,
                              const float* factors, const Sums& table) const {
  const int dim = table.dim;
  GradientSums sums(table.sums, table.num_unique, dim, part, num_parts);
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& feature = parts_[p];
    if (feature.feature->table != t) continue;
    const Span<const int64_t> positions = PositionsOf(feature, table);
    const float* feature_factors = factors + feature.offset;
    // Adds `row` to the ids [first, last), scaled by the factor or by winner.
    const auto add = [&](int64_t item, int64_t first, int64_t last) {
      const T* row = static_cast<const T*>(gradients[p]) + item * dim;
      const int64_t* winner =
          winners[p] == nullptr ? nullptr : winners[p] + item * dim;
      for (int64_t i = first; i < last; ++i) {
        const int64_t ahead = i + kAhead;
        if (ahead < positions.size() && sums.Has(positions[ahead])) {
          sums.Prefetch(positions[ahead]);
        }
        if (!sums.Has(positions[i])) continue;
        float* const sum = sums.Row(positions[i]);
        if (winner == nullptr) {
          AddScaled<false>(row, feature.pooled ? feature_factors[i] : 1.0f, dim,
                           sum);
          continue;
        }
        for (int c = 0; c < dim; ++c) {
          if (winner[c] == i) sum[c] += ToCompute(row[c]);
        }
      }
    };
    for (int64_t k = 0; k < feature.num_items(); ++k) {
      if (feature.pooled) {
        add(k, feature.bags.row_splits[k], feature.bags.row_splits[k + 1]);
      } else {
        add(k, k, k + 1);
      }
    }
  }
  sums.Finish();
}

}  // namespace lodestar
