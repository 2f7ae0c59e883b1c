#include "tf_ops/core/table/table.h"

#include <atomic>
#include <utility>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/rows/admission_rule.h"

namespace lodestar {
namespace {

constexpr int64_t kMostSharedRows = int64_t{1} << 30;

}  // namespace

Status Table::CheckOptions(int64_t dim, const TablePolicies& policies) {
  if (dim < 1 || dim > kMaxDim) {
    return InvalidArgument("`dim` must be in [1, ", kMaxDim, "], got ", dim,
                           ".");
  }
  const AdmissionPolicy& admission = policies.admission;
  const EvictionPolicy& eviction = policies.eviction;
  const bool sketch = admission.kind == AdmissionPolicy::Kind::kCountingBloom;
  const int64_t most = sketch ? kMaxSketchCount : 0xffffffffLL;
  if (admission.min_count < 1 || admission.min_count > most) {
    return InvalidArgument("`min_count` must be in [1, ", most, "], got ",
                           admission.min_count, ".");
  }
  if (sketch && (admission.num_counters < 1 ||
                 admission.num_counters > (int64_t{1} << 40))) {
    return InvalidArgument("`num_counters` must be in [1, 2^40], got ",
                           admission.num_counters, ".");
  }
  if (sketch && (admission.num_hashes < 1 || admission.num_hashes > 64)) {
    return InvalidArgument("`num_hashes` must be in [1, 64], got ",
                           admission.num_hashes, ".");
  }
  for (const auto& [name, every] :
       {std::pair("min_norm_every", eviction.min_norm_every),
        std::pair("min_frequency_every", eviction.min_frequency_every)}) {
    if (every < 1) {
      return InvalidArgument("`", name, "` must be at least 1, got ", every,
                             ".");
    }
  }
  if (eviction.max_rows < 0) {
    return InvalidArgument("`max_rows` must be at least 0, got ",
                           eviction.max_rows, ".");
  }
  if (policies.shared_rows < 0 || policies.shared_rows > kMostSharedRows) {
    return InvalidArgument("`shared_rows` must be in [0, 2^30], got ",
                           policies.shared_rows, ".");
  }
  return Status();
}

Status Table::SetStep(int64_t step, const Execution& on, bool evicts) {
  const int64_t before = step_->Set(step, /*own=*/true);
  if (!evicts || step == before) return Status();
  return EvictAfter({true, before, step}, on);
}

Status Table::MoveSteps(Span<NextStep> steps, const Execution& on) {
  {
    // Without this, concurrent steps could leave the steps of different calls
    // in different tables.
    static Mutex mutex;
    MutexLock lock(&mutex);
    for (NextStep& next : steps) {
      if (next.step == kSameStep) continue;
      next.move = next.table->step_->MoveTo(next.step);
    }
  }
  for (const NextStep& next : steps) {
    if (!next.move.moved) continue;
    LODESTAR_RETURN_IF_ERROR(next.table->EvictAfter(next.move, on));
  }
  return Status();
}

Status Table::EvictAfter(const TableStep::Move& move, const Execution& on) {
  const EvictionPolicy due = eviction().Due(move.before, move.now);
  if (due.max_age < 0 && !due.scans_rows()) return Status();
  return EvictDue(due, on);
}

void Table::CountBatch(int64_t ids, int64_t unique, int64_t padding) {
  events_->Add(Event::kIds, ids);
  events_->Add(Event::kUniqueIds, unique);
  events_->Add(Event::kPadding, padding);
}

void Table::SubtractEvents(const EmbeddingStats& stats) {
  for (int e = 0; e < kNumEvents; ++e) {
    events_->Add(static_cast<Event>(e), -stats.events[e]);
  }
}

Status NonfiniteGradient(int64_t id) {
  return InvalidArgument("the gradient of id ", id,
                         " is not finite; no row was changed", kWhyNonfinite);
}

Status NonfiniteSharedRow(int64_t row) {
  return InvalidArgument(
      "the gradients of ids without a row have a sum that is not finite for "
      "shared row ",
      row, "; no row was changed", kWhyNonfinite);
}

Status CheckAccumulates(RowType type) {
  if (type == RowType::kFloat32) return Status();
  return InvalidArgument("rows of ", NameOf(type),
                         " do not support gradient accumulation.");
}

Status SumOutOfRange(int64_t id) {
  return InvalidArgument("the accumulated gradients of id ", id,
                         " exceed half of the largest number; no row was "
                         "changed.");
}

Status CheckSharedRowNumber(int64_t id, int64_t i, int64_t count) {
  if (id >= 0 && id < count) return Status();
  return InvalidArgument("`ids[", i, "]` must be a shared row in [0, ", count,
                         "), got ", id, ".");
}

int64_t Table::NextNumber() {
  // Mix64 is a bijection that maps only 0 to 0.
  static std::atomic<uint64_t> number{1};
  return static_cast<int64_t>(Mix64(number.fetch_add(1)));
}

Status Table::ImportDelta(Span<const int64_t>, const EmbeddingRowsView&,
                          int64_t*, const Execution&) {
  return Status(StatusCode::kUnimplemented,
                "a table in host memory reads incremental snapshots itself.");
}

}  // namespace lodestar
