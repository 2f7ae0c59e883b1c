// Kernels on an embedding variable that are the same for tables on CPUs and on
// GPUs. With CUDA, libraries that include this must depend on
// //tf_ops/core/device.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_TABLE_KERNEL_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_TABLE_KERNEL_H_

#include <cstdint>
#include <memory>

#include "tensorflow/core/framework/allocator.h"
#include "tf_ops/core/base/parallel.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"

#if LODESTAR_CUDA
#include <optional>

#include "tf_ops/core/device/batch/device_gradient.h"
#include "tf_ops/core/device/device_memory.h"
#include "tf_ops/kernels/base/cuda_stream.h"
#endif

// Registers `kernel` for Lodestar>name on CPUs and, with CUDA, on GPUs. The
// remaining arguments are .HostMemory("tensor") for each tensor that is in host
// memory in both cases. The emulation adds GPU kernels to a library that has
// the CPU kernels.
#define LODESTAR_REGISTER_ON_CPU(name, kernel) \
  REGISTER_KERNEL_BUILDER(                     \
      Name("Lodestar>" #name).Device(::tensorflow::DEVICE_CPU), kernel)
#if LODESTAR_EMULATED_CUDA
#define LODESTAR_REGISTER_TABLE LODESTAR_REGISTER_ON_GPU
#elif LODESTAR_CUDA
#define LODESTAR_REGISTER_TABLE(name, kernel, ...) \
  LODESTAR_REGISTER_ON_CPU(name, kernel);          \
  LODESTAR_REGISTER_ON_GPU(name, kernel, __VA_ARGS__)
#else
#define LODESTAR_REGISTER_TABLE(name, kernel, ...) \
  LODESTAR_REGISTER_ON_CPU(name, kernel)
#endif

namespace lodestar {

#if LODESTAR_CUDA

// Adapts TensorFlow's allocator.
class TensorFlowAllocator final : public DeviceAllocator {
 public:
  explicit TensorFlowAllocator(OpKernelContext* ctx)
      : allocator_(ctx->device()->GetAllocator({})) {}

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

// The stream of a kernel on a GPU, and its allocator.
class KernelStream {
 public:
  explicit KernelStream(OpKernelContext* ctx)
      : memory_(ctx), on_{CudaStream(ctx), &memory_} {}
  KernelStream(const KernelStream&) = delete;

  const DeviceStream& on() const { return on_; }

 private:
  TensorFlowAllocator memory_;
  const DeviceStream on_;
};

#endif  // LODESTAR_CUDA

// Where a kernel works: on TensorFlow's threads, or on the stream of its GPU.
class KernelExecution {
 public:
  explicit KernelExecution(OpKernelContext* ctx)
      : parallel_(IntraOpParallelFor(ctx)), on_(&parallel_) {
#if LODESTAR_CUDA
    // Devices of type CPU have no context.
    if (ctx->op_device_context() == nullptr) return;
    stream_.emplace(ctx);
    on_ = Execution(stream_->on());
#endif
  }
  KernelExecution(const KernelExecution&) = delete;

  const Execution& on() const { return on_; }

 private:
  const ParallelFor parallel_;
#if LODESTAR_CUDA
  std::optional<KernelStream> stream_;
#endif
  Execution on_;
};

// The GPU, if any, of a kernel that continues on another thread.
class KernelGpu {
 public:
  explicit KernelGpu(OpKernelContext* ctx) {
#if LODESTAR_CUDA
    if (ctx->op_device_context() != nullptr) cudaGetDevice(&gpu_);
#endif
  }
  // Makes it the current GPU of this thread.
  void MakeCurrent() const {
#if LODESTAR_CUDA
    if (gpu_ >= 0) cudaSetDevice(gpu_);
#endif
  }

 private:
#if LODESTAR_CUDA
  int gpu_ = -1;
#endif
};

// An output of sums, accumulated as float.
class SumTensor {
 public:
  absl::Status Init(OpKernelContext* ctx, Tensor* output) {
    output_ = output;
    rounds_ = type() != RowType::kFloat32;
    if (!rounds_) return absl::OkStatus();
    return ctx->allocate_temp(tensorflow::DT_FLOAT, output->shape(), &sums_);
  }

  RowType type() const { return RowTypeOf(output_->dtype()); }
  float* data() {
    return reinterpret_cast<float*>(RowData(rounds_ ? &sums_ : output_));
  }

  // Call after the sums are computed.
  absl::Status Round(const Execution& on) {
    if (!rounds_) return absl::OkStatus();
    const float* const sums = sums_.flat<float>().data();
    const int64_t count = sums_.NumElements();
#if LODESTAR_CUDA
    if (on.on_gpu()) {
      return ToTensorFlow(
          RoundNumbers(on.stream(), type(), sums, count, RowData(output_)));
    }
#endif
    VisitRowType(type(), [&](auto zero) {
      using T = decltype(zero);
      T* const out = reinterpret_cast<T*>(RowData(output_));
      RunParallel(on.parallel(), count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = RoundTo<T>(sums[i]);
      });
    });
    return absl::OkStatus();
  }

 private:
  Tensor* output_ = nullptr;
  bool rounds_ = false;
  Tensor sums_;
};

// Arguments of a kernel on a variable.
struct TableCall {
  OpKernelContext* ctx;
  const Execution& on;
  EmbeddingResource* resource;
  Table* table;
};

// Base of kernels whose input 0 is the handle of a variable. Keeps the table
// alive until the kernel is done.
class TableKernel : public Kernel {
 public:
  using Kernel::Kernel;
  absl::Status Run(OpKernelContext* ctx) final {
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
    const KernelExecution execution(ctx);
    std::shared_ptr<Table> table;
    LODESTAR_TRY(resource->GetTable(execution.on().on_gpu(), &table));
    return RunOn({ctx, execution.on(), resource.get(), table.get()});
  }

 protected:
  virtual absl::Status RunOn(const TableCall& call) = 0;
};

// A kernel without attributes that calls `run`.
template <absl::Status (*run)(const TableCall&)>
class TableFunctionKernel final : public TableKernel {
 public:
  using TableKernel::TableKernel;

 protected:
  absl::Status RunOn(const TableCall& call) override { return run(call); }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_TABLE_KERNEL_H_
