// Pooled lookups: reduce each bag of ids to one row without storing the
// unpooled rows.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_POOL_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_POOL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "tf_ops/core/base/combiner.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/row_type.h"

namespace lodestar {

// Buffers for rows on their way into a bag. Threads may have small stacks, and
// a lookup must not fail once it has created rows.

// Heap memory for one row and its sum. Out of memory, uses a static buffer, one
// thread at a time. `bytes`: at most the size of 2 * kMaxDim floats.
class WideRowRoom {
 public:
  explicit WideRowRoom(int64_t bytes);

  char* data() const { return data_; }

 private:
  std::unique_ptr<char[]> own_;
  std::unique_lock<Mutex> turn_;
  char* data_ = nullptr;
};

// Rows of T that are fetched together, and a sum that is rounded to T at the
// end. On the stack except for wide rows.
template <typename T>
class RowRoom {
 public:
  static constexpr bool kRounds = !std::is_same_v<T, float>;

  explicit RowRoom(int dim) : run_(std::max(1, kOnStack / dim)) {
    if (dim <= kOnStack) return;
    const int64_t sum_bytes = kRounds ? dim * int64_t{sizeof(float)} : 0;
    wide_.emplace(sum_bytes + dim * int64_t{sizeof(T)});
    sum_ = reinterpret_cast<float*>(wide_->data());
    rows_ = reinterpret_cast<T*>(wide_->data() + sum_bytes);
  }
  RowRoom(const RowRoom&) = delete;
  RowRoom& operator=(const RowRoom&) = delete;

  // Number of rows that fit.
  int run() const { return run_; }
  T* rows() { return rows_; }
  // Requires: kRounds.
  float* sum() { return sum_; }

 private:
  // Number of elements: 128 KiB at most.
  static constexpr int kOnStack = 16384;

  const int run_;
  std::optional<WideRowRoom> wide_;
  T rows_on_stack_[kOnStack];
  float sum_on_stack_[kRounds ? kOnStack : 1];
  T* rows_ = rows_on_stack_;
  float* sum_ = sum_on_stack_;
};

// B bags over N ids: bag b holds ids [row_splits[b], row_splits[b + 1]).
// Padding ids are ignored everywhere. Weights are allowed for sum, mean (sum(w
// x) / sum(w)) and sqrtn (sum(w x) / sqrt(sum(w^2))) only; a zero divisor gives
// zeros. An empty bag gives zeros or the row of *default_id.
struct Bags {
  Span<const int64_t> ids;
  Span<const int64_t> row_splits;
  Span<const float> weights;  // empty: all 1
  Combiner combiner = Combiner::kSum;
  const int64_t* padding_id = nullptr;
  const int64_t* default_id = nullptr;

  int64_t size() const { return row_splits.size() - 1; }
  bool is_padding(int64_t id) const {
    return padding_id != nullptr && id == *padding_id;
  }
};

// Returns InvalidArgument for splits that do not start at 0, descend or do not
// end at N, for other than N weights, and for weights with max, first or last.
Status CheckBags(const Bags& bags);

// The rows of the unique ids of a batch, of a table that may be elsewhere.
struct FetchedRows {
  RowType type = RowType::kFloat32;
  int dim = 0;
  const void* data = nullptr;  // [size, dim]
  int64_t size = 0;

  // Copies the rows of ids [begin, end); kNoPosition gives zeros. Requires:
  // every position is kNoPosition or in [0, size).
  void Read(Span<const int64_t> positions, int64_t begin, int64_t end,
            void* rows) const;
};

// Reads rows of a store that no training lookup has found.
struct StoreReads {
  const EmbeddingStore* store = nullptr;
  Missing missing;
};

// Pools fetched rows: id i has row positions[i]. An empty bag reads the row of
// *default_id from `defaults`, or `default_row`; zeros if both are null.
// `pooled`: [B, D] of the rows' type, computed as float and rounded
// once. `winners`: for max only, else null; [B, D], the index in ids of the
// largest element, or -1 for none. Requires: CheckBags(bags), and positions as
// for FetchedRows::Read.
void PoolFetched(const FetchedRows& fetched, const Bags& bags,
                 Span<const int64_t> positions, const StoreReads& defaults,
                 const void* default_row, void* pooled, int64_t* winners);

// Looks up and pools rows, and counts them as reads. Changes no row. Requires:
// CheckBags(bags).
void PoolFind(const StoreReads& reads, const Bags& bags, void* pooled,
              int64_t* winners);

// The factors by which each id of bag b scales the bag's gradient. They are 1
// for max, where the winners determine which columns an id gets. bags.ids is
// not read.  Requires: CheckBags(bags); `factors` has one
// element per id of the bag.
void BagFactors(const Bags& bags, Span<const int64_t> positions, int64_t b,
                float* factors);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_EMBEDDING_POOL_H_
