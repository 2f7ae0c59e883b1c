#include "tf_ops/core/embedding/embedding_pool.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/row_copy.h"
#include "tf_ops/core/embedding/embedding_run.h"

namespace lodestar {
namespace {

// Static, so it takes no memory until it is first used. A thread that holds the
// mutex takes no other mutex, but may wait for row locks (see the lock order in
// docs/internals/storage.md).
Mutex shared_room_mutex;
alignas(64) char shared_room[2 * kMaxDim * sizeof(float)] LODESTAR_GUARDED_BY(
    shared_room_mutex);

// Reduces the rows of one bag.
template <typename T>
class Bag {
 public:
  Bag(const Bags& bags, int dim) : bags_(bags), dim_(dim) {}

  void Begin(float* out, int64_t* winners) {
    out_ = out;
    winners_ = winners;
    count_ = 0;
    total_ = 0;
    if (winners != nullptr) std::fill_n(winners, dim_, int64_t{-1});
  }

  // Adds the row of ids[i], which must not be padding.
  void Add(int64_t i, const T* row) {
    switch (bags_.combiner) {
      case Combiner::kSum:
      case Combiner::kMean:
      case Combiner::kSqrtn:
        if (bags_.weights.empty()) {
          AddToSum(row, 1.0f);
        } else {
          const float w = bags_.weights[i];
          total_ += bags_.combiner == Combiner::kSqrtn ? w * w : w;
          AddToSum(row, w);
        }
        break;
      case Combiner::kMax:
        for (int c = 0; c < dim_; ++c) {
          const float x = ToCompute(row[c]);
          if (winners_[c] < 0 || x > out_[c]) {
            out_[c] = x;
            winners_[c] = i;
          }
        }
        break;
      case Combiner::kFirst:
        if (count_ == 0) ToComputeRow(row, dim_, out_);
        break;
      case Combiner::kLast:
        ToComputeRow(row, dim_, out_);
        break;
    }
    ++count_;
  }

  void End() {
    if (count_ == 0) {
      std::fill_n(out_, dim_, 0.0f);
      return;
    }
    float divisor = 1;
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
  void AddToSum(const T* row, float factor) {
    if (count_ == 0) {
      AddScaled<true>(row, factor, dim_, out_);
    } else {
      AddScaled<false>(row, factor, dim_, out_);
    }
  }

  const Bags& bags_;
  const int dim_;
  float* out_ = nullptr;
  int64_t* winners_ = nullptr;
  int64_t count_ = 0;
  float total_ = 0;
};

// row_of(i) returns the row of ids[i], valid until the next call, in ascending
// order of i; read_default(row) overwrites the zeros of an empty bag.
template <typename T, typename RowOf, typename ReadDefault>
void Pool(const Bags& bags, RowRoom<T>* room, int dim, T* pooled,
          int64_t* winners, const RowOf& row_of,
          const ReadDefault& read_default) {
  constexpr bool kRounds = RowRoom<T>::kRounds;
  Bag<T> bag(bags, dim);
  for (int64_t b = 0; b < bags.size(); ++b) {
    T* out = pooled + b * dim;
    int64_t* out_winners = winners == nullptr ? nullptr : winners + b * dim;
    if constexpr (kRounds) {
      bag.Begin(room->sum(), out_winners);
    } else {
      bag.Begin(out, out_winners);
    }
    for (int64_t i = bags.row_splits[b]; i < bags.row_splits[b + 1]; ++i) {
      if (!bags.is_padding(bags.ids[i])) bag.Add(i, row_of(i));
    }
    bag.End();
    if constexpr (kRounds) RoundRow(room->sum(), dim, out);
    if (bag.count() == 0) read_default(out);
  }
}

// Reads what an empty bag reads from a store.
void ReadDefault(const StoreReads& reads, const Bags& bags, void* row) {
  if (bags.default_id == nullptr) return;
  reads.store->Find(Span<const int64_t>(bags.default_id, 1), nullptr,
                    reads.missing, row, nullptr, nullptr);
}

}  // namespace

WideRowRoom::WideRowRoom(int64_t bytes)
    : own_(new (std::nothrow) char[bytes]), data_(own_.get()) {
  if (data_ != nullptr) return;
  turn_ = std::unique_lock<Mutex>(shared_room_mutex);
  data_ = shared_room;
}

Status CheckBags(const Bags& bags) {
  const Span<const int64_t>& splits = bags.row_splits;
  if (splits.empty()) {
    return InvalidArgument("`row_splits` must have B + 1 elements, got none.");
  }
  if (splits[0] != 0) {
    return InvalidArgument("`row_splits[0]` must be 0, got ", splits[0], ".");
  }
  for (int64_t b = 0; b < bags.size(); ++b) {
    if (splits[b] > splits[b + 1]) {
      return InvalidArgument("`row_splits` must not decrease, but `row_splits[",
                             b, "]` is ", splits[b], " and `row_splits[", b + 1,
                             "]` is ", splits[b + 1], ".");
    }
  }
  if (splits[bags.size()] != bags.ids.size()) {
    return InvalidArgument("`row_splits` must end at ", bags.ids.size(),
                           ", the number of ids, got ", splits[bags.size()],
                           ".");
  }
  if (bags.weights.empty()) return Status();
  if (bags.weights.size() != bags.ids.size()) {
    return InvalidArgument("`weights` has ", bags.weights.size(),
                           " elements, but there are ", bags.ids.size(),
                           " ids.");
  }
  if (bags.combiner != Combiner::kSum && bags.combiner != Combiner::kMean &&
      bags.combiner != Combiner::kSqrtn) {
    return InvalidArgument(
        "`weights` require the combiner sum, mean or sqrtn.");
  }
  return Status();
}

void FetchedRows::Read(Span<const int64_t> positions, int64_t begin,
                       int64_t end, void* rows) const {
  VisitWidth<char>(int64_t{dim} * SizeOf(type), [&](auto width) {
    const char* from = static_cast<const char*>(data);
    char* row = static_cast<char*>(rows);
    for (int64_t i = begin; i < end; ++i, row += width) {
      const int64_t ahead = i + kAhead;
      if (ahead < positions.size() && positions[ahead] != kNoPosition) {
        __builtin_prefetch(from + positions[ahead] * width);
      }
      if (positions[i] == kNoPosition) {
        std::fill_n(row, width, char{0});
      } else {
        CopyRows(from + positions[i] * width, 1, width, row);
      }
    }
  });
}

void PoolFetched(const FetchedRows& fetched, const Bags& bags,
                 Span<const int64_t> positions, const StoreReads& defaults,
                 const void* default_row, void* pooled, int64_t* winners) {
  const int dim = fetched.dim;
  VisitRowType(fetched.type, [&](auto zero) {
    using T = decltype(zero);
    const T* const data = static_cast<const T*>(fetched.data);
    const auto row_of = [&](int64_t i) {
      const int64_t ahead = i + kAhead;
      if (ahead < positions.size() && positions[ahead] != kNoPosition) {
        PrefetchRow<0>(data + positions[ahead] * dim, dim * sizeof(T));
      }
      return data + positions[i] * dim;
    };
    const auto read_default = [&](T* row) {
      if (defaults.store != nullptr) {
        ReadDefault(defaults, bags, row);
      } else if (default_row != nullptr) {
        std::copy_n(static_cast<const T*>(default_row), dim, row);
      }
    };
    RowRoom<T> room(dim);
    Pool(bags, &room, dim, static_cast<T*>(pooled), winners, row_of,
         read_default);
  });
}

void PoolFind(const StoreReads& reads, const Bags& bags, void* pooled,
              int64_t* winners) {
  const EmbeddingStore& store = *reads.store;
  const int dim = store.dim();
  const int64_t last = bags.row_splits[bags.size()];
  ReadCounts counts;
  VisitRowType(store.type(), [&](auto zero) {
    using T = decltype(zero);
    RowRoom<T> room(dim);
    // Enough rows for the stages of a lookup to overlap.
    const int64_t run = std::min(room.run(), 16 * kRun);
    int64_t first = 0;  // rows [first, found) are in the room
    int64_t found = 0;
    const auto row_of = [&](int64_t i) -> const T* {
      if (i >= found) {
        first = i;
        found = i + std::min(run, last - i);
        counts +=
            store.Find(bags.ids.subspan(first, found - first), bags.padding_id,
                       reads.missing, room.rows(), nullptr, nullptr);
      }
      return room.rows() + (i - first) * dim;
    };
    Pool(bags, &room, dim, static_cast<T*>(pooled), winners, row_of,
         [&](T* row) { ReadDefault(reads, bags, row); });
  });
  store.CountReads(counts);
}

void BagFactors(const Bags& bags, Span<const int64_t> positions, int64_t b,
                float* factors) {
  const int64_t first = bags.row_splits[b];
  const int64_t last = bags.row_splits[b + 1];
  const bool weighted = !bags.weights.empty();
  int64_t count = 0;
  int64_t first_id = -1;
  int64_t last_id = -1;
  float total = 0;
  for (int64_t i = first; i < last; ++i) {
    if (positions[i] == kNoPosition) continue;
    ++count;
    if (first_id < 0) first_id = i;
    last_id = i;
    if (weighted) {
      const float w = bags.weights[i];
      total += bags.combiner == Combiner::kSqrtn ? w * w : w;
    }
  }
  if (!weighted) total = static_cast<float>(count);
  float divisor = 1;
  if (bags.combiner == Combiner::kMean) divisor = total;
  if (bags.combiner == Combiner::kSqrtn) divisor = std::sqrt(total);
  const float inverse = divisor == 0.0f ? 0.0f : 1.0f / divisor;
  if (!weighted && bags.combiner <= Combiner::kSqrtn) {
    std::fill_n(factors, last - first, inverse);
    return;
  }
  for (int64_t i = first; i < last; ++i) {
    float& factor = factors[i - first];
    switch (bags.combiner) {
      case Combiner::kSum:
      case Combiner::kMean:
      case Combiner::kSqrtn:
        factor = bags.weights[i] * inverse;
        break;
      case Combiner::kFirst:
        factor = i == first_id ? 1.0f : 0.0f;
        break;
      case Combiner::kLast:
        factor = i == last_id ? 1.0f : 0.0f;
        break;
      case Combiner::kMax:
        factor = 1.0f;
        break;
    }
  }
}

}  // namespace lodestar
