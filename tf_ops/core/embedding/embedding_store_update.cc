#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/embedding/embedding_store_run.h"

namespace lodestar {

Status EmbeddingStore::CheckOptimizer(
    const AttachedOptimizer& optimizer) const {
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  if (optimizer_.name.empty()) return Status();
  if (optimizer_.name == optimizer.name) {
    if (optimizer_.slot_names == optimizer.slot_names) return Status();
    const auto listed = [](const std::vector<std::string>& names) {
      std::string list;
      for (const std::string& name : names) {
        list += (list.empty() ? "" : ", ") + name;
      }
      return list;
    };
    return Status(StatusCode::kFailedPrecondition,
                  StrCat("the table holds the optimizer slots [",
                         listed(optimizer_.slot_names), "] of '",
                         optimizer.name, "', but it is to be applied with [",
                         listed(optimizer.slot_names), "]"));
  }
  return Status(
      StatusCode::kFailedPrecondition,
      StrCat("the table holds the optimizer slots of '", optimizer_.name,
             "', but '", optimizer.name,
             "' is to be applied; a snapshot is restored without them by "
             "optimizer_slots=\"reset\""));
}

Status EmbeddingStore::ReserveOptimizer(const AttachedOptimizer& optimizer) {
  for (const auto& shard : shards_) {
    LODESTAR_RETURN_IF_ERROR(
        shard->rows.ReserveSlots(optimizer.slot_inits.size()));
  }
  return Status();
}

void EmbeddingStore::Attach(AttachedOptimizer optimizer) {
  // First, so that updates of another optimizer keep off the slots.
  attachment_.fetch_add(1, std::memory_order_relaxed);
  for (const auto& shard : shards_) {
    shard->rows.AttachSlots(optimizer.slot_inits);
  }
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  optimizer_ = std::move(optimizer);
  attached_.store(!optimizer_.name.empty(), std::memory_order_release);
}

uint64_t EmbeddingStore::AttachmentOf(
    const AttachedOptimizer& optimizer) const {
  std::lock_guard<std::mutex> lock(optimizer_mutex_);
  return optimizer_.name == optimizer.name &&
                 optimizer_.slot_names == optimizer.slot_names
             ? attachment_.load(std::memory_order_relaxed)
             : kNoAttachment;
}

void EmbeddingStore::MoveStep(int64_t next_step) {
  if (next_step == kSameStep || own_step_.load(std::memory_order_relaxed)) {
    return;
  }
  if (next_step < 0) {
    step_.fetch_add(1, std::memory_order_relaxed);
  } else {
    step_.store(next_step, std::memory_order_relaxed);
  }
}

template <typename T>
inline void EmbeddingStore::UpdateRow(const RowStore& rows, uint32_t row,
                                      const ComputeOf<T>* gradient,
                                      const SparseOptimizer& optimizer,
                                      ComputeOf<T>* value) const {
  ComputeOf<T>* slots[RowStore::kMaxSlots];
  for (int s = 0; s < optimizer.num_slots(); ++s) {
    slots[s] = static_cast<ComputeOf<T>*>(rows.slot(row, s));
  }
  rows.BeforeWrite(row);
  CopyComputedOut<T>(rows.values(row), dim_, value);
  optimizer.Update(gradient, dim_, value, slots);
  CopyComputedIn<T>(value, dim_, rows.values(row));
}

template <typename T>
void EmbeddingStore::ApplyShared(ColdIds* cold, const ComputeOf<T>* gradients,
                                 uint64_t attachment,
                                 const SparseOptimizer& optimizer) {
  std::sort(cold->begin(), cold->end());
  const RowStore& rows = shared_rows();
  ComputeOf<T> sum[kMaxDim];
  ComputeOf<T> value[kMaxDim];
  for (size_t i = 0; i < cold->size();) {
    const uint32_t row = (*cold)[i].first;
    const size_t next = SumShared(*cold, i, gradients, sum);
    rows.Lock(row, row);
    if (attachment_.load(std::memory_order_relaxed) == attachment) {
      UpdateRow<T>(rows, row, sum, optimizer, value);
    } else {
      gradients_dropped_.fetch_add(next - i, std::memory_order_relaxed);
    }
    rows.Unlock(row);
    i = next;
  }
}

template <typename T>
void EmbeddingStore::UpdateRows(Span<const int64_t> unique_ids,
                                const std::vector<char>& is_cold,
                                const ComputeOf<T>* gradients,
                                uint64_t attachment,
                                const SparseOptimizer& optimizer,
                                const ParallelFor* parallel) {
  const int num_slots = optimizer.num_slots();
  const auto load = [num_slots](const RowStore& rows, const RowRef& ref) {
    rows.PrefetchWithSlots(ref.row, ref.meta, num_slots);
  };
  const auto body = [&](int64_t begin, int64_t end) {
    ComputeOf<T> value[kMaxDim];
    int64_t dropped = 0;
    const auto visit = [&](int64_t first, Span<const int64_t> run,
                           Probe* probes) {
      for (int i = 0; i < run.size(); ++i) {
        const int64_t u = begin + first + i;
        if (!is_cold.empty() && is_cold[u]) continue;
        RowRef ref = Confirm(run[i], probes + i);
        const RowStore& rows = probes[i].shard->rows;
        bool held = ref.found() && (RowStore::Lock(ref.meta, run[i]) ||
                                    LockAgain(run[i], &ref));
        if (held && attachment_.load(std::memory_order_relaxed) != attachment) {
          RowStore::Unlock(ref.meta);
          held = false;
        }
        if (!held) {
          ++dropped;
          continue;
        }
        UpdateRow<T>(rows, ref.row, gradients + u * dim_, optimizer, value);
        RowStore::Unlock(ref.meta);
      }
    };
    ForEachRun(unique_ids.subspan(begin, end - begin), load, visit);
    if (dropped > 0) {
      gradients_dropped_.fetch_add(dropped, std::memory_order_relaxed);
    }
  };
  RunParallel(parallel, unique_ids.size(), RowCost(dim_ * (2 + num_slots)),
              body);
}

Status EmbeddingStore::PrepareApply(Span<const int64_t> unique_ids,
                                    const void* gradients,
                                    const AttachedOptimizer& attached,
                                    const SparseOptimizer& optimizer,
                                    bool create_missing,
                                    const ParallelFor* parallel,
                                    std::vector<char>* is_cold) {
  const int64_t count = unique_ids.size();
  std::vector<RowRef> refs(count);
  FindAll(unique_ids, refs, parallel);
  std::vector<int64_t> missing;
  ColdIds cold;
  for (int64_t i = 0; i < count; ++i) {
    if (refs[i].found()) continue;
    if (create_missing) missing.push_back(i);
    if (shared_ != nullptr) cold.push_back({SharedRowOf(unique_ids[i]), i});
  }
  if (shared_ != nullptr) is_cold->resize(count, 0);
  AttachedOptimizer of_shared;
  if (shared_ != nullptr) {
    of_shared = attached;
    LODESTAR_RETURN_IF_ERROR(ReserveShared(attached));
  }
  InsertOptions insert;
  insert.now = step();
  // Seen by the replica that the gradient comes from.
  insert.admission = insert.count = UsesAdmission();
  LODESTAR_RETURN_IF_ERROR(InsertMissing(
      unique_ids, missing, insert, refs, parallel,
      [&](int64_t i, const RowRef& ref) { FillNewRow(unique_ids[i], ref); },
      &attached));
  if (shared_ == nullptr) return Status();
  cold.erase(
      std::remove_if(cold.begin(), cold.end(),
                     [&](const auto& c) { return refs[c.second].found(); }),
      cold.end());
  for (const auto& c : cold) (*is_cold)[c.second] = 1;
  AttachShared(std::move(of_shared));
  const uint64_t attachment = AttachmentOf(attached);
  VisitRowType(type_, [&](auto zero) {
    using T = decltype(zero);
    ApplyShared<T>(&cold, static_cast<const ComputeOf<T>*>(gradients),
                   attachment, optimizer);
  });
  return Status();
}

Status EmbeddingStore::Apply(Span<const int64_t> unique_ids,
                             const void* gradients, const std::string& name,
                             const SparseOptimizer& optimizer,
                             Span<const float> slot_inits, bool create_missing,
                             int64_t next_step,
                             const ParallelFor* parallel) try {
  if (slot_inits.size() != optimizer.num_slots()) {
    return InvalidArgument("`slot_inits` has ", slot_inits.size(),
                           " numbers, but '", name, "' has ",
                           optimizer.num_slots(), " optimizer slots");
  }
  AttachedOptimizer attached;
  attached.name = name;
  if (!SparseOptimizer::SlotNames(name, &attached.slot_names)) {
    return InvalidArgument("unknown optimizer '", name, "'");
  }
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(attached));
  attached.slot_inits.assign(slot_inits.begin(), slot_inits.end());
  // Those whose gradient has gone to a shared row.
  std::vector<char> is_cold;
  if (create_missing || shared_ != nullptr ||
      AttachmentOf(attached) == kNoAttachment) {
    LODESTAR_RETURN_IF_ERROR(PrepareApply(unique_ids, gradients, attached,
                                          optimizer, create_missing, parallel,
                                          &is_cold));
  }
  const uint64_t attachment = AttachmentOf(attached);
  VisitRowType(type_, [&](auto zero) {
    using T = decltype(zero);
    UpdateRows<T>(unique_ids, is_cold,
                  static_cast<const ComputeOf<T>*>(gradients), attachment,
                  optimizer, parallel);
  });
  MoveStep(next_step);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of ",
                           unique_ids.size(), " ids");
}

}  // namespace lodestar
