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

inline bool AllFinite(const float* rows, int64_t count, int dim,
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

// InvalidArgument unless `gradients` is [N, dim] of `ids`, [N].
inline absl::Status CheckGradients(const tensorflow::Tensor& ids,
                                   const tensorflow::Tensor& gradients,
                                   int dim) {
  TF_RETURN_IF_ERROR(CheckRank(ids, "ids", 1));
  TF_RETURN_IF_ERROR(CheckRank(gradients, "gradients", 2));
  if (gradients.dim_size(0) == ids.NumElements() &&
      gradients.dim_size(1) == dim) {
    return absl::OkStatus();
  }
  return InvalidArgumentError("`gradients` has shape ",
                              gradients.shape().DebugString(), ", wanted [",
                              ids.NumElements(), ",", dim, "]");
}

// kept: the indices of the gradients that are finite, or that `exempt` says
// are not looked at. What is left out is counted, or InvalidArgument where
// nonfinite is "raise".
inline absl::Status KeepFinite(const std::string& nonfinite,
                               Span<const int64_t> ids, Span<const bool> exempt,
                               const float* gradients, int dim,
                               EmbeddingStore* store,
                               std::vector<int64_t>* kept) {
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
