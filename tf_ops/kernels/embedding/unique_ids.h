// Tensors of ids that are known to be unique, with the plan of the lookup that
// found their rows. The plan belongs to the buffer, so it follows the tensor
// through eager calls, functions, branches, loops and the gradients of all of
// these. A copy on another device, or numbers computed from the ids, have
// another buffer: an update deduplicates those again.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_UNIQUE_IDS_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_UNIQUE_IDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf_ops/core/table/lookup_plan.h"
#include "tf_ops/kernels/base/kernel.h"

namespace lodestar {

class UniqueIdsBuffer final : public tensorflow::TensorBuffer {
 public:
  // `memory` holds the ids.
  explicit UniqueIdsBuffer(const Tensor& memory)
      : TensorBuffer(memory.data()), memory_(memory) {}

  LookupPlan& plan() { return plan_; }
  const LookupPlan& plan() const { return plan_; }
  size_t size() const override { return buffer()->size(); }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(
      tensorflow::AllocationDescription* proto) const override {
    buffer()->FillAllocationDescription(proto);
  }
  bool GetAllocatedBytes(size_t* out_bytes) const override {
    return buffer()->GetAllocatedBytes(out_bytes);
  }
  tensorflow::AllocatorMemoryType GetMemoryType() const override {
    return buffer()->GetMemoryType();
  }
  // A kernel must not write its output into the memory of these ids.
  bool OwnsMemory() const override { return false; }

 private:
  const TensorBuffer* buffer() const {
    return tensorflow::DMAHelper::buffer(&memory_);
  }

  const Tensor memory_;
  LookupPlan plan_;
};

// Makes a tensor for `count` unique ids in the memory of the kernel's outputs.
// The caller writes the ids and fills in *plan before it outputs the tensor.
inline absl::Status AllocateUniqueIds(OpKernelContext* ctx, int64_t count,
                                      Tensor* ids, LookupPlan** plan) {
  Tensor memory;
  // TensorFlow has no buffer for an empty tensor.
  LODESTAR_TRY(ctx->allocate_temp(tensorflow::DT_INT64,
                                  {std::max<int64_t>(count, 1)}, &memory));
  tensorflow::core::RefCountPtr<UniqueIdsBuffer> buffer(
      new UniqueIdsBuffer(memory));
  *plan = &buffer->plan();
  *ids = Tensor(tensorflow::DT_INT64, {count}, buffer.get());
  return absl::OkStatus();
}

// The same for ids in host memory.
inline absl::Status CopyUniqueIds(OpKernelContext* ctx, Span<const int64_t> ids,
                                  Tensor* tensor, LookupPlan** plan) {
  LODESTAR_TRY(AllocateUniqueIds(ctx, ids.size(), tensor, plan));
  std::copy(ids.begin(), ids.end(), tensor->flat<int64_t>().data());
  return absl::OkStatus();
}

// Returns the plan of ids that are known to be unique, or null. Valid while the
// tensor exists.
inline const LookupPlan* PlanOf(const Tensor& ids) {
  // A slice of unique ids has a buffer of its own.
  const auto* buffer =
      dynamic_cast<const UniqueIdsBuffer*>(tensorflow::DMAHelper::buffer(&ids));
  return buffer == nullptr ? nullptr : &buffer->plan();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_UNIQUE_IDS_H_
