// Contracts: tf_ops/ops/embedding/embedding_ops.cc. Positions are in device
// memory and cannot be checked; invalid ones are treated as padding.

#if LODESTAR_CUDA

#include <cstdint>
#include <string>

#include "tf_ops/core/device/device_batch.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/device/device_kernel_util.h"

namespace lodestar {
namespace {

// Outputs the unique ids of a batch. `unique` is their number.
absl::Status OutputBatch(OpKernelContext* ctx, const DeviceStream& on,
                         const DeviceBatch& batch, int64_t num_ids,
                         int unique_output, int64_t* unique, int64_t* padding) {
  LODESTAR_TRY(batch.Count(on, unique, padding));
  Tensor ids;
  LODESTAR_TRY(CopyUniqueIds(ctx, on, batch.ids().data, *unique, &ids));
  ctx->set_output(unique_output, ids);
  Tensor* positions = nullptr;
  LODESTAR_TRY(ctx->allocate_output(unique_output + 1, {num_ids}, &positions));
  return CopyOnDevice(on, batch.positions(), num_ids * sizeof(int64_t),
                      positions->flat<int64_t>().data());
}

class EmbeddingFindOrInsertOnGpuOp : public DeviceKernel {
 public:
  explicit EmbeddingFindOrInsertOnGpuOp(OpKernelConstruction* ctx)
      : DeviceKernel(ctx) {
    EmbeddingStore::LookupOptions options;
    OP_REQUIRES_OK(ctx, lookup_.Init(ctx));
    OP_REQUIRES_OK(ctx, ReadLookupOptions(ctx, &options));
    options_ = OnDevice(options);
  }

  absl::Status RunOn(const DeviceCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    const int dim = call.store->dim();
    LODESTAR_TRY(CheckHook(ctx->input(1), *call.store));
    const Tensor& ids = ctx->input(2);
    Missing missing;
    LODESTAR_TRY(lookup_.ReadMissing(ctx->input(3), dim, &missing));
    char* rows = nullptr;
    LODESTAR_TRY(AllocateRows(ctx, 0, ids.shape(), dim, &rows));
    DeviceBatch batch;
    LODESTAR_TRY(batch.Unique(call.on, IdsOf(ids), lookup_.padding_id()));
    int64_t unique = 0;
    int64_t padding = 0;
    LODESTAR_TRY(OutputBatch(ctx, call.on, batch, ids.NumElements(), 1, &unique,
                             &padding));
    DeviceArray<uint32_t> refs;
    LODESTAR_TRY(refs.Allocate(call.on.memory, unique, "row locations"));
    LODESTAR_TRY(
        call.store->FindOrInsert(call.on, {batch.ids().data, unique, nullptr},
                                 options_, {refs.data(), nullptr, nullptr}));
    call.store->CountBatch(ids.NumElements(), unique, padding);
    return ToTensorFlow(call.store->ReadRows(
        call.on, IdsOf(ids), batch.positions(), refs.data(), missing, rows));
  }

 private:
  LookupAttributes lookup_;
  DeviceStore::InsertOptions options_;
};

class EmbeddingFindOrInsertUniqueOnGpuOp : public DeviceKernel {
 public:
  explicit EmbeddingFindOrInsertUniqueOnGpuOp(OpKernelConstruction* ctx)
      : DeviceKernel(ctx) {
    std::string missing;
    EmbeddingStore::LookupOptions options;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("missing", &missing));
    kind_ = ParseMissing(missing);
    OP_REQUIRES_OK(ctx, ReadLookupOptions(ctx, &options));
    options_ = OnDevice(options);
  }

  absl::Status RunOn(const DeviceCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    const Tensor& ids = ctx->input(1);
    LODESTAR_TRY(CheckRank(ids, "ids", 1));
    // Occurrences are not used, because there is no admission on GPUs.
    LODESTAR_TRY(CheckRank(ctx->input(2), "occurrences", 1));
    const Tensor& missing_row = ctx->input(3);
    LODESTAR_TRY(
        CheckDtype(missing_row.dtype(), "missing_row", call.store->type()));
    Missing missing;
    LODESTAR_TRY(ReadMissing(kind_, missing_row, call.store->dim(), &missing));
    int64_t unique = ids.NumElements();
    if (PlanOf(ids) == nullptr) {
      DeviceBatch batch;
      LODESTAR_TRY(batch.Unique(call.on, IdsOf(ids), nullptr));
      LODESTAR_TRY(batch.Count(call.on, &unique));
    }
    if (unique != ids.NumElements()) {
      return InvalidArgumentError("`ids` must be unique, but only ", unique,
                                  " of ", ids.NumElements(), " ids are.");
    }
    char* rows = nullptr;
    LODESTAR_TRY(AllocateRows(ctx, 0, ids.shape(), call.store->dim(), &rows));
    Tensor* resident = nullptr;
    LODESTAR_TRY(ctx->allocate_output(1, ids.shape(), &resident));
    DeviceArray<uint32_t> refs;
    LODESTAR_TRY(refs.Allocate(call.on.memory, unique, "row locations"));
    LODESTAR_TRY(call.store->FindOrInsert(
        call.on, IdsOf(ids), options_,
        {refs.data(), resident->flat<bool>().data(), nullptr}));
    call.store->CountBatch(unique, unique, 0);
    return ToTensorFlow(call.store->ReadRows(call.on, IdsOf(ids), nullptr,
                                             refs.data(), missing, rows));
  }

 private:
  Missing::Kind kind_ = Missing::Kind::kZeros;
  DeviceStore::InsertOptions options_;
};

class EmbeddingUniqueOnGpuOp : public Kernel {
 public:
  explicit EmbeddingUniqueOnGpuOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_padding", &use_padding_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding_id", &padding_id_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    const KernelStream stream(ctx);
    DeviceBatch batch;
    LODESTAR_TRY(batch.Unique(stream.on(), IdsOf(ctx->input(0)),
                              use_padding_ ? &padding_id_ : nullptr));
    int64_t unique = 0;
    return OutputBatch(ctx, stream.on(), batch, ctx->input(0).NumElements(), 0,
                       &unique, nullptr);
  }

 private:
  bool use_padding_ = false;
  int64_t padding_id_ = 0;
};

LODESTAR_REGISTER_ON_GPU(EmbeddingFindOrInsert, EmbeddingFindOrInsertOnGpuOp,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingFindOrInsertUnique,
                         EmbeddingFindOrInsertUniqueOnGpuOp,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingUnique, EmbeddingUniqueOnGpuOp);

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
