// Contracts: tf_ops/ops/embedding/embedding_collection_ops.cc. Ids, row_splits
// and weights are checked in host memory and then sent to the device in one
// block. Positions are in device memory and cannot be checked; invalid ones are
// treated as padding.

#if LODESTAR_CUDA

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/collection/embedding_collection.h"
#include "tf_ops/core/device/batch/device_collection.h"
#include "tf_ops/core/device/batch/device_features.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_collection_counters.h"
#include "tf_ops/kernels/embedding/embedding_collection_spec.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/embedding/unique_ids.h"

namespace lodestar {
namespace {

using DeviceStores = CollectionStores<DeviceStore>;

// A resource with FeatureCounts of several features in device memory.
class DeviceCollectionCounters : public tensorflow::ResourceBase {
 public:
  static constexpr int kNumbers = CollectionCounters::kNumbers;

  DeviceCollectionCounters(OpKernelContext* ctx, int64_t num_features)
      : num_features_(num_features), allocator_(ctx) {}

  static absl::Status Create(OpKernelContext* ctx, int64_t num_features,
                             DeviceCollectionCounters** out) {
    const KernelStream stream(ctx);
    tensorflow::core::RefCountPtr<DeviceCollectionCounters> made(
        new DeviceCollectionCounters(ctx, num_features));
    LODESTAR_TRY(made->counts_.Allocate(&made->allocator_,
                                        num_features * kNumbers, kFor));
    LODESTAR_TRY(made->Clear(stream.on()));
    *out = made.release();
    return absl::OkStatus();
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
  absl::Status Read(OpKernelContext* ctx, bool reset, int64_t* counts) {
    const KernelStream stream(ctx);
    const DeviceStream& on = stream.on();
    // Prevents counting between the copy and the reset.
    MutexLock lock(&mutex_);
    LODESTAR_TRY(
        CudaStatus(cudaMemcpyAsync(counts, counts_.data(), counts_.bytes(),
                                   cudaMemcpyDeviceToHost, on.stream),
                   kFor));
    if (reset) LODESTAR_TRY(Clear(on));
    return ToTensorFlow(CudaStatus(cudaStreamSynchronize(on.stream), kFor));
  }

 private:
  static constexpr const char* kFor = "the counters of features";

  Status Clear(const DeviceStream& on) {
    return CudaStatus(
        cudaMemsetAsync(counts_.data(), 0, counts_.bytes(), on.stream), kFor);
  }

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
                    const CollectionSpec& spec, CollectionBatch::Ids ids) {
    LODESTAR_TRY(inputs_.Init(ctx, spec));
    const ParallelFor parallel = IntraOpParallelFor(ctx);
    LODESTAR_TRY(inputs_.MakeBatch(ids, &parallel, &host_));
    return ToTensorFlow(device_.Init(on,
                                     DeviceFeatures(spec.features, host_, ids),
                                     spec.num_tables, &parallel));
  }

  CollectionInputs& inputs() { return inputs_; }
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
  const int64_t count = batch.num_unique(t);
  Tensor ids;
  LookupPlan* plan = nullptr;
  LODESTAR_TRY(AllocateUniqueIds(ctx, count, &ids, &plan));
  LODESTAR_TRY(CopyOnDevice(on, batch.batch(t).ids().data,
                            count * static_cast<int64_t>(sizeof(int64_t)),
                            ids.flat<int64_t>().data()));
  list.set(t, ids);
  return absl::OkStatus();
}

class EmbeddingCollectionLookupOnGpuOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    DeviceStores stores;
    LODESTAR_TRY(stores.Init(ctx, spec_));
    LODESTAR_TRY(stores.CheckHooks(ctx));
    tensorflow::core::RefCountPtr<DeviceCollectionCounters> counters;
    LODESTAR_TRY(FindCounters(ctx, spec_, &counters));
    const KernelStream stream(ctx);
    SentBatch sent;
    LODESTAR_TRY(
        sent.Init(ctx, stream.on(), spec_, CollectionBatch::Ids::kRead));
    std::vector<void*> rows;
    std::vector<int64_t*> winners;
    LODESTAR_TRY(sent.inputs().AllocateRowsAndWinners(
        ctx, "rows", stores.dims(), &rows, &winners));
    DeviceCollection& batch = sent.device();
    LODESTAR_TRY(FindOrInsertRows(ctx, stream.on(), stores, &batch));
    for (int f = 0; f < spec_.num_features(); ++f) {
      const int table = spec_.table(f);
      LODESTAR_TRY(batch.Lookup(f, stores.store(table), stores.missing(table),
                                rows[f], winners[f]));
    }
    if (!spec_.training() || counters == nullptr) return absl::OkStatus();
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
    const bool training = spec_.training();
    if (training) LODESTAR_TRY(batch->Unique());
    std::vector<DeviceStore*> tables;
    for (int t = 0; t < spec_.num_tables; ++t) {
      LODESTAR_TRY(OutputUniqueIds(ctx, on, *batch, t, "unique_ids"));
      const int64_t count = training ? batch->ids(t).size : 0;
      Tensor* output = nullptr;
      LODESTAR_TRY(positions.allocate(t, {count}, &output));
      LODESTAR_TRY(CopyOnDevice(on, batch->batch(t).positions(),
                                count * static_cast<int64_t>(sizeof(int64_t)),
                                output->flat<int64_t>().data()));
      tables.push_back(stores.store(t));
    }
    if (!training) return absl::OkStatus();
    LODESTAR_TRY(batch->FindOrInsert(tables, spec_.lookup));
    for (int t = 0; t < spec_.num_tables; ++t) {
      stores.store(t)->CountBatch(batch->ids(t).size, batch->num_unique(t),
                                  batch->num_padding(t));
    }
    return absl::OkStatus();
  }
};

class EmbeddingCollectionGradientOnGpuOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    const bool deduplicated = spec_.deduplicated;
    const std::vector<int>& dims = spec_.dims;
    const KernelStream stream(ctx);
    SentBatch sent;
    LODESTAR_TRY(sent.Init(ctx, stream.on(), spec_,
                           deduplicated ? CollectionBatch::Ids::kCount
                                        : CollectionBatch::Ids::kRead));
    std::vector<const void*> gradients;
    LODESTAR_TRY(sent.inputs().ReadGradients(ctx, dims, &gradients));
    std::vector<const int64_t*> winners;
    LODESTAR_TRY(sent.inputs().ReadWinners(ctx, dims, &winners));
    DeviceCollection& batch = sent.device();
    if (!deduplicated) LODESTAR_TRY(batch.Unique());
    OpInputList unique_ids, positions;
    OpOutputList summed_ids, sums;
    if (deduplicated) {
      LODESTAR_TRY(ReadVectors(ctx, "unique_ids", &unique_ids));
      LODESTAR_TRY(ReadVectors(ctx, "positions", &positions));
    }
    LODESTAR_TRY(ctx->output_list("summed_ids", &summed_ids));
    LODESTAR_TRY(ctx->output_list("sums", &sums));
    for (int t = 0; t < spec_.num_tables; ++t) {
      const int64_t* places = nullptr;
      int64_t num_unique = 0;
      if (deduplicated) {
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
      SumTensor sum;
      LODESTAR_TRY(sum.Init(ctx, output));
      LODESTAR_TRY(batch.SumGradients(t, sum.type(), gradients, winners, places,
                                      num_unique, dims[t], sum.data()));
      LODESTAR_TRY(sum.Round(stream.on()));
    }
    return absl::OkStatus();
  }
};

// The rows of the unique ids of all tables, fetched from other devices.
class FetchedTables {
 public:
  absl::Status Init(OpKernelContext* ctx) {
    LODESTAR_TRY(ReadFetchedTables(ctx, &tables_));
    dims_ = DimsOf(tables_);
    return absl::OkStatus();
  }
  // Positions are in device memory, so only their number can be checked.
  absl::Status Check(const CollectionBatch& batch) const {
    for (size_t t = 0; t < tables_.size(); ++t) {
      LODESTAR_TRY(CheckNumPositions(batch, static_cast<int>(t),
                                     tables_[t].positions.size()));
    }
    return absl::OkStatus();
  }

  const std::vector<CollectionBatch::Table>& tables() const { return tables_; }
  const std::vector<int>& dims() const { return dims_; }
  DeviceCollection::Fetched Of(int t, const void* default_row = nullptr) const {
    const FetchedRows& fetched = tables_[t].fetched;
    return {{fetched.type, fetched.dim, fetched.data, fetched.size},
            tables_[t].positions.data(),
            default_row};
  }

 private:
  std::vector<CollectionBatch::Table> tables_;
  std::vector<int> dims_;
};

class EmbeddingCollectionPoolOnGpuOp : public CollectionKernel {
 public:
  using CollectionKernel::CollectionKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    FetchedTables tables;
    LODESTAR_TRY(tables.Init(ctx));
    LODESTAR_TRY(CheckHooksAndIds(ctx, tables.tables()));
    const KernelStream stream(ctx);
    SentBatch sent;
    LODESTAR_TRY(
        sent.Init(ctx, stream.on(), spec_, CollectionBatch::Ids::kRead));
    LODESTAR_TRY(tables.Check(sent.host()));
    LODESTAR_TRY(sent.inputs().ReadDefaultRows(ctx, tables.dims()));
    std::vector<void*> rows;
    std::vector<int64_t*> winners;
    LODESTAR_TRY(sent.inputs().AllocateRowsAndWinners(
        ctx, "pooled", tables.dims(), &rows, &winners));
    for (int f = 0; f < spec_.num_features(); ++f) {
      const void* const default_row = sent.inputs().tensors()[f].default_row;
      LODESTAR_TRY(sent.device().Lookup(
          f, tables.Of(spec_.table(f), default_row), rows[f], winners[f]));
    }
    return absl::OkStatus();
  }
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
LODESTAR_REGISTER_ON_GPU(EmbeddingCollectionPool,
                         EmbeddingCollectionPoolOnGpuOp,
                         LODESTAR_BATCH_ON_HOST);
LODESTAR_REGISTER_ON_GPU(EmbeddingCollectionCounters,
                         CollectionCountersKernel<DeviceCollectionCounters>,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingCollectionStats,
                         CollectionStatsKernel<DeviceCollectionCounters>,
                         .HostMemory("handle").HostMemory("counts"));

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
