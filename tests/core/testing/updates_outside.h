// Updates of a store that are computed by the caller, outside the store.

#ifndef LODESTAR_TESTS_CORE_TESTING_UPDATES_OUTSIDE_H_
#define LODESTAR_TESTS_CORE_TESTING_UPDATES_OUTSIDE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

inline AttachedOptimizer Unfused(const std::vector<std::string>& slots = {},
                                 const std::vector<float>& inits = {}) {
  AttachedOptimizer optimizer;
  optimizer.name = "replay:test";
  optimizer.slot_names = slots;
  optimizer.slot_inits = inits;
  return optimizer;
}

// Gathered rows, and the state that the store needs to assign them.
class RowsOutside {
 public:
  RowsOutside(EmbeddingStore* store, AttachedOptimizer optimizer)
      : store_(store), optimizer_(std::move(optimizer)) {}

  // Continues with the table that replaced the rows' own.
  void GoTo(EmbeddingStore* store) { store_ = store; }

  Status Gather(const std::vector<int64_t>& ids,
                const std::vector<float>& gradients,
                const ParallelFor* parallel = nullptr) {
    const std::unique_ptr<bool[]> own(new bool[ids.size()]());
    return Gather(ids, {own.get(), static_cast<int64_t>(ids.size())}, gradients,
                  parallel);
  }
  Status Gather(Span<const int64_t> of, Span<const bool> are_shared,
                const std::vector<float>& of_gradients,
                const ParallelFor* parallel = nullptr) {
    const int dim = store_->dim();
    TableUpdate update;
    update.ids = of;
    update.gradients = of_gradients.data();
    update.nonfinite = Nonfinite::kPass;
    return store_->GatherForUpdate(
        update, are_shared, optimizer_,
        [&](int64_t count, RowsForUpdate* out) {
          ids.assign(count, 0);
          shared.reset(new bool[count]());
          gradients.assign(count * dim, 0);
          values.assign(count * dim, 0);
          slots.assign(optimizer_.slot_names.size() * count * dim, 0);
          versions.assign(count, 0);
          *out = {ids.data(),    shared.get(), gradients.data(),
                  values.data(), slots.data(), versions.data()};
          return Status();
        },
        parallel);
  }
  // Rows that have changed since then remain to be gathered again.
  Status Assign(const ParallelFor* parallel = nullptr, int64_t step = -1) {
    const int dim = store_->dim();
    const int64_t count = ids.size();
    const std::unique_ptr<bool[]> changed(new bool[count]);
    UpdatedRows rows;
    rows.ids = ids;
    rows.shared = {shared.get(), count};
    rows.versions = versions;
    rows.values = values.data();
    rows.slots = slots.data();
    LODESTAR_RETURN_IF_ERROR(store_->AssignIfUnchanged(
        rows, optimizer_, step, changed.get(), parallel));
    std::vector<int64_t> left;
    std::vector<float> left_gradients;
    const std::unique_ptr<bool[]> left_shared(new bool[count]);
    for (int64_t k = 0; k < count; ++k) {
      if (!changed[k]) continue;
      left_shared[left.size()] = shared[k];
      left.push_back(ids[k]);
      left_gradients.insert(left_gradients.end(), gradients.begin() + k * dim,
                            gradients.begin() + (k + 1) * dim);
    }
    changed_ids = left;
    if (left.empty()) return Status();
    return Gather(left, {left_shared.get(), static_cast<int64_t>(left.size())},
                  left_gradients, parallel);
  }

  std::vector<int64_t> ids;
  std::unique_ptr<bool[]> shared;
  std::vector<float> gradients;
  std::vector<float> values;
  std::vector<float> slots;
  std::vector<int64_t> versions;
  std::vector<int64_t> changed_ids;

 private:
  EmbeddingStore* store_;
  const AttachedOptimizer optimizer_;
};

}  // namespace lodestar

#endif  // LODESTAR_TESTS_CORE_TESTING_UPDATES_OUTSIDE_H_
