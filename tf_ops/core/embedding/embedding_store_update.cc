#include <algorithm>
#include <functional>
#include <new>
#include <optional>
#include <type_traits>
#include <vector>

#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/square_sums.h"

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
inline void EmbeddingStore::UpdateRow(RowStore* rows, uint32_t row, int64_t id,
                                      const StochasticRounding& rounding,
                                      const Gradient& gradient,
                                      const SparseOptimizer& optimizer) {
  rows->BeforeWrite(row);
  const auto for_each_part = [&](const auto& visit) {
    for (int first = 0; first < dim(); first += kPart) {
      const int count = std::min(kPart, dim() - first);
      visit(first, count, gradient(first, count));
    }
  };
  float rate = 0;
  if (optimizer.row_wise()) {
    static_assert(kPart % kSquareSums == 0);
    SquareSums squares;
    for_each_part([&](int, int count, const float* columns) {
      squares.Add(columns, count);
    });
    rate = optimizer.UpdateSlots(squares.Total() / static_cast<float>(dim()),
                                 static_cast<float*>(rows->slot(row, 0)));
  }
  for_each_part([&](int first, int count, const float* columns) {
    const auto update = [&](float* value) {
      if (optimizer.row_wise()) {
        optimizer.UpdateColumns(rate, columns, count, value);
        return;
      }
      float* slots[RowStore::kMaxSlots];
      for (int s = 0; s < optimizer.num_slots(); ++s) {
        slots[s] = static_cast<float*>(rows->slot(row, s)) + first;
      }
      optimizer.Update(columns, count, value, slots);
    };
    T* const stored = static_cast<T*>(rows->values(row)) + first;
    if constexpr (RowStore::kPlainAccess && std::is_same_v<T, float>) {
      update(stored);
    } else {
      float value[kPart];
      CopyComputedOut<T>(stored, count, value);
      update(value);
      RoundColumns<T>(rounding, id, first, count, value);
      CopyComputedIn<T>(value, count, stored);
    }
  });
}

template <typename T>
void EmbeddingStore::UpdateShared(const SharedRows::Readers& readers,
                                  const float* gradients,
                                  const SparseOptimizer& optimizer,
                                  const StochasticRounding& rounding) {
  RowStore* const rows = table_.shared.rows();
  float sum[kPart];
  for (size_t i = 0, next = 0; i < readers.size(); i = next) {
    const uint32_t row = readers[i].first;
    const auto gradient = [&](int first, int count) {
      next = table_.shared.Sum(readers, i, gradients, first, count, sum);
      return sum;
    };
    rows->Lock(row, row);
    UpdateRow<T>(rows, row, row, rounding, gradient, optimizer);
    rows->Unlock(row);
  }
}

// State of one update.
struct EmbeddingStore::PreparedUpdate {
  const UniqueUpdate* table;
  int64_t first;  // offset of its ids among those of all tables
  AttachedOptimizer optimizer;
  // Creates rows for the ids `missing` and slots. Absent if it creates nothing.
  std::optional<InsertPlan> plan;
  std::vector<RowRef> found;
  std::vector<int64_t> missing;
  // Ids without a row, whose gradients train shared rows, and whether an id is
  // one of them; empty without shared rows.
  SharedRows::Readers cold;
  std::vector<char> is_cold;
  StochasticRounding rounding;

  bool is_left(int64_t u) const { return is_cold.empty() || !is_cold[u]; }
};

template <typename T>
void EmbeddingStore::UpdateRows(const PreparedUpdate& prepared, int64_t begin,
                                int64_t end) {
  const Span<const int64_t> ids = prepared.table->unique_ids;
  const Span<const RowRef> refs = prepared.table->refs;
  const SparseOptimizer& optimizer = *prepared.table->optimizer;
  const float* const gradients =
      static_cast<const float*>(prepared.table->gradients);
  int64_t dropped = 0;
  const auto load = [&](const RowStore& rows, const RowRef& ref) {
    rows.PrefetchWithSlots(ref.row, ref.meta, optimizer.num_slots());
  };
  // Requires the row lock of unique id u.
  const auto update = [&](int64_t u, const RowRef& ref) {
    const auto gradient = [&](int first, int) {
      return gradients + u * dim() + first;
    };
    UpdateRow<T>(&table_.rows.shard(ref.shard).rows, ref.row, ids[u],
                 prepared.rounding, gradient, optimizer);
    RowStore::Unlock(ref.meta);
  };
  if (refs.empty()) {
    const auto visit = [&](int64_t first, Span<const int64_t> run,
                           ShardedRows::Probe* probes) {
      for (int i = 0; i < run.size(); ++i) {
        const int64_t u = begin + first + i;
        if (!prepared.is_left(u)) continue;
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
    table_.rows.ForEachRun(ids.subspan(begin, end - begin), load, visit);
  } else {
    EpochDomain::Guard guard(table_.rows.epochs());
    for (int64_t u = begin; u < end; ++u) {
      const int64_t ahead = u + kAhead;
      if (ahead < end && refs[ahead].found()) {
        load(table_.rows.shard(refs[ahead].shard).rows, refs[ahead]);
      }
      if (!prepared.is_left(u)) continue;
      RowRef ref = refs[u];
      if ((ref.found() && RowStore::Lock(ref.meta, ids[u])) ||
          table_.rows.LockAgain(ids[u], &ref)) {
        update(u, ref);
      } else {
        ++dropped;
      }
    }
  }
  if (dropped > 0) table_.events.Add(Event::kGradientsDropped, dropped);
}

void EmbeddingStore::PlanApply(const ParallelFor* parallel,
                               PreparedUpdate* update) {
  const Span<const int64_t> unique_ids = update->table->unique_ids;
  const int64_t count = unique_ids.size();
  std::vector<RowRef>& refs = update->found;
  refs.resize(count);
  FindAll(unique_ids, refs, parallel);
  SharedRows& shared = table_.shared;
  for (int64_t i = 0; i < count; ++i) {
    if (refs[i].found()) continue;
    if (update->table->create_missing) update->missing.push_back(i);
    if (shared.any()) update->cold.push_back({shared.RowOf(unique_ids[i]), i});
  }
  if (shared.any()) update->is_cold.resize(count, 0);
  InsertPlan::Options insert;
  // The replica that computed the gradient has already counted the ids.
  insert.call.admission = insert.call.count_frequency =
      table_.occurrence_counter.uses_admission();
  insert.optimizer = &update->optimizer;
  update->plan.emplace(
      unique_ids, refs, insert,
      [this, unique_ids](int64_t i, const RowRef& ref) {
        table_.FillNewRow(unique_ids[i], ref);
      },
      &table_);
}

void EmbeddingStore::CommitApply(const ParallelFor* parallel,
                                 PreparedUpdate* update) {
  update->plan->Commit(parallel);
  SharedRows::Readers& cold = update->cold;
  const auto has_row = [&](const auto& c) {
    return update->found[c.second].found();
  };
  cold.erase(std::remove_if(cold.begin(), cold.end(), has_row), cold.end());
  for (const auto& c : cold) update->is_cold[c.second] = 1;
  std::sort(cold.begin(), cold.end());
}

// Everything that can fail happens before the first row changes.
Status EmbeddingStore::Apply(Span<const UniqueUpdate> updates,
                             const ParallelFor* parallel, int64_t* failed) {
  const int64_t count = updates.size();
  if (count == 0) return Status();
  int64_t u = 0;
  const auto fails = [&](const Status& status) {
    if (failed != nullptr) *failed = u;
    return status;
  };
  try {
    std::vector<PreparedUpdate> prepared(count);
    std::vector<NextStep> steps(count);
    // The updates that may create rows or slots.
    std::vector<PreparedUpdate*> creating;
    int64_t num_ids = 0;
    int64_t cost = 1;
    for (u = 0; u < count; ++u) {
      const UniqueUpdate& update = updates[u];
      AttachedOptimizer& attached = prepared[u].optimizer;
      const Status status = update.store->CheckRule(update, &attached);
      if (!status.ok()) return fails(status);
      prepared[u].table = &update;
      prepared[u].first = num_ids;
      steps[u] = {update.store, update.next_step};
      num_ids += update.unique_ids.size();
      const int dim = update.store->dim();
      cost = std::max(cost,
                      RowCost(2 * dim + update.optimizer->slots().Size(dim)));
      const TableParts& table = update.store->table_;
      if (update.create_missing || table.shared.any() ||
          !table.optimizer.IsBoundTo(attached)) {
        creating.push_back(&prepared[u]);
      }
    }
    // All callers lock tables in the same order.
    std::sort(creating.begin(), creating.end(),
              [](const PreparedUpdate* a, const PreparedUpdate* b) {
                return std::less<>()(a->table->store, b->table->store);
              });
    for (PreparedUpdate* update : creating) {
      u = update - prepared.data();
      update->table->store->PlanApply(parallel, update);
    }
    for (PreparedUpdate* update : creating) {
      u = update - prepared.data();
      const Status status = update->plan->Prepare(update->missing);
      if (!status.ok()) return fails(status);
    }
    for (PreparedUpdate* update : creating) {
      update->table->store->CommitApply(parallel, update);
    }
    // Unlocks the tables.
    for (PreparedUpdate* update : creating) update->plan.reset();
    for (PreparedUpdate& update : prepared) {
      EmbeddingStore* const store = update.table->store;
      const int64_t now = store->step();
      update.rounding = store->rounding(now, /*shared=*/false);
      if (update.cold.empty()) continue;
      VisitRowType(store->type(), [&](auto zero) {
        using T = decltype(zero);
        store->UpdateShared<T>(
            update.cold, static_cast<const float*>(update.table->gradients),
            *update.table->optimizer, store->rounding(now, /*shared=*/true));
      });
    }
    const auto before = [](int64_t id, const PreparedUpdate& update) {
      return id < update.first;
    };
    RunParallel(parallel, num_ids, cost, [&](int64_t begin, int64_t end) {
      auto update =
          std::upper_bound(prepared.begin(), prepared.end(), begin, before) - 1;
      for (; update != prepared.end() && update->first < end; ++update) {
        EmbeddingStore* const store = update->table->store;
        const int64_t from = std::max(begin, update->first) - update->first;
        const int64_t to =
            std::min(end - update->first, update->table->unique_ids.size());
        if (from >= to) continue;
        VisitRowType(store->type(), [&](auto zero) {
          store->UpdateRows<decltype(zero)>(*update, from, to);
        });
      }
    });
    return MoveSteps(Span<NextStep>(steps), parallel);
  } catch (const std::bad_alloc&) {
    u = std::min(u, count - 1);
    return fails(ResourceExhausted("out of memory for the gradients of ",
                                   updates[u].unique_ids.size(), " ids."));
  }
  return Status();
}

Status EmbeddingStore::CheckRule(const UniqueUpdate& update,
                                 AttachedOptimizer* attached) const {
  if (update.slot_inits.size() != update.optimizer->num_slots()) {
    return InvalidArgument("`slot_inits` has ", update.slot_inits.size(),
                           " elements, but '", update.name, "' has ",
                           update.optimizer->num_slots(), " optimizer slots.");
  }
  attached->name = update.name;
  if (!SparseOptimizer::SlotNames(update.name, &attached->slot_names)) {
    return InvalidArgument("unknown optimizer '", update.name, "'.");
  }
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(*attached));
  attached->slot_inits.assign(update.slot_inits.begin(),
                              update.slot_inits.end());
  return Status();
}

}  // namespace lodestar
