#include "tf_ops/core/embedding_pool.h"

#include <algorithm>
#include <cmath>

#include "tf_ops/core/batch_unique.h"
#include "tf_ops/core/embedding_run.h"

namespace lodestar {
namespace {

bool IsPadding(const Bags& bags, int64_t id) {
  return bags.padding_id != nullptr && id == *bags.padding_id;
}

void AddScaled(const float* __restrict row, float factor, int dim,
               float* __restrict out) {
  for (int c = 0; c < dim; ++c) out[c] += factor * row[c];
}

// One bag as its rows come by.
class Bag {
 public:
  Bag(const Bags& bags, int dim) : bags_(bags), dim_(dim) {}

  void Begin(float* out, int64_t* winners) {
    out_ = out;
    winners_ = winners;
    count_ = 0;
    total_ = 0.0f;
    std::fill_n(out, dim_, 0.0f);
    if (winners != nullptr) std::fill_n(winners, dim_, int64_t{-1});
  }

  // The row of ids[i], which is no padding.
  void Add(int64_t i, const float* row) {
    switch (bags_.combiner) {
      case Combiner::kSum:
      case Combiner::kMean:
      case Combiner::kSqrtn:
        if (bags_.weights.empty()) {
          AddScaled(row, 1.0f, dim_, out_);
        } else {
          const float w = bags_.weights[i];
          total_ += bags_.combiner == Combiner::kSqrtn ? w * w : w;
          AddScaled(row, w, dim_, out_);
        }
        break;
      case Combiner::kMax:
        for (int c = 0; c < dim_; ++c) {
          if (winners_[c] < 0 || row[c] > out_[c]) {
            out_[c] = row[c];
            winners_[c] = i;
          }
        }
        break;
      case Combiner::kFirst:
        if (count_ == 0) std::copy_n(row, dim_, out_);
        break;
      case Combiner::kLast:
        std::copy_n(row, dim_, out_);
        break;
    }
    ++count_;
  }

  void End() {
    if (count_ == 0) return;
    float divisor = 1.0f;
    if (bags_.weights.empty()) total_ = static_cast<float>(count_);
    if (bags_.combiner == Combiner::kMean) divisor = total_;
    if (bags_.combiner == Combiner::kSqrtn) divisor = std::sqrt(total_);
    if (divisor == 1.0f) return;
    if (divisor == 0.0f) {
      std::fill_n(out_, dim_, 0.0f);
      return;
    }
    for (int c = 0; c < dim_; ++c) out_[c] /= divisor;
  }

  int64_t count() const { return count_; }

 private:
  const Bags& bags_;
  const int dim_;
  float* out_ = nullptr;
  int64_t* winners_ = nullptr;
  int64_t count_ = 0;
  float total_ = 0.0f;
};

// fetch(begin, count, rows) copies the rows of ids [begin, begin + count).
template <typename Fetch>
void Pool(const EmbeddingStore& store, const Bags& bags, const Missing& missing,
          float* pooled, int64_t* winners, const ParallelFor* parallel,
          const Fetch& fetch) {
  const int dim = store.dim();
  const int64_t mean_size =
      bags.size() == 0 ? 0 : bags.ids.size() / bags.size() + 1;
  // Enough that the stages of a look-up overlap.
  const int64_t run = std::clamp(kMaxDim / dim, 1, 8 * kRun);
  const auto body = [&](int64_t begin, int64_t end) {
    float rows[kMaxDim];
    Bag bag(bags, dim);
    int64_t fetched = bags.row_splits[begin];  // rows [first, fetched)
    int64_t first = fetched;
    const int64_t last = bags.row_splits[end];
    for (int64_t b = begin; b < end; ++b) {
      bag.Begin(pooled + b * dim,
                winners == nullptr ? nullptr : winners + b * dim);
      for (int64_t i = bags.row_splits[b]; i < bags.row_splits[b + 1]; ++i) {
        if (i == fetched) {
          first = i;
          const int64_t count = std::min<int64_t>(run, last - i);
          fetch(i, count, rows);
          fetched = i + count;
        }
        if (IsPadding(bags, bags.ids[i])) continue;
        bag.Add(i, rows + (i - first) * dim);
      }
      bag.End();
      if (bag.count() == 0 && bags.default_id != nullptr) {
        store.Find(Span<const int64_t>(bags.default_id, 1), nullptr, missing,
                   pooled + b * dim, nullptr, nullptr);
      }
    }
  };
  RunParallel(parallel, bags.size(), mean_size * (40 + 2 * dim), body);
}

}  // namespace

Status CheckBags(const Bags& bags) {
  const Span<const int64_t>& splits = bags.row_splits;
  if (splits.empty()) {
    return InvalidArgument("`row_splits` is empty, wanted B + 1 offsets");
  }
  if (splits[0] != 0) {
    return InvalidArgument("`row_splits[0]` is ", splits[0], ", wanted 0");
  }
  for (int64_t b = 0; b < bags.size(); ++b) {
    if (splits[b] > splits[b + 1]) {
      return InvalidArgument("`row_splits[", b, "]`=", splits[b],
                             " is greater than `row_splits[", b + 1,
                             "]`=", splits[b + 1]);
    }
  }
  if (splits[bags.size()] != bags.ids.size()) {
    return InvalidArgument("`row_splits` ends at ", splits[bags.size()],
                           ", but there are ", bags.ids.size(), " ids");
  }
  if (bags.weights.empty()) return Status();
  if (bags.weights.size() != bags.ids.size()) {
    return InvalidArgument("`weights` has ", bags.weights.size(),
                           " numbers, but there are ", bags.ids.size(), " ids");
  }
  if (bags.combiner != Combiner::kSum && bags.combiner != Combiner::kMean &&
      bags.combiner != Combiner::kSqrtn) {
    return InvalidArgument(
        "`weights` go with the combiners sum, mean and sqrtn only");
  }
  return Status();
}

void PoolFound(const EmbeddingStore& store, const Bags& bags,
               Span<const int64_t> positions, Span<const RowRef> refs,
               const Missing& missing, float* pooled, int64_t* winners,
               const ParallelFor* parallel) {
  const int dim = store.dim();
  Pool(store, bags, missing, pooled, winners, parallel,
       [&](int64_t begin, int64_t count, float* rows) {
         for (int64_t i = begin; i < begin + count; ++i) {
           const int64_t ahead = i + kAhead;
           if (ahead < positions.size() && positions[ahead] != kNoPosition) {
             store.Prefetch(refs[positions[ahead]]);
           }
           if (positions[i] == kNoPosition) continue;
           store.ReadRow(refs[positions[i]], bags.ids[i], missing,
                         rows + (i - begin) * dim);
         }
       });
}

void PoolFind(const EmbeddingStore& store, const Bags& bags,
              const Missing& missing, float* pooled, int64_t* winners,
              const ParallelFor* parallel) {
  Pool(store, bags, missing, pooled, winners, parallel,
       [&](int64_t begin, int64_t count, float* rows) {
         store.Find(bags.ids.subspan(begin, count), bags.padding_id, missing,
                    rows, nullptr, nullptr);
       });
}

}  // namespace lodestar
