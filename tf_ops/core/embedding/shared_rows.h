// SharedRows: trained rows shared by missing ids (hash buckets).

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_SHARED_ROWS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_SHARED_ROWS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/optimizer_binding.h"
#include "tf_ops/core/embedding/sharded_rows.h"
#include "tf_ops/core/rows/row_initializer.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/table_policies.h"
#include "tf_ops/core/table/embedding_rows.h"

namespace lodestar {

// Methods for a single row require that there are shared rows.
class SharedRows {
 public:
  // Uses the `count` shared rows of `rows`, if any.
  SharedRows(int64_t count, const RowInitializer& initializer,
             ShardedRows* rows, OptimizerBinding* optimizer);
  // Creates the rows; call once. Returns ResourceExhausted if out of memory.
  Status CreateRows();

  int64_t count() const { return count_; }
  bool any() const { return count_ > 0; }
  RowStore* rows() { return rows_.shared(); }
  // The shared row that an id without a row reads and trains.
  uint32_t RowOf(int64_t id) const { return SharedRowOf(id, count_); }
  void Read(int64_t id, void* row) const {
    rows_.shared()->Read(RowOf(id), RowOf(id), row);
  }
  // Copies from a table with equally many rows of the same type. Requires
  // exclusive access to this table's rows.
  void CopyValues(const SharedRows& from);

  // Pairs of shared row and index of an id that reads it, in ascending order.
  using Readers = std::vector<std::pair<uint32_t, int64_t>>;
  // Sums the gradients ([N, dim]) of all readers of readers[first]'s row in the
  // order of the ids, for `count` columns starting at `column`. Returns the
  // index of the next row's first reader.
  size_t Sum(const Readers& readers, size_t first, const float* gradients,
             int column, int count, float* sum) const;

  // The methods below require all locks.

  void Export(EmbeddingRows* out) const;
  // See CheckSharedRows.
  Status Check(const EmbeddingRowsView& rows) const {
    return CheckSharedRows(rows, count_, rows_.dim(), rows_.type());
  }
  // Requires: Check succeeded and the optimizer is attached.
  void Import(const EmbeddingRowsView& rows);
  // Resets the rows to their initial values.
  void Reset();

 private:
  // Requires the row lock, unless the row is not visible yet.
  void Fill(uint32_t row);

  const int64_t count_;
  RowInitializer initializer_;
  ShardedRows& rows_;
  OptimizerBinding& optimizer_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_SHARED_ROWS_H_
