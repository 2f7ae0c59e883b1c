// EmbeddingStore: updates by gradients that may repeat ids or be non-finite.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/embedding/embedding_gradient.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/embedding/update_gradients.h"

namespace lodestar {
namespace {

// Returns true if no element is NaN or larger than `limit` in absolute value.
// Compares the bits as integers, because that vectorizes.
bool IsWithin(const float* row, int dim, float limit) {
  constexpr uint32_t kSign = uint32_t{1} << 31;
  uint32_t largest = 0;
  for (int c = 0; c < dim; ++c) {
    uint32_t bits;
    std::memcpy(&bits, row + c, sizeof(bits));
    largest = std::max(largest, bits & ~kSign);
  }
  uint32_t most;
  std::memcpy(&most, &limit, sizeof(most));
  return largest <= most;
}

bool IsFinite(const float* row, int dim) {
  return IsWithin(row, dim, std::numeric_limits<float>::max());
}

bool AllWithin(const float* rows, int64_t count, int dim, float limit,
               const ParallelFor* parallel) {
  std::atomic<bool> within{true};
  RunParallel(parallel, count, 1 + dim / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (IsWithin(rows + i * dim, dim, limit)) continue;
      within.store(false, std::memory_order_relaxed);
      return;
    }
  });
  return within.load(std::memory_order_relaxed);
}

// Sets keep[i] to 0 for non-finite gradients, also as sums by shared row. An
// empty `exempt` has no effect.
Status FindFinite(const EmbeddingStore& store, Nonfinite nonfinite,
                  const UniqueGradients& gradients, std::vector<char>* keep) {
  const int dim = store.dim();
  const Span<const int64_t> ids = gradients.ids();
  const Span<const bool> exempt = gradients.exempt();
  const float* const rows = static_cast<const float*>(gradients.rows());
  const auto is_exempt = [&](int64_t i) {
    return !exempt.empty() && exempt[i];
  };
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (is_exempt(i) || IsFinite(rows + i * dim, dim)) continue;
    if (nonfinite == Nonfinite::kRaise) return NonfiniteGradient(ids[i]);
    (*keep)[i] = 0;
  }
  const auto readers = store.ReadersOfSharedRows(ids);
  std::vector<float> sum(dim);
  for (size_t first = 0, next = 0; first < readers.size(); first = next) {
    sum.assign(dim, 0.0f);
    for (; next < readers.size() && readers[next].first == readers[first].first;
         ++next) {
      const int64_t i = readers[next].second;
      if (!(*keep)[i] || is_exempt(i)) continue;
      for (int c = 0; c < dim; ++c) sum[c] += rows[i * dim + c];
    }
    if (IsFinite(sum.data(), dim)) continue;
    if (nonfinite == Nonfinite::kRaise) {
      return NonfiniteSharedRow(readers[first].first);
    }
    for (size_t k = first; k < next; ++k) {
      const int64_t i = readers[k].second;
      if (!is_exempt(i)) (*keep)[i] = 0;
    }
  }
  return Status();
}

// See Table::CheckUpdate.
Status CheckSums(const EmbeddingStore& store, const TableUpdate& update,
                 int64_t additions, const ParallelFor* parallel) {
  const int dim = store.dim();
  const float limit = LimitOfTerms(update.ids.size(), additions);
  if (AllWithin(static_cast<const float*>(update.gradients), update.ids.size(),
                dim, limit, parallel)) {
    return Status();
  }
  UniqueGradients summed;
  summed.Sum(update, parallel);
  LODESTAR_RETURN_IF_ERROR(summed.KeepFinite(store, Nonfinite::kRaise));
  if (additions == 0) return Status();
  // Check that these sums stay finite under later additions within the limit.
  const float* const sums = static_cast<const float*>(summed.rows());
  std::vector<float> rows(summed.ids().size() * dim);
  store.Find(summed.ids(), nullptr, Missing(), rows.data(), nullptr, parallel);
  for (int64_t i = 0; i < summed.ids().size(); ++i) {
    float* row = rows.data() + i * dim;
    for (int c = 0; c < dim; ++c) row[c] += sums[i * dim + c];
    if (IsWithin(row, dim, std::numeric_limits<float>::max() / 2)) continue;
    return SumOutOfRange(summed.ids()[i]);
  }
  return Status();
}

}  // namespace

char* UniqueGradients::AllocateRows(int64_t bytes) {
  own_rows_.reset(new CacheLine[bytes / sizeof(CacheLine) + 1]);
  return own_rows_[0].bytes;
}

void UniqueGradients::Sum(const TableUpdate& update,
                          const ParallelFor* parallel) {
  ids_ = update.ids;
  rows_ = update.gradients;
  plan_ = update.plan;
  if (plan_ != nullptr) return;
  std::vector<int64_t> positions(ids_.size());
  BatchUnique(ids_, nullptr, &own_ids_, positions);
  if (own_ids_.size() == positions.size()) return;
  ids_ = own_ids_;
  const int dim = update.table->dim();
  char* const sums = AllocateRows(ids_.size() * dim * sizeof(float));
  SumByPosition(static_cast<const float*>(update.gradients), positions,
                ids_.size(), dim, reinterpret_cast<float*>(sums), parallel);
  rows_ = sums;
}

bool UniqueGradients::AreSurelyFinite(const EmbeddingStore& store,
                                      const ParallelFor* parallel) const {
  const float limit = store.has_shared_rows()
                          ? LimitOfTerms(ids_.size())
                          : std::numeric_limits<float>::max();
  return AllWithin(static_cast<const float*>(rows_), ids_.size(), store.dim(),
                   limit, parallel);
}

Status UniqueGradients::KeepFinite(const EmbeddingStore& store,
                                   Nonfinite nonfinite) {
  std::vector<char> keep(ids_.size(), 1);
  LODESTAR_RETURN_IF_ERROR(FindFinite(store, nonfinite, *this, &keep));
  const int64_t count = std::count(keep.begin(), keep.end(), 1);
  num_dropped_ = ids_.size() - count;
  if (num_dropped_ == 0) return Status();
  const int64_t row_bytes = store.dim() * static_cast<int64_t>(sizeof(float));
  std::vector<int64_t> ids;
  std::unique_ptr<bool[]> exempt(new bool[count]);
  const char* const from = static_cast<const char*>(rows_);
  // Holds the rows that are copied, if they are own ones.
  const std::unique_ptr<CacheLine[]> former = std::move(own_rows_);
  char* const rows = AllocateRows(count * row_bytes);
  for (int64_t i = 0; i < ids_.size(); ++i) {
    if (!keep[i]) continue;
    const int64_t k = static_cast<int64_t>(ids.size());
    ids.push_back(ids_[i]);
    exempt[k] = !exempt_.empty() && exempt_[i];
    std::memcpy(rows + k * row_bytes, from + i * row_bytes, row_bytes);
  }
  own_ids_ = std::move(ids);
  own_exempt_ = std::move(exempt);
  ids_ = own_ids_;
  exempt_ = {own_exempt_.get(), count};
  rows_ = rows;
  plan_ = nullptr;
  return Status();
}

Status SummedUpdate::Init(const TableUpdate& update,
                          const ParallelFor* parallel) {
  update_ = update;
  LODESTAR_RETURN_IF_ERROR(SparseOptimizer::Create(
      update.optimizer, update.hyperparameters, &optimizer_));
  gradients_.Sum(update, parallel);
  return Status();
}

const EmbeddingStore& SummedUpdate::store() const {
  return static_cast<const EmbeddingStore&>(*update_.table);
}

bool SummedUpdate::IsSurelyFinite(const ParallelFor* parallel) const {
  return update_.nonfinite == Nonfinite::kPass ||
         gradients_.AreSurelyFinite(store(), parallel);
}

Status SummedUpdate::KeepFinite() {
  return gradients_.KeepFinite(store(), update_.nonfinite);
}

EmbeddingStore::UniqueUpdate SummedUpdate::For(EmbeddingStore* store) const {
  const LookupPlan* const plan = gradients_.plan();
  return {store,
          gradients_.ids(),
          gradients_.rows(),
          update_.optimizer,
          &optimizer_,
          update_.slot_inits,
          update_.create_missing,
          update_.next_step,
          plan == nullptr ? Span<const RowRef>() : store->RefsOf(*plan)};
}

Status SummedUpdate::Apply(EmbeddingStore* store,
                           const ParallelFor* parallel) const {
  const EmbeddingStore::UniqueUpdate update = For(store);
  LODESTAR_RETURN_IF_ERROR(EmbeddingStore::Apply({&update, 1}, parallel));
  store->CountNonfiniteGradients(num_nonfinite());
  return Status();
}

Status EmbeddingStore::Update(Span<const TableUpdate> updates,
                              const Execution& on, int64_t* failed) try {
  const int64_t count = updates.size();
  std::vector<SummedUpdate> summed(count);
  for (int64_t u = 0; u < count; ++u) {
    *failed = u;
    LODESTAR_RETURN_IF_ERROR(summed[u].Init(updates[u], on.parallel()));
  }
  std::vector<char> finite(count, 0);
  if (count == 1) {
    finite[0] = summed[0].IsSurelyFinite(on.parallel());
  } else {
    RunParallel(on.parallel(), count, 10'000, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        finite[u] = summed[u].IsSurelyFinite(nullptr);
      }
    });
  }
  std::vector<UniqueUpdate> unique;
  for (int64_t u = 0; u < count; ++u) {
    *failed = u;
    if (!finite[u]) LODESTAR_RETURN_IF_ERROR(summed[u].KeepFinite());
    unique.push_back(
        summed[u].For(static_cast<EmbeddingStore*>(updates[u].table)));
  }
  LODESTAR_RETURN_IF_ERROR(Apply(unique, on.parallel(), failed));
  for (int64_t u = 0; u < count; ++u) {
    updates[u].table->CountNonfiniteGradients(summed[u].num_nonfinite());
  }
  return Status();
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of a batch.");
}

Status EmbeddingStore::CheckUpdate(const TableUpdate& update,
                                   const AttachedOptimizer& optimizer,
                                   int64_t additions, const Execution& on) const
    try {
  if (additions > 0) LODESTAR_RETURN_IF_ERROR(CheckAccumulates(type()));
  LODESTAR_RETURN_IF_ERROR(CheckOptimizer(optimizer));
  return CheckSums(*this, update, additions, on.parallel());
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of a batch.");
}

}  // namespace lodestar
