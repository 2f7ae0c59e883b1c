#include <algorithm>
#include <new>
#include <type_traits>
#include <vector>

#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"

namespace lodestar {

SharedRows::Readers EmbeddingStore::ReadersOfSharedRows(
    Span<const int64_t> ids) const {
  SharedRows::Readers readers;
  if (!table_.shared.any()) return readers;
  std::vector<RowRef> refs(ids.size());
  FindAll(ids, refs, nullptr);
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (!refs[i].found()) readers.push_back({table_.shared.RowOf(ids[i]), i});
  }
  std::sort(readers.begin(), readers.end());
  return readers;
}

template <typename T, typename Gradient>
inline void EmbeddingStore::UpdateRow(RowStore* rows, uint32_t row,
                                      const Gradient& gradient,
                                      const SparseOptimizer& optimizer) {
  rows->BeforeWrite(row);
  for (int first = 0; first < dim(); first += kPart) {
    const int count = std::min(kPart, dim() - first);
    ComputeOf<T>* slots[RowStore::kMaxSlots];
    for (int s = 0; s < optimizer.num_slots(); ++s) {
      slots[s] = static_cast<ComputeOf<T>*>(rows->slot(row, s)) + first;
    }
    T* const columns = static_cast<T*>(rows->values(row)) + first;
    if constexpr (RowStore::kPlainAccess && std::is_same_v<T, ComputeOf<T>>) {
      optimizer.Update(gradient(first, count), count, columns, slots);
    } else {
      ComputeOf<T> value[kPart];
      CopyComputedOut<T>(columns, count, value);
      optimizer.Update(gradient(first, count), count, value, slots);
      CopyComputedIn<T>(value, count, columns);
    }
  }
}

template <typename T>
void EmbeddingStore::UpdateShared(const SharedRows::Readers& readers,
                                  const ComputeOf<T>* gradients,
                                  const SparseOptimizer& optimizer) {
  RowStore* const rows = table_.shared.rows();
  ComputeOf<T> sum[kPart];
  for (size_t i = 0, next = 0; i < readers.size(); i = next) {
    const uint32_t row = readers[i].first;
    const auto gradient = [&](int first, int count) {
      next = table_.shared.Sum(readers, i, gradients, first, count, sum);
      return sum;
    };
    rows->Lock(row, row);
    UpdateRow<T>(rows, row, gradient, optimizer);
    rows->Unlock(row);
  }
}

template <typename T>
void EmbeddingStore::UpdateRows(Span<const int64_t> unique_ids,
                                Span<const RowRef> refs,
                                const std::vector<char>& is_cold,
                                const ComputeOf<T>* gradients,
                                const SparseOptimizer& optimizer,
                                const ParallelFor* parallel) {
  const int num_slots = optimizer.num_slots();
  const auto load = [num_slots](const RowStore& rows, const RowRef& ref) {
    rows.PrefetchWithSlots(ref.row, ref.meta, num_slots);
  };
  // With the row of number u held.
  const auto update = [&](int64_t u, const RowRef& ref) {
    const auto gradient = [&](int first, int) {
      return gradients + u * dim() + first;
    };
    UpdateRow<T>(&table_.rows.shard(ref.shard).rows, ref.row, gradient,
                 optimizer);
    RowStore::Unlock(ref.meta);
  };
  const auto is_left = [&](int64_t u) {
    return is_cold.empty() || !is_cold[u];
  };
  const auto search = [&](int64_t begin, int64_t end) {
    int64_t dropped = 0;
    const auto visit = [&](int64_t first, Span<const int64_t> run,
                           ShardedRows::Probe* probes) {
      for (int i = 0; i < run.size(); ++i) {
        const int64_t u = begin + first + i;
        if (!is_left(u)) continue;
        RowRef ref = probes[i].Confirm(run[i]);
        if (ref.found() && (RowStore::Lock(ref.meta, run[i]) ||
                            table_.rows.shard(ref.shard).LockAgain(
                                probes[i].tag, run[i], &ref))) {
          update(u, ref);
        } else {
          ++dropped;
        }
      }
    };
    table_.rows.ForEachRun(unique_ids.subspan(begin, end - begin), load, visit);
    return dropped;
  };
  const auto confirm = [&](int64_t begin, int64_t end) {
    int64_t dropped = 0;
    EpochDomain::Guard guard(table_.rows.epochs());
    for (int64_t u = begin; u < end; ++u) {
      const int64_t ahead = u + kAhead;
      if (ahead < end && refs[ahead].found()) {
        load(table_.rows.shard(refs[ahead].shard).rows, refs[ahead]);
      }
      if (!is_left(u)) continue;
      RowRef ref = refs[u];
      const int64_t id = unique_ids[u];
      if ((ref.found() && RowStore::Lock(ref.meta, id)) ||
          table_.rows.LockAgain(id, &ref)) {
        update(u, ref);
      } else {
        ++dropped;
      }
    }
    return dropped;
  };
  const auto body = [&](int64_t begin, int64_t end) {
    const int64_t dropped =
        refs.empty() ? search(begin, end) : confirm(begin, end);
    if (dropped > 0) {
      table_.events.Add(Event::kGradientsDropped, dropped);
    }
  };
  RunParallel(parallel, unique_ids.size(), RowCost(dim() * (2 + num_slots)),
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
  SharedRows& shared = table_.shared;
  std::vector<int64_t> missing;
  SharedRows::Readers cold;
  for (int64_t i = 0; i < count; ++i) {
    if (refs[i].found()) continue;
    if (create_missing) missing.push_back(i);
    if (shared.any()) cold.push_back({shared.RowOf(unique_ids[i]), i});
  }
  if (shared.any()) is_cold->resize(count, 0);
  {
    InsertPlan::Options insert;
    insert.call.now = step();
    // Seen by the replica that the gradient comes from.
    insert.call.admission = insert.call.count_sightings =
        table_.sightings.uses_admission();
    insert.optimizer = &attached;
    InsertPlan plan(
        unique_ids, refs, insert,
        [&](int64_t i, const RowRef& ref) {
          table_.FillNewRow(unique_ids[i], ref);
        },
        &table_);
    LODESTAR_RETURN_IF_ERROR(plan.Prepare(missing));
    plan.Commit(parallel);
  }
  cold.erase(
      std::remove_if(cold.begin(), cold.end(),
                     [&](const auto& c) { return refs[c.second].found(); }),
      cold.end());
  if (cold.empty()) return Status();
  for (const auto& c : cold) (*is_cold)[c.second] = 1;
  std::sort(cold.begin(), cold.end());
  VisitRowType(type(), [&](auto zero) {
    using T = decltype(zero);
    UpdateShared<T>(cold, static_cast<const ComputeOf<T>*>(gradients),
                    optimizer);
  });
  return Status();
}

Status EmbeddingStore::Apply(Span<const int64_t> unique_ids,
                             const void* gradients, const std::string& name,
                             const SparseOptimizer& optimizer,
                             Span<const float> slot_inits, bool create_missing,
                             int64_t next_step, const ParallelFor* parallel,
                             Span<const RowRef> refs) try {
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
  if (create_missing || table_.shared.any() ||
      !table_.optimizer.IsBoundTo(attached)) {
    LODESTAR_RETURN_IF_ERROR(PrepareApply(unique_ids, gradients, attached,
                                          optimizer, create_missing, parallel,
                                          &is_cold));
  }
  VisitRowType(type(), [&](auto zero) {
    using T = decltype(zero);
    UpdateRows<T>(unique_ids, refs, is_cold,
                  static_cast<const ComputeOf<T>*>(gradients), optimizer,
                  parallel);
  });
  MoveStep(next_step);
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of ",
                           unique_ids.size(), " ids");
}

}  // namespace lodestar
