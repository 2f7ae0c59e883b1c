// EmbeddingStore: updates by gradients that may repeat ids or be non-finite.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
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
template <typename C>
bool IsWithin(const C* row, int dim, C limit) {
  using Bits = std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(C) - 1);
  Bits largest = 0;
  for (int c = 0; c < dim; ++c) {
    Bits bits;
    std::memcpy(&bits, row + c, sizeof(bits));
    largest = std::max(largest, bits & ~kSign);
  }
  Bits most;
  std::memcpy(&most, &limit, sizeof(most));
  return largest <= most;
}

template <typename C>
bool IsFinite(const C* row, int dim) {
  return IsWithin(row, dim, std::numeric_limits<C>::max());
}

template <typename C>
bool AllWithin(const C* rows, int64_t count, int dim, C limit,
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
template <typename C>
Status FindFinite(const EmbeddingStore& store, Nonfinite nonfinite,
                  const UniqueGradients& gradients, std::vector<char>* keep) {
  const int dim = store.dim();
  const Span<const int64_t> ids = gradients.ids();
  const Span<const bool> exempt = gradients.exempt();
  const C* const rows = static_cast<const C*>(gradients.rows());
  const auto is_exempt = [&](int64_t i) {
    return !exempt.empty() && exempt[i];
  };
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (is_exempt(i) || IsFinite(rows + i * dim, dim)) continue;
    if (nonfinite == Nonfinite::kRaise) return NonfiniteGradient(ids[i]);
    (*keep)[i] = 0;
  }
  const auto readers = store.ReadersOfSharedRows(ids);
  std::vector<C> sum(dim);
  for (size_t first = 0, next = 0; first < readers.size(); first = next) {
    sum.assign(dim, C{0});
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
template <typename C>
Status CheckSums(const EmbeddingStore& store, const TableUpdate& update,
                 int64_t additions, const ParallelFor* parallel) {
  const int dim = store.dim();
  const C limit = LimitOfTerms<C>(update.ids.size(), additions);
  if (AllWithin(static_cast<const C*>(update.gradients), update.ids.size(), dim,
                limit, parallel)) {
    return Status();
  }
  UniqueGradients summed;
  summed.Sum(update, parallel);
  LODESTAR_RETURN_IF_ERROR(summed.KeepFinite(store, Nonfinite::kRaise));
  if (additions == 0) return Status();
  // Check that these sums stay finite under later additions within the limit.
  const C* const sums = static_cast<const C*>(summed.rows());
  std::vector<C> rows(summed.ids().size() * dim);
  store.Find(summed.ids(), nullptr, Missing(), rows.data(), nullptr, parallel);
  for (int64_t i = 0; i < summed.ids().size(); ++i) {
    C* row = rows.data() + i * dim;
    for (int c = 0; c < dim; ++c) row[c] += sums[i * dim + c];
    if (IsWithin(row, dim, std::numeric_limits<C>::max() / 2)) continue;
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
  VisitRowType(update.table->type(), [&](auto zero) {
    using C = ComputeOf<decltype(zero)>;
    char* const sums = AllocateRows(ids_.size() * dim * sizeof(C));
    SumByPosition(static_cast<const C*>(update.gradients), positions,
                  ids_.size(), dim, reinterpret_cast<C*>(sums), parallel);
    rows_ = sums;
  });
}

bool UniqueGradients::AreSurelyFinite(const EmbeddingStore& store,
                                      const ParallelFor* parallel) const {
  return VisitRowType(store.type(), [&](auto zero) {
    using C = ComputeOf<decltype(zero)>;
    const C limit = store.has_shared_rows() ? LimitOfTerms<C>(ids_.size())
                                            : std::numeric_limits<C>::max();
    return AllWithin(static_cast<const C*>(rows_), ids_.size(), store.dim(),
                     limit, parallel);
  });
}

Status UniqueGradients::KeepFinite(const EmbeddingStore& store,
                                   Nonfinite nonfinite) {
  std::vector<char> keep(ids_.size(), 1);
  LODESTAR_RETURN_IF_ERROR(VisitRowType(store.type(), [&](auto zero) {
    return FindFinite<ComputeOf<decltype(zero)>>(store, nonfinite, *this,
                                                 &keep);
  }));
  const int64_t count = std::count(keep.begin(), keep.end(), 1);
  num_dropped_ = ids_.size() - count;
  if (num_dropped_ == 0) return Status();
  const int64_t row_bytes = store.dim() * SizeOf(ComputeType(store.type()));
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
  return VisitRowType(type(), [&](auto zero) {
    return CheckSums<ComputeOf<decltype(zero)>>(*this, update, additions,
                                                on.parallel());
  });
} catch (const std::bad_alloc&) {
  return ResourceExhausted("out of memory for the gradients of a batch.");
}

}  // namespace lodestar
