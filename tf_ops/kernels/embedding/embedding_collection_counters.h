// Lookup counters of a collection, by feature, as a TensorFlow resource.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_COUNTERS_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_COUNTERS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/kernels/base/kernel.h"

namespace lodestar {

class CollectionCounters : public tensorflow::ResourceBase {
 public:
  // Number of counters per feature, in the order of FeatureCounts.
  static constexpr int kNumbers = 4;

  explicit CollectionCounters(int64_t num_features)
      : counts_(num_features * kNumbers) {}

  std::string DebugString() const override {
    return StrCat("EmbeddingCollectionCounters(num_features=", num_features(),
                  ")");
  }
  int64_t num_features() const {
    return static_cast<int64_t>(counts_.size()) / kNumbers;
  }

  // Requires: one item per feature.
  void Add(const std::vector<FeatureCounts>& counts) {
    for (size_t f = 0; f < counts.size(); ++f) {
      const FeatureCounts& count = counts[f];
      const int64_t numbers[kNumbers] = {count.ids, count.padding, count.unique,
                                         count.hits};
      for (int n = 0; n < kNumbers; ++n) {
        counts_[f * kNumbers + n].fetch_add(numbers[n],
                                            std::memory_order_relaxed);
      }
    }
  }

  // counts: [num_features, kNumbers]. With `reset`, every lookup is counted in
  // exactly one result.
  void Read(bool reset, int64_t* counts) {
    for (size_t i = 0; i < counts_.size(); ++i) {
      counts[i] = reset ? counts_[i].exchange(0, std::memory_order_relaxed)
                        : counts_[i].load(std::memory_order_relaxed);
    }
  }

 private:
  std::vector<std::atomic<int64_t>> counts_;
};

// Reads attribute num_features of the op that creates counters.
inline absl::Status ReadNumFeatures(OpKernelConstruction* ctx,
                                    int64_t* num_features) {
  LODESTAR_TRY(ctx->GetAttr("num_features", num_features));
  constexpr int64_t kMost = int64_t{1} << 20;
  if (*num_features <= kMost) return absl::OkStatus();
  return InvalidArgumentError("`num_features` must be in [1, ", kMost,
                              "], got ", *num_features, ".");
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_COUNTERS_H_
