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
#include "tf_ops/kernels/base/resource_util.h"

namespace lodestar {

class CollectionCounters : public tensorflow::ResourceBase {
 public:
  // Number of counters per feature, in the order of FeatureCounts.
  static constexpr int kNumbers = 4;

  explicit CollectionCounters(int64_t num_features)
      : counts_(num_features * kNumbers) {}
  static absl::Status Create(OpKernelContext*, int64_t num_features,
                             CollectionCounters** out) {
    *out = new CollectionCounters(num_features);
    return absl::OkStatus();
  }

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
  absl::Status Read(OpKernelContext*, bool reset, int64_t* counts) {
    for (size_t i = 0; i < counts_.size(); ++i) {
      counts[i] = reset ? counts_[i].exchange(0, std::memory_order_relaxed)
                        : counts_[i].load(std::memory_order_relaxed);
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::atomic<int64_t>> counts_;
};

// Creates counters of type Counters, or finds those with this name.
template <typename Counters>
class CollectionCountersKernel final : public Kernel {
 public:
  explicit CollectionCountersKernel(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_features", &num_features_));
    constexpr int64_t kMost = int64_t{1} << 20;
    OP_REQUIRES(ctx, num_features_ <= kMost,
                InvalidArgumentError("`num_features` must be in [1, ", kMost,
                                     "], got ", num_features_, "."));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<Counters>(
        ctx, *this,
        [&](Counters** created) {
          return Counters::Create(ctx, num_features_, created);
        },
        [](const Counters&, const std::string&) { return absl::OkStatus(); });
  }

 private:
  int64_t num_features_ = 0;
};

// Outputs counters of type Counters.
template <typename Counters>
class CollectionStatsKernel final : public Kernel {
 public:
  explicit CollectionStatsKernel(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reset", &reset_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    tensorflow::core::RefCountPtr<Counters> counters;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &counters));
    Tensor* output = nullptr;
    LODESTAR_TRY(ctx->allocate_output(
        0, {counters->num_features(), CollectionCounters::kNumbers}, &output));
    return counters->Read(ctx, reset_, output->flat<int64_t>().data());
  }

 private:
  bool reset_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_COLLECTION_COUNTERS_H_
