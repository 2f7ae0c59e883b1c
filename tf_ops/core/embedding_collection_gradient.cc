#include <algorithm>
#include <cmath>

#include "tf_ops/core/batch_unique.h"
#include "tf_ops/core/embedding_collection.h"
#include "tf_ops/core/embedding_gradient.h"
#include "tf_ops/core/embedding_run.h"

namespace lodestar {
namespace {

// What each id of a table gets of the gradient of its feature.
struct Terms {
  explicit Terms(int64_t size) : rows(size), factors(size), parts(size) {}
  std::vector<const float*> rows;
  std::vector<float> factors;
  std::vector<uint32_t> parts;
};

}  // namespace

Status CollectionBatch::SumGradients(const std::vector<const float*>& gradients,
                                     const std::vector<const int64_t*>& winners,
                                     const std::vector<Sums>& tables,
                                     const ParallelFor* parallel) const {
  const int64_t num_tables = static_cast<int64_t>(tables.size());
  std::vector<Terms> terms;
  int64_t most = 0;
  for (int64_t t = 0; t < num_tables; ++t) {
    terms.emplace_back(num_ids_[t]);
    most = std::max(most, num_ids_[t]);
  }
  ForEachBlock(10, parallel, [&](const Block& block) {
    const Part& part = parts_[block.part];
    const Bags& bags = part.bags;
    const Sums& table = tables[part.feature->table];
    Terms& term = terms[part.feature->table];
    int64_t begin = 0;
    int64_t end = 0;
    IdRange(part, block, &begin, &end);
    std::fill_n(term.parts.data() + part.offset + begin, end - begin,
                static_cast<uint32_t>(block.part));
    const float** rows = term.rows.data() + part.offset;
    float* factors = term.factors.data() + part.offset;
    for (int64_t k = block.begin; k < block.end; ++k) {
      const float* row = gradients[block.part] + k * table.dim;
      if (!part.feature->pooled) {
        rows[k] = row;
        factors[k] = 1.0f;
        continue;
      }
      const int64_t first = bags.row_splits[k];
      std::fill_n(rows + first, bags.row_splits[k + 1] - first, row);
      BagFactors(bags, table.positions.subspan(part.offset, bags.ids.size()), k,
                 factors + first);
    }
  });

  std::vector<std::unique_ptr<const Occurrences>> occurrences(num_tables);
  LODESTAR_RETURN_IF_ERROR(RunAllocating(
      parallel, num_tables, 5 * most, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          occurrences[t] = std::make_unique<const Occurrences>(
              tables[t].positions, tables[t].num_unique);
        }
      }));

  // One loop over the distinct ids of all tables.
  std::vector<int64_t> begins(num_tables + 1, 0);
  int64_t work = 0;
  for (int64_t t = 0; t < num_tables; ++t) {
    begins[t + 1] = begins[t] + tables[t].num_unique;
    work += num_ids_[t] * (10 + tables[t].dim / 2);
  }
  const auto sum_table = [&](int64_t t, int64_t begin, int64_t end) {
    const int dim = tables[t].dim;
    const std::vector<int64_t>& ends = occurrences[t]->begins;
    for (int64_t u = begin; u < end; ++u) {
      float* sum = tables[t].sums + u * dim;
      std::fill_n(sum, dim, 0.0f);
      for (int64_t k = ends[u]; k < ends[u + 1]; ++k) {
        const int64_t i = occurrences[t]->order[k];
        const uint32_t part = terms[t].parts[i];
        const float* row = terms[t].rows[i];
        const float factor = terms[t].factors[i];
        if (winners[part] == nullptr) {
          for (int c = 0; c < dim; ++c) sum[c] += factor * row[c];
          continue;
        }
        const int64_t* winner = winners[part] + (row - gradients[part]);
        const int64_t place = i - parts_[part].offset;
        for (int c = 0; c < dim; ++c) {
          if (winner[c] == place) sum[c] += row[c];
        }
      }
    }
  };
  RunParallel(parallel, begins.back(),
              work / std::max<int64_t>(1, begins.back()) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t t = 0; t < num_tables; ++t) {
                  const int64_t first = std::max(begin, begins[t]);
                  const int64_t last = std::min(end, begins[t + 1]);
                  if (first >= last) continue;
                  sum_table(t, first - begins[t], last - begins[t]);
                }
              });
  return Status();
}

void CollectionBatch::WeightGradientsOfBlock(const Block& block,
                                             const Table& table,
                                             const float* gradients,
                                             float* weight_gradients) const {
  const Part& part = parts_[block.part];
  const Bags& bags = part.bags;
  const Span<const int64_t>& whole = part.tensors.row_splits;
  const int dim = table.store->dim();
  const int64_t run = std::clamp(kMaxDim / dim, 1, kRun);
  float rows[kMaxDim];
  for (int64_t b = block.begin; b < block.end; ++b) {
    const float* gradient = gradients + b * dim;
    const int64_t first = bags.row_splits[b];
    const int64_t count = bags.row_splits[b + 1] - first;
    float* out = weight_gradients + whole[b];
    std::fill_n(out, whole[b + 1] - whole[b], 0.0f);
    float* along = out;  // gradient . row, for each id of the bag, until below
    for (int64_t i = 0; i < count; i += run) {
      const int64_t here = std::min(run, count - i);
      table.store->Find(bags.ids.subspan(first + i, here), bags.padding_id,
                        table.missing, rows, nullptr, nullptr);
      for (int64_t j = 0; j < here; ++j) {
        for (int c = 0; c < dim; ++c) {
          along[i + j] += gradient[c] * rows[j * dim + c];
        }
      }
    }
    // y = sum(w x) / divisor.
    float total = 0.0f;
    float along_sum = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
      if (part.is_padding(bags.ids[first + i])) continue;
      const float w = bags.weights[first + i];
      total += bags.combiner == Combiner::kSqrtn ? w * w : w;
      along_sum += w * along[i];
    }
    for (int64_t i = 0; i < count; ++i) {
      if (part.is_padding(bags.ids[first + i])) {
        out[i] = 0.0f;
      } else if (bags.combiner == Combiner::kSum) {
        out[i] = along[i];
      } else if (total == 0.0f) {
        out[i] = 0.0f;
      } else if (bags.combiner == Combiner::kMean) {
        // dy/dw = (x - y) / sum(w)
        out[i] = (along[i] - along_sum / total) / total;
      } else {
        // dy/dw = x / s - w y / s^2, s^2 = sum(w^2)
        const float s = std::sqrt(total);
        out[i] =
            along[i] / s - bags.weights[first + i] * (along_sum / s) / total;
      }
    }
  }
}

void CollectionBatch::WeightGradients(
    const std::vector<Table>& tables,
    const std::vector<const float*>& gradients,
    const std::vector<float*>& weight_gradients,
    const ParallelFor* parallel) const {
  int widest = 0;
  for (const Table& table : tables) {
    widest = std::max(widest, table.store->dim());
  }
  ForEachBlock(RowCost(widest), parallel, [&](const Block& block) {
    if (weight_gradients[block.part] == nullptr) return;
    WeightGradientsOfBlock(block, tables[parts_[block.part].feature->table],
                           gradients[block.part], weight_gradients[block.part]);
  });
}

}  // namespace lodestar
