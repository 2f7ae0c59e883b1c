// EvictionOrders: the eviction lists of one shard. One list serves a table with
// either a cap or a maximum age; an LFU cap with a maximum age needs two.
//
// Not thread-safe: requires the shard's mutex.

#ifndef LODESTAR_TF_OPS_CORE_ROWS_EVICTION_ORDERS_H_
#define LODESTAR_TF_OPS_CORE_ROWS_EVICTION_ORDERS_H_

#include <cstdint>
#include <optional>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/memory/arena.h"
#include "tf_ops/core/rows/eviction_list.h"
#include "tf_ops/core/rows/row_store.h"
#include "tf_ops/core/rows/table_policies.h"

namespace lodestar {

class EvictionOrders {
 public:
  // Links are allocated from `arena`.
  EvictionOrders(const EvictionPolicy& policy, const RowStore* rows,
                 Arena* arena) {
    using Order = EvictionPolicy::Order;
    if (policy.keeps_cap_order()) for_cap_.emplace(policy.order, rows, arena);
    if (for_cap_.has_value() && policy.order == Order::kLru) {
      by_age_ = &*for_cap_;
    } else if (policy.keeps_age_order()) {
      by_age_ = &separate_.emplace(Order::kLru, rows, arena);
    }
  }
  EvictionOrders(const EvictionOrders&) = delete;
  EvictionOrders& operator=(const EvictionOrders&) = delete;

  // The list that a cap evicts from. Requires: the table has an evicting cap.
  EvictionList& for_cap() { return *for_cap_; }
  // The list ordered by last step, if any. A table with a maximum age has one.
  EvictionList* by_age() { return by_age_; }
  // Removes a row that for_cap() has already dropped.
  void RemoveFromOthers(uint32_t row) {
    if (separate_.has_value()) separate_->Remove(row);
  }

  // See EvictionList.
  Status Reserve(int64_t capacity) {
    Status status;
    ForEach([&](EvictionList* list) {
      if (status.ok()) status = list->Reserve(capacity);
    });
    return status;
  }
  void Add(uint32_t row) {
    ForEach([row](EvictionList* list) { list->Add(row); });
  }
  void Remove(uint32_t row) {
    ForEach([row](EvictionList* list) { list->Remove(row); });
  }
  void Move(uint32_t from, uint32_t to) {
    ForEach([from, to](EvictionList* list) { list->Move(from, to); });
  }
  void Clear() {
    ForEach([](EvictionList* list) { list->Clear(); });
  }
  void Shrink(int64_t capacity) {
    ForEach([capacity](EvictionList* list) { list->Shrink(capacity); });
  }
  void MarkSorted() {
    ForEach([](EvictionList* list) { list->MarkSorted(); });
  }
  void Prefetch(uint32_t row) {
    ForEach([row](EvictionList* list) { list->Prefetch(row); });
  }
  void PrefetchNeighbors(uint32_t row) {
    ForEach([row](EvictionList* list) { list->PrefetchNeighbors(row); });
  }
  int64_t bytes() const {
    return (for_cap_.has_value() ? for_cap_->bytes() : 0) +
           (separate_.has_value() ? separate_->bytes() : 0);
  }

 private:
  template <typename Visit>
  void ForEach(const Visit& visit) {
    if (for_cap_.has_value()) visit(&*for_cap_);
    if (separate_.has_value()) visit(&*separate_);
  }

  std::optional<EvictionList> for_cap_;
  std::optional<EvictionList> separate_;
  EvictionList* by_age_ = nullptr;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_ROWS_EVICTION_ORDERS_H_
