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
alignas(64) char shared_room[kMaxDim * sizeof(double)] LODESTAR_GUARDED_BY(
    shared_room_mutex);

// Reduces the rows of one bag.
template <typename T>
class Bag {
 public:
  using C = ComputeOf<T>;

  Bag(const Bags& bags, int dim) : bags_(bags), dim_(dim) {}

  void Begin(C* out, int64_t* winners) {
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
          AddToSum(row, C{1});
        } else {
          const C w = bags_.weights[i];
          total_ += bags_.combiner == Combiner::kSqrtn ? w * w : w;
          AddToSum(row, w);
        }
        break;
      case Combiner::kMax:
        for (int c = 0; c < dim_; ++c) {
          const C x = ToCompute(row[c]);
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
      std::fill_n(out_, dim_, C{0});
      return;
    }
    C divisor = 1;
    if (bags_.weights.empty()) total_ = static_cast<C>(count_);
    if (bags_.combiner == Combiner::kMean) divisor = total_;
    if (bags_.combiner == Combiner::kSqrtn) divisor = std::sqrt(total_);
    if (divisor == C{1}) return;
    if (divisor == C{0}) {
      std::fill_n(out_, dim_, C{0});
      return;
    }
    for (int c = 0; c < dim_; ++c) out_[c] /= divisor;
  }

  int64_t count() const { return count_; }

 private:
  void AddToSum(const T* row, C factor) {
    if (count_ == 0) {
      AddScaled<true>(row, factor, dim_, out_);
    } else {
      AddScaled<false>(row, factor, dim_, out_);
    }
  }

  const Bags& bags_;
  const int dim_;
  C* out_ = nullptr;
  int64_t* winners_ = nullptr;
  int64_t count_ = 0;
  C total_ = 0;
};

// fetch(begin, count, rows) copies the rows of ids [begin, begin + count);
// read_default(row) overwrites the zeros of an empty bag.
template <typename T, typename Fetch, typename ReadDefault>
void Pool(int dim, const Bags& bags, T* pooled, int64_t* winners,
          const Fetch& fetch, const ReadDefault& read_default) {
  constexpr bool kRounds = RowRoom<T>::kRounds;
  RowRoom<T> room(dim);
  // Enough rows for the stages of a lookup to overlap.
  const int64_t run = std::min(room.run(), 8 * kRun);
  Bag<T> bag(bags, dim);
  int64_t fetched = bags.row_splits[0];  // rows [first, fetched) are fetched
  int64_t first = fetched;
  const int64_t last = bags.row_splits[bags.size()];
  for (int64_t b = 0; b < bags.size(); ++b) {
    T* out = pooled + b * dim;
    int64_t* out_winners = winners == nullptr ? nullptr : winners + b * dim;
    if constexpr (kRounds) {
      bag.Begin(room.sum(), out_winners);
    } else {
      bag.Begin(out, out_winners);
    }
    for (int64_t i = bags.row_splits[b]; i < bags.row_splits[b + 1]; ++i) {
      if (i == fetched) {
        first = i;
        const int64_t count = std::min(run, last - i);
        fetch(i, count, room.rows());
        fetched = i + count;
      }
      if (bags.is_padding(bags.ids[i])) continue;
      bag.Add(i, room.rows() + (i - first) * dim);
    }
    bag.End();
    if constexpr (kRounds) RoundRow(room.sum(), dim, out);
    if (bag.count() == 0) read_default(out);
  }
}

// Pools rows of a store.
template <typename Fetch>
void PoolStore(const EmbeddingStore& store, const Bags& bags,
               const Missing& missing, void* pooled, int64_t* winners,
               const Fetch& fetch) {
  const auto read_default = [&](void* row) {
    if (bags.default_id == nullptr) return;
    store.Find(Span<const int64_t>(bags.default_id, 1), nullptr, missing, row,
               nullptr, nullptr);
  };
  VisitRowType(store.type(), [&](auto zero) {
    Pool(store.dim(), bags, static_cast<decltype(zero)*>(pooled), winners,
         fetch, read_default);
  });
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

void PoolFound(const EmbeddingStore& store, const Bags& bags,
               Span<const int64_t> positions, Span<const RowRef> refs,
               const Missing& missing, void* pooled, int64_t* winners) {
  PoolStore(store, bags, missing, pooled, winners,
            [&](int64_t begin, int64_t count, void* rows) {
              store.ReadRows(bags.ids, positions, refs, begin, begin + count,
                             missing, rows);
            });
}

void PoolFetched(const FetchedRows& fetched, const Bags& bags,
                 Span<const int64_t> positions, const void* default_row,
                 void* pooled, int64_t* winners) {
  const auto fetch = [&](int64_t begin, int64_t count, void* rows) {
    fetched.Read(positions, begin, begin + count, rows);
  };
  VisitRowType(fetched.type, [&](auto zero) {
    using T = decltype(zero);
    const auto read_default = [&](T* row) {
      if (default_row == nullptr) return;
      std::copy_n(static_cast<const T*>(default_row), fetched.dim, row);
    };
    Pool(fetched.dim, bags, static_cast<T*>(pooled), winners, fetch,
         read_default);
  });
}

void PoolFind(const EmbeddingStore& store, const Bags& bags,
              const Missing& missing, void* pooled, int64_t* winners) {
  ReadCounts counts;
  PoolStore(store, bags, missing, pooled, winners,
            [&](int64_t begin, int64_t count, void* rows) {
              counts +=
                  store.Find(bags.ids.subspan(begin, count), bags.padding_id,
                             missing, rows, nullptr, nullptr);
            });
  store.CountReads(counts);
}

}  // namespace lodestar
