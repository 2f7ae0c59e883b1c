// What every update of an embedding variable asks of its gradients.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_GRADIENTS_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_GRADIENTS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tf_ops/core/embedding_store.h"
#include "tf_ops/core/parallel.h"
#include "tf_ops/kernels/embedding_kernel_util.h"
#include "tf_ops/kernels/status_util.h"
#include "tf_ops/kernels/tensor_util.h"

namespace lodestar {

// By the bits, a maximum of integers, because that is vectorised.
inline bool IsFinite(const float* row, int dim) {
  uint32_t largest = 0;
  for (int c = 0; c < dim; ++c) {
    uint32_t bits;
    std::memcpy(&bits, row + c, sizeof(bits));
    largest = std::max(largest, bits & 0x7fffffff);
  }
  return largest < 0x7f800000;  // infinity
}

inline bool IsFinite(const double* row, int dim) {
  uint64_t largest = 0;
  for (int c = 0; c < dim; ++c) {
    uint64_t bits;
    std::memcpy(&bits, row + c, sizeof(bits));
    largest = std::max(largest, bits & ~(uint64_t{1} << 63));
  }
  return largest < uint64_t{0x7ff} << 52;  // infinity
}

template <typename C>
bool AllFinite(const C* rows, int64_t count, int dim,
               const ParallelFor* parallel) {
  std::atomic<bool> finite{true};
  RunParallel(parallel, count, 1 + dim / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (IsFinite(rows + i * dim, dim)) continue;
      finite.store(false, std::memory_order_relaxed);
      return;
    }
  });
  return finite.load(std::memory_order_relaxed);
}

inline absl::Status NonfiniteError(int64_t id) {
  return InvalidArgumentError("the gradient of id ", id,
                              " is not finite; no row was changed");
}

// InvalidArgument unless `tensor`, an input called `name`, is of the dtype that
// the store's rows are updated as.
inline absl::Status CheckUpdateDtype(const tensorflow::Tensor& tensor,
                                     const char* name,
                                     const EmbeddingStore& store) {
  const RowType type = ComputeType(store.type());
  if (tensor.dtype() == DataTypeOf(type)) return absl::OkStatus();
  return InvalidArgumentError(
      "`", name, "` is ", NameOf(RowTypeOf(tensor.dtype())), ", but rows of ",
      NameOf(store.type()), " are updated as ", NameOf(type));
}

// visit(C()), where the store's rows are updated as C.
template <typename Visit>
void VisitUpdateType(const EmbeddingStore& store, const Visit& visit) {
  if (ComputeType(store.type()) == RowType::kFloat64) {
    visit(double());
  } else {
    visit(float());
  }
}

// InvalidArgument unless `gradients` is [N, D] of `ids`, [N], as rows are
// updated.
inline absl::Status CheckGradients(const tensorflow::Tensor& ids,
                                   const tensorflow::Tensor& gradients,
                                   const EmbeddingStore& store) {
  const int dim = store.dim();
  TF_RETURN_IF_ERROR(CheckRank(ids, "ids", 1));
  TF_RETURN_IF_ERROR(CheckRank(gradients, "gradients", 2));
  if (gradients.dim_size(0) != ids.NumElements() ||
      gradients.dim_size(1) != dim) {
    return InvalidArgumentError("`gradients` has shape ",
                                gradients.shape().DebugString(), ", wanted [",
                                ids.NumElements(), ",", dim, "]");
  }
  return CheckUpdateDtype(gradients, "gradients", store);
}

// kept: the indices of the gradients that are finite, or that `exempt` says
// are not looked at. What is left out is counted, or InvalidArgument where
// nonfinite is "raise".
template <typename C>
absl::Status KeepFinite(const std::string& nonfinite, Span<const int64_t> ids,
                        Span<const bool> exempt, const C* gradients, int dim,
                        EmbeddingStore* store, std::vector<int64_t>* kept) {
  for (int64_t i = 0; i < ids.size(); ++i) {
    if ((!exempt.empty() && exempt[i]) || IsFinite(gradients + i * dim, dim)) {
      kept->push_back(i);
    } else if (nonfinite == "raise") {
      return NonfiniteError(ids[i]);
    }
  }
  store->CountNonfiniteGradients(ids.size() -
                                 static_cast<int64_t>(kept->size()));
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_GRADIENTS_H_
