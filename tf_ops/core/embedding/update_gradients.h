// The gradients of an update on their way to a store: summed by id, and checked
// for NaN and infinity.

#ifndef LODESTAR_TF_OPS_CORE_EMBEDDING_UPDATE_GRADIENTS_H_
#define LODESTAR_TF_OPS_CORE_EMBEDDING_UPDATE_GRADIENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/core/table/lookup_plan.h"
#include "tf_ops/core/table/table.h"

namespace lodestar {

// Gradients of unique ids, [U, D] of the type in which rows of a store are
// computed.
class UniqueGradients {
 public:
  UniqueGradients() = default;
  // Refers to its arguments. `exempt`: the ids whose gradients are not checked;
  // may be empty.
  UniqueGradients(Span<const int64_t> ids, Span<const bool> exempt,
                  const void* rows)
      : ids_(ids), exempt_(exempt), rows_(rows) {}

  // Sums the gradients of an update, by id in the order of first occurrence.
  // Refers to its arrays if no id repeats.
  void Sum(const TableUpdate& update, const ParallelFor* parallel);

  Span<const int64_t> ids() const { return ids_; }
  Span<const bool> exempt() const { return exempt_; }
  const void* rows() const { return rows_; }
  // The plan of the lookup that found these ids, or null.
  const LookupPlan* plan() const { return plan_; }
  // The number of ids that KeepFinite dropped.
  int64_t num_dropped() const { return num_dropped_; }

  // Returns true if the gradients and their sums by shared row are known to be
  // finite.
  bool AreSurelyFinite(const EmbeddingStore& store,
                       const ParallelFor* parallel) const;
  // Drops the ids whose gradients are not finite, also as sums by shared row.
  // Returns InvalidArgument instead if `nonfinite` is kRaise.
  Status KeepFinite(const EmbeddingStore& store, Nonfinite nonfinite);

 private:
  struct alignas(64) CacheLine {
    char bytes[64];
  };

  char* AllocateRows(int64_t bytes);

  Span<const int64_t> ids_;
  Span<const bool> exempt_;
  const void* rows_ = nullptr;
  const LookupPlan* plan_ = nullptr;
  int64_t num_dropped_ = 0;
  // Empty if they are the caller's.
  std::vector<int64_t> own_ids_;
  std::unique_ptr<bool[]> own_exempt_;
  std::unique_ptr<CacheLine[]> own_rows_;
};

// An update with these gradients, ready for the checks of
// EmbeddingStore::Apply. Refers to the arrays of the TableUpdate.
class SummedUpdate {
 public:
  // Returns InvalidArgument for an unknown optimizer or a wrong number of
  // hyperparameters. The gradients are not checked yet.
  Status Init(const TableUpdate& update, const ParallelFor* parallel);

  // Returns true if KeepFinite need not be called.
  bool IsSurelyFinite(const ParallelFor* parallel) const;
  Status KeepFinite();

  // The update for the table, or for one with the same dim and type that has
  // replaced it. Valid while this exists.
  EmbeddingStore::UniqueUpdate For(EmbeddingStore* store) const;
  int64_t num_nonfinite() const { return gradients_.num_dropped(); }
  // Applies this update alone, also to such a table.
  Status Apply(EmbeddingStore* store, const ParallelFor* parallel) const;

 private:
  const EmbeddingStore& store() const;

  TableUpdate update_;
  SparseOptimizer optimizer_;
  UniqueGradients gradients_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_EMBEDDING_UPDATE_GRADIENTS_H_
