// EmbeddingStore: updates computed outside of the store (unfused optimizers).

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "tf_ops/core/base/guards.h"
#include "tf_ops/core/embedding/embedding_run.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/embedding/update_gradients.h"

namespace lodestar {
namespace {

// No row has this version, because kNoRow is not a row.
constexpr int64_t kNoVersion = -1;

}  // namespace

Status EmbeddingStore::GatherForUpdate(const TableUpdate& update,
                                       Span<const bool> shared,
                                       const AttachedOptimizer& optimizer,
                                       const AllocateUpdate& allocate,
                                       const Execution& on) try {
  LODESTAR_RETURN_IF_ERROR(optimizer.CheckUnfused());
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer));
  UniqueGradients gradients(update.ids, shared, update.gradients);
  if (update.nonfinite != Nonfinite::kPass &&
      !gradients.AreSurelyFinite(*this, on.parallel())) {
    LODESTAR_RETURN_IF_ERROR(gradients.KeepFinite(*this, update.nonfinite));
  }
  LODESTAR_RETURN_IF_ERROR(GatherRows(gradients.ids(), gradients.exempt(),
                                      gradients.rows(), optimizer, allocate,
                                      on.parallel()));
  CountNonfiniteGradients(gradients.num_dropped());
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of ",
                           update.ids.size(), " ids.");
}

Status EmbeddingStore::GatherRows(Span<const int64_t> ids,
                                  Span<const bool> shared,
                                  const void* gradients,
                                  const AttachedOptimizer& optimizer,
                                  const AllocateUpdate& allocate,
                                  const ParallelFor* parallel) {
  std::vector<int64_t> indices;
  std::vector<int64_t> own_ids;
  SharedRows& shared_rows = table_.shared;
  SharedRows::Readers cold;
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (shared[i]) {
      LODESTAR_RETURN_IF_ERROR(
          CheckSharedRowNumber(ids[i], i, shared_rows.count()));
      cold.push_back({static_cast<uint32_t>(ids[i]), i});
    } else {
      indices.push_back(i);
      own_ids.push_back(ids[i]);
    }
  }
  std::vector<RowRef> refs(own_ids.size());
  FindAll(own_ids, refs, parallel);
  int64_t own = 0;
  for (size_t k = 0; k < refs.size(); ++k) {
    if (refs[k].found()) {
      indices[own] = indices[k];
      own_ids[own] = own_ids[k];
      refs[own++] = refs[k];
    } else if (shared_rows.any()) {
      cold.push_back({shared_rows.RowOf(own_ids[k]), indices[k]});
    }
  }
  const int64_t missing = static_cast<int64_t>(refs.size()) - own;
  own_ids.resize(own);
  refs.resize(own);
  std::sort(cold.begin(), cold.end());
  int64_t count = own;
  for (size_t i = 0; i < cold.size(); ++i) {
    count += i == 0 || cold[i].first != cold[i - 1].first;
  }
  RowsForUpdate out;
  {
    InsertPlan::Options bind;
    bind.optimizer = &optimizer;
    InsertPlan plan(own_ids, refs, bind, nullptr, &table_);
    LODESTAR_RETURN_IF_ERROR(plan.Prepare({}));
    LODESTAR_RETURN_IF_ERROR(allocate(count, &out));
    plan.Commit(parallel);
  }
  if (!shared_rows.any() && missing > 0) {
    table_.events.Add(Event::kGradientsDropped, missing);
  }
  const int64_t num_slots = optimizer.slot_names.size();
  const int64_t bytes = table_.rows.computed_bytes();
  const auto number = [&](void* numbers, int64_t row) {
    return static_cast<char*>(numbers) + row * bytes;
  };
  const auto read = [&](const RowStore& rows, uint32_t row, int64_t id,
                        int64_t k) {
    out.ids[k] = id;
    void* values = number(out.values, k);
    const bool held = row != LeafIndex::kNoRow && rows.Lock(row, id);
    // Removed since it was found; gather it again.
    out.versions[k] = held ? VersionOf(rows, row) : kNoVersion;
    if (held) {
      VisitRowType(type(), [&](auto zero) {
        using T = decltype(zero);
        CopyComputedOut<T>(rows.values(row), dim(),
                           static_cast<float*>(values));
      });
    } else {
      std::memset(values, 0, bytes);
    }
    for (int64_t s = 0; s < num_slots; ++s) {
      void* slot = number(out.slots, s * count + k);
      if (held) {
        std::memcpy(slot, rows.slot(row, static_cast<int>(s)), bytes);
      } else {
        std::fill_n(static_cast<float*>(slot), dim(), optimizer.slot_inits[s]);
      }
    }
    if (held) rows.UnlockUnchanged(row);
  };
  RunParallel(parallel, own, RowCost(dim() * (2 + num_slots)),
              [&](int64_t begin, int64_t end) {
                for (int64_t k = begin; k < end; ++k) {
                  out.shared[k] = false;
                  std::memcpy(
                      number(out.gradients, k),
                      static_cast<const char*>(gradients) + indices[k] * bytes,
                      bytes);
                  read(table_.rows.shard(refs[k].shard).rows, refs[k].row,
                       own_ids[k], k);
                }
              });
  int64_t k = own;
  for (size_t i = 0; i < cold.size(); ++k) {
    const uint32_t row = cold[i].first;
    out.shared[k] = true;
    i = shared_rows.Sum(cold, i, static_cast<const float*>(gradients), 0, dim(),
                        static_cast<float*>(out.gradients) + k * dim());
    read(*shared_rows.rows(), row, row, k);
  }
  return Status();
}

Status EmbeddingStore::AssignIfUnchanged(const UpdatedRows& rows,
                                         const AttachedOptimizer& optimizer,
                                         int64_t next_step, bool* changed,
                                         const Execution& on) try {
  const ParallelFor* const parallel = on.parallel();
  LODESTAR_RETURN_IF_ERROR(optimizer.CheckUnfused());
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer));
  const int64_t count = rows.ids.size();
  for (int64_t k = 0; k < count; ++k) {
    if (!rows.shared[k]) continue;
    LODESTAR_RETURN_IF_ERROR(
        CheckSharedRowNumber(rows.ids[k], k, table_.shared.count()));
  }
  std::vector<RowRef> refs(count);
  FindAll(rows.ids, refs, parallel);
  // Nothing can fail from here on.
  const int64_t bytes = table_.rows.computed_bytes();
  // False if another table has replaced the one that the rows come from.
  const bool bound = table_.optimizer.IsBoundTo(optimizer);
  const int64_t num_slots = optimizer.slot_names.size();
  const int64_t now = step();
  const StochasticRounding round[] = {rounding(now, /*shared=*/false),
                                      rounding(now, /*shared=*/true)};
  RunParallel(
      parallel, count, RowCost(dim() * (2 + num_slots)),
      [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          changed[k] = true;
          const int64_t id = rows.ids[k];
          if (!rows.shared[k] && !refs[k].found()) continue;
          RowStore& store = rows.shared[k]
                                ? *table_.shared.rows()
                                : table_.rows.shard(refs[k].shard).rows;
          const uint32_t row =
              rows.shared[k] ? static_cast<uint32_t>(id) : refs[k].row;
          if (!store.Lock(row, id)) continue;
          const bool written = GuardHolds(StoreGuard::kRowVersion) &&
                               VersionOf(store, row) != rows.versions[k];
          if (written || !bound) {
            store.UnlockUnchanged(row);
            continue;
          }
          store.BeforeWrite(row);
          VisitRowType(type(), [&](auto zero) {
            using T = decltype(zero);
            const auto* const values =
                static_cast<const float*>(rows.values) + k * dim();
            T* const stored = static_cast<T*>(store.values(row));
            for (int first = 0; first < dim(); first += kPart) {
              const int part = std::min(kPart, dim() - first);
              float value[kPart];
              std::copy_n(values + first, part, value);
              RoundColumns<T>(round[rows.shared[k]], id, first, part, value);
              CopyComputedIn<T>(value, part, stored + first);
            }
          });
          for (int64_t s = 0; s < num_slots; ++s) {
            std::memcpy(
                store.slot(row, static_cast<int>(s)),
                static_cast<const char*>(rows.slots) + (s * count + k) * bytes,
                bytes);
          }
          store.Unlock(row);
          changed[k] = false;
        }
      });
  return MoveStep(next_step, on);
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory while writing back ", rows.ids.size(),
                           " rows.");
}

}  // namespace lodestar
