// Contracts: tf_ops/ops/lookup/id_table_ops.cc.

#if LODESTAR_CUDA

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tf_ops/core/device/device_id_map.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/lookup/id_table_resource.h"

namespace lodestar {
namespace {

// A table's content, and the allocator of its memory.
struct CopyOfTable {
  explicit CopyOfTable(OpKernelContext* ctx) : allocator(ctx) {}

  TensorFlowAllocator allocator;
  std::unique_ptr<DeviceIdMap> map;
};

// Returns the current content of `table` in device memory.
absl::Status UpToDate(OpKernelContext* ctx, const DeviceStream& on,
                      IdTableResource* table,
                      std::shared_ptr<CopyOfTable>* result) {
  IdTableResource::DeviceCopy& copy = table->device_copy();
  MutexLock lock(&copy.mutex);
  const uint64_t version = table->version();
  if (copy.content == nullptr || copy.version != version) {
    std::vector<int64_t> keys;
    std::vector<int64_t> values;
    LODESTAR_TRY(table->CopyIntegers(&keys, &values));
    auto made = std::make_shared<CopyOfTable>(ctx);
    LODESTAR_TRY(
        DeviceIdMap::Create(keys, values, &made->allocator, on, &made->map));
    copy.bytes = made->map->bytes();
    copy.content = std::move(made);
    // The version before reading, so changes made during the read are read
    // again.
    copy.version = version;
  }
  *result = std::static_pointer_cast<CopyOfTable>(copy.content);
  return absl::OkStatus();
}

// Keys of a tensor of type K, converted to int64.
template <typename K>
class WideKeys {
 public:
  absl::Status Init(const DeviceStream& on, const Tensor& keys) {
    const K* const data = keys.flat<K>().data();
    if constexpr (sizeof(K) == sizeof(int64_t)) {
      data_ = reinterpret_cast<const int64_t*>(data);
      return absl::OkStatus();
    } else {
      LODESTAR_TRY(
          memory_.Allocate(on.memory, keys.NumElements(), "keys as int64"));
      data_ = memory_.data();
      return ToTensorFlow(
          WidenKeys(on, data, keys.NumElements(), memory_.data()));
    }
  }
  const int64_t* data() const { return data_; }

 private:
  DeviceArray<int64_t> memory_;
  const int64_t* data_ = nullptr;
};

template <typename K>
absl::Status RunIdTableFindOnGpu(OpKernelContext* ctx) {
  IdTablePtr table;
  LODESTAR_TRY(FindTableOfKeys(ctx, &table));
  LODESTAR_TRY(CheckRank(ctx->input(2), "default_value", 0));
  const Tensor& keys = ctx->input(1);
  Tensor* values = nullptr;
  LODESTAR_TRY(ctx->allocate_output(0, keys.shape(), &values));
  const KernelStream stream(ctx);
  std::shared_ptr<CopyOfTable> copy;
  LODESTAR_TRY(UpToDate(ctx, stream.on(), table.get(), &copy));
  WideKeys<K> wide;
  LODESTAR_TRY(wide.Init(stream.on(), keys));
  return ToTensorFlow(copy->map->Find(
      stream.on(), wide.data(), keys.NumElements(),
      ctx->input(2).scalar<int64_t>()(), values->flat<int64_t>().data()));
}

template <typename K>
class IdTableFindOrHashOnGpuOp : public Kernel {
 public:
  explicit IdTableFindOrHashOnGpuOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, buckets_.Init(ctx));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    IdTablePtr table;
    LODESTAR_TRY(FindTableOfKeys(ctx, &table));
    const Tensor& keys = ctx->input(1);
    Tensor* values = nullptr;
    LODESTAR_TRY(ctx->allocate_output(0, keys.shape(), &values));
    const KernelStream stream(ctx);
    std::shared_ptr<CopyOfTable> copy;
    LODESTAR_TRY(UpToDate(ctx, stream.on(), table.get(), &copy));
    WideKeys<K> wide;
    LODESTAR_TRY(wide.Init(stream.on(), keys));
    return ToTensorFlow(copy->map->FindOrHash(
        stream.on(), wide.data(), keys.NumElements(), buckets_.hash.decimal(),
        buckets_.count, buckets_.first < 0 ? copy->map->size() : buckets_.first,
        values->flat<int64_t>().data()));
  }

 private:
  OovBuckets buckets_;
};

#define LODESTAR_OF_KEYS(K)                                                \
  LODESTAR_REGISTER_ON_GPU(                                                \
      IdTableFind, FunctionKernel<RunIdTableFindOnGpu<K>>,                 \
      .TypeConstraint<K>("Tin").HostMemory("handle").HostMemory(           \
          "default_value"));                                               \
  LODESTAR_REGISTER_ON_GPU(IdTableFindOrHash, IdTableFindOrHashOnGpuOp<K>, \
                           .TypeConstraint<K>("Tin").HostMemory("handle"))

LODESTAR_OF_KEYS(int8_t);
LODESTAR_OF_KEYS(int16_t);
LODESTAR_OF_KEYS(int32_t);
LODESTAR_OF_KEYS(int64_t);
LODESTAR_OF_KEYS(uint8_t);
LODESTAR_OF_KEYS(uint16_t);
LODESTAR_OF_KEYS(uint32_t);
LODESTAR_OF_KEYS(uint64_t);

}  // namespace
}  // namespace lodestar

#endif  // LODESTAR_CUDA
