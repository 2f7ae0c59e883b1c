// Kernels as functions that return a status. Includes TensorFlow's op_kernel.h
// and status_util.h.

#ifndef LODESTAR_TF_OPS_KERNELS_BASE_KERNEL_H_
#define LODESTAR_TF_OPS_KERNELS_BASE_KERNEL_H_

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/kernels/base/status_util.h"

// Registers name##Op, or for ops without attributes Run##name(ctx), as the CPU
// kernel of Lodestar>name.
#define LODESTAR_REGISTER(name) \
  REGISTER_KERNEL_BUILDER(      \
      Name("Lodestar>" #name).Device(::tensorflow::DEVICE_CPU), name##Op)

#define LODESTAR_REGISTER_FUNCTION(name)                        \
  REGISTER_KERNEL_BUILDER(                                      \
      Name("Lodestar>" #name).Device(::tensorflow::DEVICE_CPU), \
      ::lodestar::FunctionKernel<Run##name>)

// Registers name##Op<T>, or Run##name<T>(ctx), as the CPU kernel of
// Lodestar>name for the attribute T.
#define LODESTAR_REGISTER_TYPE(name, T)                         \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name)               \
                              .Device(::tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),          \
                          name##Op<T>)
#define LODESTAR_REGISTER_FUNCTION_TYPE(name, T)                \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name)               \
                              .Device(::tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T"),          \
                          ::lodestar::FunctionKernel<Run##name<T>>)

// Registers `kernel` for Lodestar>name on GPU. The remaining arguments are
// further constraints, such as .HostMemory("tensor") for each tensor in host
// memory; handles always are.
#define LODESTAR_REGISTER_ON_GPU(name, kernel, ...)                         \
  REGISTER_KERNEL_BUILDER(                                                  \
      Name("Lodestar>" #name).Device(::tensorflow::DEVICE_GPU) __VA_ARGS__, \
      kernel)

namespace lodestar {

using tensorflow::AsyncOpKernel;
using tensorflow::DataType;
using tensorflow::DataTypeString;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

class Kernel : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) final {
    ctx->SetStatus(WithoutBadAlloc([&] { return Run(ctx); }));
  }

 protected:
  virtual absl::Status Run(OpKernelContext* ctx) = 0;
};

// A kernel without attributes that calls `run`.
template <absl::Status (*run)(OpKernelContext*)>
class FunctionKernel final : public Kernel {
 public:
  using Kernel::Kernel;

 protected:
  absl::Status Run(OpKernelContext* ctx) override { return run(ctx); }
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_BASE_KERNEL_H_
