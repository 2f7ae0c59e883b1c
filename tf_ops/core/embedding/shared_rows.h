// SharedRows: trained rows for ids without one of their own, a bag of buckets.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_SHARED_ROWS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_SHARED_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_rows.h"
#include "tf_ops/core/embedding/optimizer_binding.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"

namespace lodestar {

// What is told of one row, or written to one, needs there to be some.
class SharedRows {
 public:
  // Those of `rows`, if it has any: `count`.
  SharedRows(int64_t count, const RowInitializer& initializer,
             ShardedRows* rows, OptimizerBinding* optimizer);
  // Makes them. Once. ResourceExhausted: out of memory.
  Status Make();

  int64_t count() const { return count_; }
  bool any() const { return count_ > 0; }
  RowStore* rows() { return rows_.shared(); }
  // That an id without a row reads and trains.
  uint32_t RowOf(int64_t id) const {
    return static_cast<uint32_t>(Mix64(static_cast<uint64_t>(id)) % count_);
  }
  void Read(int64_t id, void* row) const {
    rows_.shared()->Read(RowOf(id), RowOf(id), row);
  }
  // From a table with as many of one type. By who alone has these.
  void CopyValues(const SharedRows& from);
  // InvalidArgument: there is no number `id`, ids[i] of a call.
  Status CheckNumber(int64_t id, int64_t i) const;

  // The shared row that each of some ids reads, with the id's index, in
  // ascending order.
  using Readers = std::vector<std::pair<uint32_t, int64_t>>;
  // sum: that of `count` columns, from `column` on, of the gradients [N, dim]
  // of the readers of readers[first]'s row, in the order of the ids. Returns
  // the next row's first.
  template <typename C>
  size_t Sum(const Readers& readers, size_t first, const C* gradients,
             int column, int count, C* sum) const;

  // Under all locks.

  void Export(EmbeddingRows* out) const;
  // InvalidArgument: those of another number or type.
  Status Check(const EmbeddingRowsView& rows) const;
  // REQUIRES: Check, and the optimizer is bound.
  void Import(const EmbeddingRowsView& rows);
  // They begin anew.
  void Reset();

 private:
  // By who holds the row, or before anyone can see it.
  void Fill(uint32_t row);

  const int64_t count_;
  RowInitializer initializer_;
  ShardedRows& rows_;
  OptimizerBinding& optimizer_;
};

template <typename C>
size_t SharedRows::Sum(const Readers& readers, size_t first, const C* gradients,
                       int column, int count, C* sum) const {
  std::fill_n(sum, count, C{0});
  size_t i = first;
  for (; i < readers.size() && readers[i].first == readers[first].first; ++i) {
    const C* const gradient =
        gradients + readers[i].second * rows_.dim() + column;
    for (int c = 0; c < count; ++c) sum[c] += gradient[c];
  }
  return i;
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_SHARED_ROWS_H_
