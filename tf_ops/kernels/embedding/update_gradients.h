// Checks and sums the gradients of all updates of embedding variables.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_GRADIENTS_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_GRADIENTS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/collection/embedding_gradient.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/unique_ids.h"

namespace lodestar {

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

// If all `times` x `count` terms are within this limit, their sum is within a
// quarter of the range, so it is finite without being computed.
template <typename C>
C LimitOfTerms(int64_t count, int64_t times = 1) {
  return std::numeric_limits<C>::max() / 4 /
         static_cast<C>(std::max<int64_t>(count, 1)) /
         static_cast<C>(std::max<int64_t>(times, 1));
}

// End of the errors about non-finite gradients.
inline constexpr char kWhyNonfinite[] =
    ". The loss or a gradient was NaN or infinite. Look for NaN in labels, "
    "sample weights and other inputs, and for a learning rate that is too "
    "high. Pass nonfinite=\"skip\" to the optimizer to skip such rows.";

inline absl::Status NonfiniteError(int64_t id) {
  return InvalidArgumentError("the gradient of id ", id,
                              " is not finite; no row was changed",
                              kWhyNonfinite);
}

// The gradients of an update, summed by id, in the order of first occurrence.
// Ids that a lookup or EmbeddingUnique made are known to be unique, so their
// gradients are used as they are.
template <typename C>
class UniqueGradients {
 public:
  // `ids` is [N] and `gradients` [N, dim]. Keeps both alive if necessary.
  absl::Status Init(OpKernelContext* ctx, const Tensor& ids,
                    const Tensor& gradients, int dim,
                    const ParallelFor* parallel) {
    dim_ = dim;
    plan_ = PlanOf(ids);
    if (plan_ != nullptr) {
      ids_ = FlatSpan<int64_t>(ids);
    } else {
      std::vector<int64_t> positions(ids.NumElements());
      BatchUnique(FlatSpan<int64_t>(ids), nullptr, &own_ids_, positions);
      ids_ = own_ids_;
      if (ids_.size() < ids.NumElements()) {
        LODESTAR_TRY(ctx->allocate_temp(tensorflow::DataTypeToEnum<C>::value,
                                        TensorShape({ids_.size(), dim}),
                                        &rows_tensor_));
        C* const sums = rows_tensor_.flat<C>().data();
        SumByPosition(gradients.flat<C>().data(), positions, ids_.size(), dim,
                      sums, parallel);
        rows_ = sums;
        return absl::OkStatus();
      }
    }
    id_tensor_ = ids;
    rows_tensor_ = gradients;
    rows_ = rows_tensor_.flat<C>().data();
    return absl::OkStatus();
  }

  Span<const int64_t> ids() const { return ids_; }
  const C* rows() const { return rows_; }  // [U, dim]
  // The plan of the lookup that found these ids, or null.
  const LookupPlan* plan() const { return plan_; }

  // Drops all but the ids with these indices, ascending.
  void Keep(const std::vector<int64_t>& kept) {
    std::vector<int64_t> ids;
    for (size_t k = 0; k < kept.size(); ++k) {
      ids.push_back(ids_[kept[k]]);
      own_rows_.insert(own_rows_.end(), rows_ + kept[k] * dim_,
                       rows_ + (kept[k] + 1) * dim_);
    }
    own_ids_ = std::move(ids);
    ids_ = own_ids_;
    rows_ = own_rows_.data();
    plan_ = nullptr;
  }

 private:
  int dim_ = 0;
  Span<const int64_t> ids_;
  const C* rows_ = nullptr;
  const LookupPlan* plan_ = nullptr;
  Tensor id_tensor_;
  Tensor rows_tensor_;
  std::vector<int64_t> own_ids_;
  std::vector<C> own_rows_;
};

// Returns InvalidArgument unless `tensor`, of input `name`, has the dtype in
// which the store's rows are updated.
template <typename Store>
absl::Status CheckUpdateDtype(const Tensor& tensor, const char* name,
                              const Store& store) {
  const RowType type = ComputeType(store.type());
  if (tensor.dtype() == DataTypeOf(type)) return absl::OkStatus();
  return InvalidArgumentError(
      "`", name, "` is ", NameOf(RowTypeOf(tensor.dtype())), ", but rows of ",
      NameOf(store.type()), " are updated as ", NameOf(type), ".");
}

// Calls visit(C()) with the type C in which the store's rows are updated.
template <typename Visit>
void VisitUpdateType(const EmbeddingStore& store, const Visit& visit) {
  if (ComputeType(store.type()) == RowType::kFloat64) {
    visit(double());
  } else {
    visit(float());
  }
}

// Returns InvalidArgument unless `gradients` is [N, D] for `ids` ([N]), in the
// update dtype.
template <typename Store>
absl::Status CheckGradients(const Tensor& ids, const Tensor& gradients,
                            const Store& store) {
  const int dim = store.dim();
  LODESTAR_TRY(CheckRank(ids, "ids", 1));
  LODESTAR_TRY(CheckRank(gradients, "gradients", 2));
  if (gradients.dim_size(0) != ids.NumElements() ||
      gradients.dim_size(1) != dim) {
    return InvalidArgumentError("`gradients` must have shape [",
                                ids.NumElements(), ",", dim, "], got ",
                                gradients.shape().DebugString(), ".");
  }
  return CheckUpdateDtype(gradients, "gradients", store);
}

// Returns true if the gradients of unique ids and their sums by shared row are
// known to be finite.
template <typename C>
bool SurelyFinite(const EmbeddingStore& store, const C* gradients,
                  int64_t count, const ParallelFor* parallel) {
  const C limit = store.has_shared_rows() ? LimitOfTerms<C>(count)
                                          : std::numeric_limits<C>::max();
  return AllWithin(gradients, count, store.dim(), limit, parallel);
}

// kept: indices of the gradients (of unique ids) that are finite, also as sums
// by shared row, or that `exempt` excludes from the check. Returns
// InvalidArgument if nonfinite is "raise" and one is not finite.
template <typename C>
absl::Status KeepFinite(const std::string& nonfinite, Span<const int64_t> ids,
                        Span<const bool> exempt, const C* gradients,
                        const EmbeddingStore& store,
                        std::vector<int64_t>* kept) {
  const int dim = store.dim();
  std::vector<char> keep(ids.size(), 1);
  for (int64_t i = 0; i < ids.size(); ++i) {
    if ((!exempt.empty() && exempt[i]) || IsFinite(gradients + i * dim, dim)) {
      continue;
    }
    if (nonfinite == "raise") return NonfiniteError(ids[i]);
    keep[i] = 0;
  }
  const auto readers = store.ReadersOfSharedRows(ids);
  std::vector<C> sum(dim);
  for (size_t first = 0, next = 0; first < readers.size(); first = next) {
    sum.assign(dim, C{0});
    for (; next < readers.size() && readers[next].first == readers[first].first;
         ++next) {
      const int64_t i = readers[next].second;
      if (!keep[i] || (!exempt.empty() && exempt[i])) continue;
      for (int c = 0; c < dim; ++c) sum[c] += gradients[i * dim + c];
    }
    if (IsFinite(sum.data(), dim)) continue;
    if (nonfinite == "raise") {
      return InvalidArgumentError(
          "the gradients of ids without a row have a sum that is not finite "
          "for shared row ",
          readers[first].first, "; no row was changed", kWhyNonfinite);
    }
    for (size_t k = first; k < next; ++k) keep[readers[k].second] = 0;
  }
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (keep[i] || (!exempt.empty() && exempt[i])) kept->push_back(i);
  }
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_UPDATE_GRADIENTS_H_
