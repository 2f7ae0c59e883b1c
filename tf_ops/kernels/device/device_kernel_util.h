// Helpers for the kernels of embedding variables in GPU memory: the resource,
// streams and registration.

#ifndef LODESTAR_TF_OPS_KERNELS_DEVICE_DEVICE_KERNEL_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_DEVICE_DEVICE_KERNEL_UTIL_H_

#if LODESTAR_CUDA

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/device/device_gradient.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/core/device/device_store.h"
#include "tf_ops/kernels/base/cuda_stream.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"

// Emulated kernels take precedence over the kernels of an absent GPU.
#ifdef __DRIVER_TYPES_H__
#define LODESTAR_GPU_PRIORITY 0
#else
#define LODESTAR_GPU_PRIORITY 1
#endif

// Registers `kernel` for Lodestar>name on GPU. The remaining arguments are
// .HostMemory("tensor") for each tensor in host memory; handles always are.
#define LODESTAR_REGISTER_ON_GPU(name, kernel, ...)                         \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name)                           \
                              .Device(::tensorflow::DEVICE_GPU)             \
                              .Priority(LODESTAR_GPU_PRIORITY) __VA_ARGS__, \
                          kernel)

namespace lodestar {

// Adapts TensorFlow's allocator.
class TensorFlowAllocator final : public DeviceAllocator {
 public:
  explicit TensorFlowAllocator(tensorflow::Allocator* allocator)
      : allocator_(allocator) {}

  void* Allocate(int64_t bytes) override {
    // Fail at once instead of waiting, because tables can handle a failure.
    tensorflow::AllocationAttributes attributes;
    attributes.retry_on_failure = false;
    return allocator_->AllocateRaw(tensorflow::Allocator::kAllocatorAlignment,
                                   bytes, attributes);
  }
  // Later users of the memory work on the same stream, after its last use.
  void Free(void* memory) override { allocator_->DeallocateRaw(memory); }

 private:
  tensorflow::Allocator* const allocator_;
};

class DeviceEmbeddingResource : public tensorflow::ResourceBase {
 public:
  // Events counted on the host.
  struct Counts {
    std::atomic<int64_t> ids{0};
    std::atomic<int64_t> unique_ids{0};
    std::atomic<int64_t> padding{0};
    std::atomic<int64_t> nonfinite_gradients{0};
  };

  DeviceEmbeddingResource(tensorflow::Allocator* allocator, std::string name)
      : name_(std::move(name)), allocator_(allocator) {}

  const std::string& name() const { return name_; }
  DeviceAllocator* allocator() { return &allocator_; }
  Counts& counts() { return counts_; }
  std::string DebugString() const override {
    return StrCat("EmbeddingVariable(dim=", store()->dim(), ", on a GPU)");
  }

  std::shared_ptr<DeviceStore> store() const {
    MutexLock lock(&mutex_);
    return store_;
  }
  // Replaces `expected` with a store of the same dim and type. Events are then
  // `before` plus the events of the new store. Returns FailedPrecondition if
  // the resource holds another store.
  Status Replace(const DeviceStore* expected,
                 std::shared_ptr<DeviceStore> store, const DeviceEvents& before,
                 const DeviceEvents& after) {
    MutexLock lock(&mutex_);
    if (store_.get() != expected) {
      return FailedPrecondition(
          "a concurrent import has replaced the table; this one was "
          "discarded.");
    }
    store_.swap(store);
    other_events_.Add(before, 1);
    other_events_.Add(after, -1);
    return Status();
  }
  // Events of earlier stores, minus those removed by a reset.
  DeviceEvents other_events() const {
    MutexLock lock(&mutex_);
    return other_events_;
  }
  void SubtractEvents(const DeviceEvents& events) {
    MutexLock lock(&mutex_);
    other_events_.Add(events, -1);
  }

 private:
  const std::string name_;
  TensorFlowAllocator allocator_;  // must outlive the store
  Counts counts_;
  mutable Mutex mutex_;
  std::shared_ptr<DeviceStore> store_ LODESTAR_GUARDED_BY(mutex_);
  DeviceEvents other_events_ LODESTAR_GUARDED_BY(mutex_);
};

// The stream of a kernel, and its allocator.
class KernelStream {
 public:
  explicit KernelStream(OpKernelContext* ctx)
      : memory_(ctx->device()->GetAllocator({})),
        on_{CudaStream(ctx), &memory_} {}
  KernelStream(const KernelStream&) = delete;

  const DeviceStream& on() const { return on_; }

 private:
  TensorFlowAllocator memory_;
  const DeviceStream on_;
};

// Arguments of a kernel on a variable.
struct DeviceCall {
  OpKernelContext* ctx;
  const DeviceStream& on;
  DeviceEmbeddingResource* resource;
  DeviceStore* store;
};

// Base of kernels whose input 0 is the handle of a variable in GPU memory.
class DeviceKernel : public Kernel {
 public:
  using Kernel::Kernel;
  absl::Status Run(OpKernelContext* ctx) final {
    tensorflow::core::RefCountPtr<DeviceEmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
    const std::shared_ptr<DeviceStore> store = resource->store();
    const KernelStream stream(ctx);
    return RunOn({ctx, stream.on(), resource.get(), store.get()});
  }

 protected:
  virtual absl::Status RunOn(const DeviceCall& call) = 0;
};

// A kernel without attributes that calls `run`.
template <absl::Status (*run)(const DeviceCall&)>
class DeviceFunctionKernel final : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;

 protected:
  absl::Status RunOn(const DeviceCall& call) override { return run(call); }
};

inline DeviceStore::Ids IdsOf(const Tensor& tensor) {
  return {tensor.flat<int64_t>().data(), tensor.NumElements(), nullptr};
}

// Converts Missing; its vector is in device memory.
inline DeviceMissing OnDevice(const Missing& missing) {
  DeviceMissing result;
  result.kind =
      missing.kind == Missing::Kind::kInitial  ? DeviceMissing::Kind::kInitial
      : missing.kind == Missing::Kind::kVector ? DeviceMissing::Kind::kVector
                                               : DeviceMissing::Kind::kZeros;
  result.vector = missing.vector;
  return result;
}

inline DeviceStore::InsertOptions OnDevice(
    const EmbeddingStore::LookupOptions& options) {
  using Admit = EmbeddingStore::LookupOptions::Admit;
  DeviceStore::InsertOptions result;
  result.insert = options.insert && options.admit != Admit::kNone;
  result.count_frequency = options.count_frequency;
  return result;
}

// Copies `bytes` bytes within device memory.
inline absl::Status CopyOnDevice(const DeviceStream& on, const void* from,
                                 int64_t bytes, void* to) {
  if (bytes == 0) return absl::OkStatus();
  return ToTensorFlow(CudaStatus(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, on.stream),
      "copy on the device"));
}

// An output of sums in device memory, accumulated in the compute type and
// rounded to a 16-bit output type if necessary.
class DeviceSums {
 public:
  absl::Status Init(OpKernelContext* ctx, Tensor* output) {
    output_ = output;
    const RowType type = RowTypeOf(output->dtype());
    rounds_ = ComputeType(type) != type;
    if (!rounds_) return absl::OkStatus();
    return ctx->allocate_temp(tensorflow::DT_FLOAT, output->shape(), &sums_);
  }
  void* data() { return RowData(rounds_ ? &sums_ : output_); }
  // Call after the sums are computed.
  absl::Status Round(const DeviceStream& on) {
    if (!rounds_) return absl::OkStatus();
    return ToTensorFlow(RoundNumbers(on, RowTypeOf(output_->dtype()),
                                     sums_.flat<float>().data(),
                                     sums_.NumElements(), RowData(output_)));
  }

 private:
  Tensor* output_ = nullptr;
  bool rounds_ = false;
  Tensor sums_;
};

}  // namespace lodestar

#endif  // LODESTAR_CUDA

#endif  // LODESTAR_TF_OPS_KERNELS_DEVICE_DEVICE_KERNEL_UTIL_H_
