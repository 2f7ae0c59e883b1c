// Contracts: tf_ops/ops/embedding/embedding_collection_ops.cc. Ids, row_splits
// and weights are checked in host memory and then sent to the device in one
// block. Positions are in device memory and cannot be checked; invalid ones are
// treated as padding.

#if LODESTAR_CUDA

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/core/device/device_collection.h"
#include "tf_ops/core/device/device_features.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/device/device_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_collection_util.h"

namespace lodestar {
namespace {

using DeviceStores = CollectionStores<DeviceStore>;

// Reads the environment variable LODESTAR_BATCH_MEMORY; default: device.
absl::Status ReadBatchMemory(BatchMemory* memory) {
  const char* const text = std::getenv("LODESTAR_BATCH_MEMORY");
  const Status parsed =
      ParseBatchMemory(text == nullptr ? "device" : text, memory);
  if (parsed.ok()) return absl::OkStatus();
  return InvalidArgumentError("environment variable LODESTAR_BATCH_MEMORY: ",
                              parsed.message());
}

// A resource with FeatureCounts of several features in device memory.
class DeviceCollectionCounters : public tensorflow::ResourceBase {
 public:
  static constexpr int kNumbers = CollectionCounters::kNumbers;

  DeviceCollectionCounters(OpKernelContext* ctx, int64_t num_features)
      : num_features_(num_features), allocator_(ctx) {}

  Status Allocate(const DeviceStream& on) {
    LODESTAR_RETURN_IF_ERROR(counts_.Allocate(
        &allocator_, num_features_ * kNumbers, "the counters of features"));
    return CudaStatus(
        cudaMemsetAsync(counts_.data(), 0, counts_.bytes(), on.stream),
        "the counters of features");
  }

  std::string DebugString() const override {
    return StrCat("EmbeddingCollectionCounters(num_features=", num_features_,
                  ", on a GPU)");
  }
  int64_t num_features() const { return num_features_; }

  // Adds the counts of a batch.
  Status Add(DeviceCollection* batch) {
    MutexLock lock(&mutex_);
    for (int f = 0; f < num_features_; ++f) {
      LODESTAR_RETURN_IF_ERROR(batch->Count(f, counts_.data() + f * kNumbers));
    }
    return Status();
  }
  // See CollectionCounters::Read. Waits.
  Status Read(const DeviceStream& on, bool reset, int64_t* counts) {
    constexpr const char* kFor = "the counters of features";
    // Prevents counting between the copy and the reset.
    MutexLock lock(&mutex_);
    LODESTAR_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(counts, counts_.data(), counts_.bytes(),
                                   cudaMemcpyDeviceToHost, on.stream),
                   kFor));
    if (reset) {
      LODESTAR_RETURN_IF_ERROR(CudaStatus(
          cudaMemsetAsync(counts_.data(), 0, counts_.bytes(), on.stream),
          kFor));
    }
    return CudaStatus(cudaStreamSynchronize(on.stream), kFor);
  }

 private:
  const int64_t num_features_;
  TensorFlowAllocator allocator_;  // must outlive the counters
  // Guards the order in which work on the counters is queued, on one stream.
  Mutex mutex_;
  DeviceArray<unsigned long long> counts_;
};

// Sends the inputs ids, row_splits and weights of an op to its device.
class SentBatch {
 public:
  absl::Status Init(OpKernelContext* ctx, const DeviceStream& on,
                    BatchMemory memory, const CollectionAttributes& attributes,
                    CollectionBatch::Ids ids) {
    LODESTAR_TRY(inputs_.Init(ctx, attributes));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    LODESTAR_TRY(host_.Init(attributes.features(), inputs_.tensors(),
                            attributes.num_tables(), ids, &parallel));
    return ToTensorFlow(device_.Init(
        on, memory, DeviceFeatures(attributes.features(), host_, ids),
        attributes.num_tables(), &parallel));
  }

  const CollectionInputs& inputs() const { return inputs_; }
  const CollectionBatch& host() const { return host_; }
  DeviceCollection& device() { return device_; }

 private:
  CollectionInputs inputs_;
  CollectionBatch host_;
  DeviceCollection device_;
};

// Outputs the unique ids of a table at index t of the list `name`.
absl::Status OutputUniqueIds(OpKernelContext* ctx, const DeviceStream& on,
                             const DeviceCollection& batch, int t,
                             const char* name) {
  OpOutputList list;
  LODESTAR_TRY(ctx->output_list(name, &list));
  Tensor ids;
  LODESTAR_TRY(CopyUniqueIds(ctx, on, batch.batch(t).ids().data,
                             batch.num_unique(t), &ids));
  list.set(t, ids);
  return absl::OkStatus();
}

class EmbeddingCollectionLookupOnGpuOp : public Kernel {
 public:
  explicit EmbeddingCollectionLookupOnGpuOp(OpKernelConstruction* ctx)
      : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
    OP_REQUIRES_OK(ctx, attributes_.CheckWinners(ctx));
    OP_REQUIRES_OK(ctx,
                   ReadMissingKinds(ctx, attributes_.num_tables(), &missing_));
    EmbeddingStore::LookupOptions options;
    OP_REQUIRES_OK(ctx, ReadLookupOptions(ctx, &options));
    training_ = options.insert || options.count_frequency;
    options_ = OnDevice(options);
    OP_REQUIRES_OK(ctx, ReadBatchMemory(&memory_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    DeviceStores stores;
    LODESTAR_TRY(stores.Init(ctx, attributes_, missing_));
    LODESTAR_TRY(stores.CheckHooks(ctx));
    tensorflow::core::RefCountPtr<DeviceCollectionCounters> counters;
    OpInputList handles;
    LODESTAR_TRY(ctx->input_list("counters", &handles));
    if (handles.size() > 0) {
      LODESTAR_TRY(FindCounters(ctx, attributes_, handles[0], &counters));
    }
    const KernelStream stream(ctx);
    SentBatch sent;
    LODESTAR_TRY(sent.Init(ctx, stream.on(), memory_, attributes_,
                           CollectionBatch::Ids::kRead));
    std::vector<void*> rows;
    std::vector<int64_t*> winners;
    LODESTAR_TRY(AllocateRowsAndWinners(ctx, attributes_, sent.inputs(), "rows",
                                        stores.dims(), &rows, &winners));
    DeviceCollection& batch = sent.device();
    LODESTAR_TRY(FindOrInsertRows(ctx, stream.on(), stores, &batch));
    for (size_t f = 0; f < rows.size(); ++f) {
      const int feature = static_cast<int>(f);
      const int table = static_cast<int>(attributes_.features()[f].table);
      LODESTAR_TRY(batch.Lookup(feature, stores.store(table),
                                stores.missing(table), rows[f], winners[f]));
    }
    if (!training_ || counters == nullptr) return absl::OkStatus();
    return ToTensorFlow(counters->Add(&batch));
  }

 private:
  // Deduplicates the ids of each table and finds or creates their rows. Does
  // nothing for a read-only lookup.
  absl::Status FindOrInsertRows(OpKernelContext* ctx, const DeviceStream& on,
                                const DeviceStores& stores,
                                DeviceCollection* batch) const {
    OpOutputList positions;
    LODESTAR_TRY(ctx->output_list("positions", &positions));
    if (training_) LODESTAR_TRY(batch->Unique());
    std::vector<DeviceStore*> tables;
    for (int t = 0; t < attributes_.num_tables(); ++t) {
      LODESTAR_TRY(OutputUniqueIds(ctx, on, *batch, t, "unique_ids"));
      const int64_t count = training_ ? batch->ids(t).size : 0;
      Tensor* output = nullptr;
      LODESTAR_TRY(positions.allocate(t, {count}, &output));
      LODESTAR_TRY(CopyOnDevice(on, batch->batch(t).positions(),
                                count * static_cast<int64_t>(sizeof(int64_t)),
                                output->flat<int64_t>().data()));
      tables.push_back(stores.store(t));
    }
    if (!training_) return absl::OkStatus();
    LODESTAR_TRY(batch->FindOrInsert(tables, options_));
    for (int t = 0; t < attributes_.num_tables(); ++t) {
      stores.store(t)->CountBatch(batch->ids(t).size, batch->num_unique(t),
                                  batch->num_padding(t));
    }
    return absl::OkStatus();
  }

  CollectionAttributes attributes_;
  std::vector<std::string> missing_;
  bool training_ = false;
  DeviceStore::InsertOptions options_;
  BatchMemory memory_ = BatchMemory::kDevice;
};

class EmbeddingCollectionGradientOnGpuOp : public Kernel {
 public:
  explicit EmbeddingCollectionGradientOnGpuOp(OpKernelConstruction* ctx)
      : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
    OP_REQUIRES_OK(ctx, ReadBatchMemory(&memory_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const bool deduplicated = attributes_.deduplicated();
    const std::vector<int>& dims = attributes_.dims();
    const KernelStream stream(ctx);
    SentBatch sent;
    LODESTAR_TRY(sent.Init(ctx, stream.on(), memory_, attributes_,
                           deduplicated ? CollectionBatch::Ids::kCount
                                        : CollectionBatch::Ids::kRead));
    std::vector<const void*> gradients;
    LODESTAR_TRY(
        ReadGradients(ctx, attributes_, sent.inputs(), dims, &gradients));
    std::vector<const int64_t*> winners;
    LODESTAR_TRY(attributes_.ReadWinners(ctx, sent.inputs(), &winners));
    DeviceCollection& batch = sent.device();
    if (!deduplicated) LODESTAR_TRY(batch.Unique());
    OpInputList unique_ids, positions;
    OpOutputList summed_ids, sums;
    LODESTAR_TRY(ctx->input_list("unique_ids", &unique_ids));
    LODESTAR_TRY(ctx->input_list("positions", &positions));
    LODESTAR_TRY(ctx->output_list("summed_ids", &summed_ids));
    LODESTAR_TRY(ctx->output_list("sums", &sums));
    for (int t = 0; t < attributes_.num_tables(); ++t) {
      const int64_t* places = nullptr;
      int64_t num_unique = 0;
      if (deduplicated) {
        LODESTAR_TRY(CheckRank(unique_ids[t], "unique_ids", 1));
        LODESTAR_TRY(CheckRank(positions[t], "positions", 1));
        LODESTAR_TRY(
            CheckNumPositions(sent.host(), t, positions[t].NumElements()));
        places = positions[t].flat<int64_t>().data();
        num_unique = unique_ids[t].NumElements();
        summed_ids.set(t, unique_ids[t]);
      } else {
        LODESTAR_TRY(OutputUniqueIds(ctx, stream.on(), batch, t, "summed_ids"));
        places = batch.batch(t).positions();
        num_unique = batch.num_unique(t);
      }
      Tensor* output = nullptr;
      LODESTAR_TRY(sums.allocate(t, {num_unique, dims[t]}, &output));
      DeviceSums sum;
      LODESTAR_TRY(sum.Init(ctx, output));
      LODESTAR_TRY(batch.SumGradients(t, RowTypeOf(output->dtype()), gradients,
                                      winners, places, num_unique, dims[t],
                                      sum.data()));
      LODESTAR_TRY(sum.Round(stream.on()));
    }
    return absl::OkStatus();
  }

 private:
  CollectionGradientAttributes attributes_;
  BatchMemory memory_ = BatchMemory::kDevice;
};

class EmbeddingCollectionWeightsGradientOnGpuOp : public Kernel {
 public:
  explicit EmbeddingCollectionWeightsGradientOnGpuOp(OpKernelConstruction* ctx)
      : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
    OP_REQUIRES_OK(ctx,
                   ReadMissingKinds(ctx, attributes_.num_tables(), &missing_));
    OP_REQUIRES_OK(ctx, ReadBatchMemory(&memory_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    DeviceStores stores;
    LODESTAR_TRY(stores.Init(ctx, attributes_, missing_));
    const KernelStream stream(ctx);
    SentBatch sent;
    LODESTAR_TRY(sent.Init(ctx, stream.on(), memory_, attributes_,
                           CollectionBatch::Ids::kRead));
    std::vector<const void*> gradients;
    LODESTAR_TRY(ReadGradients(ctx, attributes_, sent.inputs(), stores.dims(),
                               &gradients));
    OpInputList weights;
    OpOutputList outputs;
    LODESTAR_TRY(ctx->input_list("weights", &weights));
    LODESTAR_TRY(ctx->output_list("weight_gradients", &outputs));
    int next = 0;
    for (size_t f = 0; f < gradients.size(); ++f) {
      if (!attributes_.weighted(f)) continue;
      Tensor* output = nullptr;
      LODESTAR_TRY(outputs.allocate(next, weights[next].shape(), &output));
      ++next;
      const int table = static_cast<int>(attributes_.features()[f].table);
      LODESTAR_TRY(OfFeature(stream.on(), &sent, static_cast<int>(f),
                             stores.store(table), stores.missing(table),
                             gradients[f], output));
    }
    return absl::OkStatus();
  }

 private:
  // Waits.
  static absl::Status OfFeature(const DeviceStream& on, SentBatch* sent, int f,
                                DeviceStore* store, const Missing& missing,
                                const void* gradients, Tensor* output) {
    constexpr const char* kFor = "gradients of weights";
    auto out = output->flat<float>();
    std::fill_n(out.data(), out.size(), 0.0f);
    const Bags& bags = sent->host().bags(f);
    const int64_t count = bags.weights.size();
    if (count == 0) return absl::OkStatus();
    DeviceArray<float> on_device;
    LODESTAR_TRY(on_device.Allocate(on.memory, count, kFor));
    LODESTAR_TRY(sent->device().WeightGradients(f, store, missing, gradients,
                                                on_device.data()));
    std::vector<float> left(count);
    LODESTAR_TRY(CudaStatus(
        cudaMemcpyAsync(left.data(), on_device.data(), on_device.bytes(),
                        cudaMemcpyDeviceToHost, on.stream),
        kFor));
    LODESTAR_TRY(CudaStatus(cudaStreamSynchronize(on.stream), kFor));
    // Ids removed by max_length have no gradient.
    const Span<const int64_t> whole = sent->inputs().tensors()[f].row_splits;
    for (int64_t b = 0; b < bags.size(); ++b) {
      const int64_t first = bags.row_splits[b];
      std::copy_n(left.data() + first, bags.row_splits[b + 1] - first,
                  out.data() + whole[b]);
    }
    return absl::OkStatus();
  }

  CollectionAttributes attributes_;
  std::vector<std::string> missing_;
  BatchMemory memory_ = BatchMemory::kDevice;
};

class EmbeddingCollectionCountersOnGpuOp : public Kernel {
 public:
  explicit EmbeddingCollectionCountersOnGpuOp(OpKernelConstruction* ctx)
      : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadNumFeatures(ctx, &num_features_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<DeviceCollectionCounters>(
        ctx, *this,
        [&](DeviceCollectionCounters** created) {
          const KernelStream stream(ctx);
          tensorflow::core::RefCountPtr<DeviceCollectionCounters> made(
              new DeviceCollectionCounters(ctx, num_features_));
          LODESTAR_TRY(made->Allocate(stream.on()));
          *created = made.release();
          return absl::OkStatus();
        },
        [](const DeviceCollectionCounters&, const std::string&) {
          return absl::OkStatus();
        });
  }

 private:
  int64_t num_features_ = 0;
};

class EmbeddingCollectionStatsOnGpuOp : public Kernel {
 public:
  explicit EmbeddingCollectionStatsOnGpuOp(OpKernelConstruction* ctx)
      : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reset", &reset_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    tensorflow::core::RefCountPtr<DeviceCollectionCounters> counters;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &counters));
    Tensor* output = nullptr;
    LODESTAR_TRY(ctx->allocate_output(
        0, {counters->num_features(), DeviceCollectionCounters::kNumbers},
        &output));
    const KernelStream stream(ctx);
    return ToTensorFlow(
        counters->Read(stream.on(), reset_, output->flat<int64_t>().data()));
  }

 private:
  bool reset_ = false;
};

#define LODESTAR_BATCH_ON_HOST \
  .HostMemory("ids").HostMemory("row_splits").HostMemory("weights")

LODESTAR_REGISTER_ON_GPU(EmbeddingCollectionLookup,
                         EmbeddingCollectionLookupOnGpuOp,
                         .HostMemory("handles").HostMemory("counters")
                             LODESTAR_BATCH_ON_HOST);
LODESTAR_REGISTER_ON_GPU(EmbeddingCollectionGradient,
                         EmbeddingCollectionGradientOnGpuOp,
                         LODESTAR_BATCH_ON_HOST);
LODESTAR_REGISTER_ON_GPU(EmbeddingCollectionWeightsGradient,
                         EmbeddingCollectionWeightsGradientOnGpuOp,
                         .HostMemory("handles").HostMemory("weight_gradients")
                             LODESTAR_BATCH_ON_HOST);
LODESTAR_REGISTER_ON_GPU(EmbeddingCollectionCounters,
                         EmbeddingCollectionCountersOnGpuOp,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingCollectionStats,
                         EmbeddingCollectionStatsOnGpuOp,
                         .HostMemory("handle").HostMemory("counts"));

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
