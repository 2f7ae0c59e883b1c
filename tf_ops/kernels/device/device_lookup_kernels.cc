// Contracts: tf_ops/ops/embedding/embedding_ops.cc. Positions are in device
// memory and cannot be checked; invalid ones are treated as padding.

#if LODESTAR_CUDA

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tf_ops/core/device/device_batch.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/device/device_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_policies.h"

namespace lodestar {
namespace {

class EmbeddingVariableOnGpuOp : public Kernel {
 public:
  explicit EmbeddingVariableOnGpuOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    DataType dtype;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dim", &options_.dim));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype));
    options_.type = RowTypeOf(dtype);
    OP_REQUIRES_OK(ctx, ReadInitializer(ctx, &options_.initializer));
    AdmissionPolicy admission;
    int64_t shared_rows = 0;
    OP_REQUIRES_OK(ctx, ReadAdmission(ctx, &admission));
    OP_REQUIRES_OK(ctx, ReadEviction(ctx, &options_.eviction));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shared_rows", &shared_rows));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("table_name", &table_name_));
    OP_REQUIRES(ctx, admission.kind == AdmissionPolicy::Kind::kAll,
                absl::UnimplementedError(
                    StrCat("table '", table_name_,
                           "': a table on a GPU does not support admission.")));
    OP_REQUIRES(ctx, shared_rows == 0,
                absl::UnimplementedError(StrCat(
                    "table '", table_name_,
                    "': a table on a GPU does not support shared rows, got ",
                    shared_rows, ".")));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<DeviceEmbeddingResource>(
        ctx, *this,
        [&](DeviceEmbeddingResource** created) {
          const KernelStream stream(ctx);
          auto made = tensorflow::core::RefCountPtr<DeviceEmbeddingResource>(
              new DeviceEmbeddingResource(ctx->device()->GetAllocator({}),
                                          table_name_));
          std::unique_ptr<DeviceStore> store;
          LODESTAR_TRY(DeviceStore::Create(options_, made->allocator(),
                                           stream.on(), &store));
          LODESTAR_TRY(made->Replace(nullptr, std::move(store), {}, {}));
          *created = made.release();
          return absl::OkStatus();
        },
        [this](const DeviceEmbeddingResource& found, const std::string& name) {
          const std::shared_ptr<DeviceStore> store = found.store();
          if (store->dim() != options_.dim) {
            return InvalidArgumentError("the embedding variable '", name,
                                        "' must have dim ", options_.dim,
                                        ", got ", store->dim(), ".");
          }
          if (store->type() != options_.type) {
            return InvalidArgumentError("the embedding variable '", name,
                                        "' must have ", NameOf(options_.type),
                                        " rows, got ", NameOf(store->type()),
                                        ".");
          }
          return absl::OkStatus();
        });
  }

 private:
  DeviceStore::Options options_;
  std::string table_name_;
};

class EmbeddingFindOnGpuOp : public DeviceKernel {
 public:
  explicit EmbeddingFindOnGpuOp(OpKernelConstruction* ctx) : DeviceKernel(ctx) {
    OP_REQUIRES_OK(ctx, lookup_.Init(ctx));
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
    Tensor* found = nullptr;
    LODESTAR_TRY(ctx->allocate_output(1, ids.shape(), &found));
    return ToTensorFlow(
        call.store->Find(call.on, IdsOf(ids), lookup_.padding_id(),
                         OnDevice(missing), rows, found->flat<bool>().data()));
  }

 private:
  LookupAttributes lookup_;
};

// Outputs the unique ids of a batch. `unique` is their number.
absl::Status OutputBatch(OpKernelContext* ctx, const DeviceStream& on,
                         const DeviceBatch& batch, int64_t num_ids,
                         int unique_output, int64_t* unique, int64_t* padding) {
  LODESTAR_TRY(batch.Count(on, unique, padding));
  Tensor* ids = nullptr;
  Tensor* positions = nullptr;
  LODESTAR_TRY(ctx->allocate_output(unique_output, {*unique}, &ids));
  LODESTAR_TRY(ctx->allocate_output(unique_output + 1, {num_ids}, &positions));
  constexpr int64_t kBytes = sizeof(int64_t);
  LODESTAR_TRY(CopyOnDevice(on, batch.ids().data, *unique * kBytes,
                            ids->flat<int64_t>().data()));
  return CopyOnDevice(on, batch.positions(), num_ids * kBytes,
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
    DeviceEmbeddingResource::Counts& counts = call.resource->counts();
    counts.ids += ids.NumElements();
    counts.unique_ids += unique;
    counts.padding += padding;
    return ToTensorFlow(call.store->ReadRows(call.on, IdsOf(ids),
                                             batch.positions(), refs.data(),
                                             OnDevice(missing), rows));
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
    DeviceBatch batch;
    int64_t unique = 0;
    LODESTAR_TRY(batch.Unique(call.on, IdsOf(ids), nullptr));
    LODESTAR_TRY(batch.Count(call.on, &unique));
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
    call.resource->counts().ids += unique;
    call.resource->counts().unique_ids += unique;
    return ToTensorFlow(call.store->ReadRows(
        call.on, IdsOf(ids), nullptr, refs.data(), OnDevice(missing), rows));
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

LODESTAR_REGISTER_ON_GPU(EmbeddingVariable, EmbeddingVariableOnGpuOp,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingFind, EmbeddingFindOnGpuOp,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingFindOrInsert, EmbeddingFindOrInsertOnGpuOp,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingFindOrInsertUnique,
                         EmbeddingFindOrInsertUniqueOnGpuOp,
                         .HostMemory("handle"));
LODESTAR_REGISTER_ON_GPU(EmbeddingUnique, EmbeddingUniqueOnGpuOp);

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
