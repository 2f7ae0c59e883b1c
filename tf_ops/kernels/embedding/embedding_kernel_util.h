// Helpers for the kernels of embedding variables: the resource, and inputs and
// attributes shared by several lookups.

#ifndef LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_KERNEL_UTIL_H_
#define LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_KERNEL_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/batch_unique.h"
#include "tf_ops/core/base/step_gate.h"
#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/core/rows/attached_optimizer.h"
#include "tf_ops/core/rows/sparse_optimizer.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_resource.h"

namespace lodestar {

// Reads attributes optimizer and slot_names. For a fused rule, the rule defines
// the slot names.
inline absl::Status ReadOptimizer(OpKernelConstruction* ctx,
                                  AttachedOptimizer* optimizer) {
  LODESTAR_TRY(ctx->GetAttr("optimizer", &optimizer->name));
  LODESTAR_TRY(ctx->GetAttr("slot_names", &optimizer->slot_names));
  std::vector<std::string> known;
  if (SparseOptimizer::SlotNames(optimizer->name, &known)) {
    optimizer->slot_names = std::move(known);
  }
  return absl::OkStatus();
}

// Attributes of EmbeddingRestartSlots.
struct RestartAttributes {
  AttachedOptimizer optimizer;
  KeptSlots keep = KeptSlots::kNone;

  // Returns InvalidArgument if slot_names or slot_inits do not match the
  // optimizer.
  absl::Status Init(OpKernelConstruction* ctx) {
    std::string kept;
    LODESTAR_TRY(ReadOptimizer(ctx, &optimizer));
    LODESTAR_TRY(ctx->GetAttr("slot_inits", &optimizer.slot_inits));
    LODESTAR_TRY(ctx->GetAttr("keep", &kept));
    if (kept == "equal") keep = KeptSlots::kEqual;
    if (kept == "all") keep = KeptSlots::kAll;
    return ToTensorFlow(optimizer.Check());
  }
};

// Base of kernels whose input 0 is the handle of a variable on a CPU. Keeps the
// store alive until the kernel is done.
class EmbeddingKernel : public Kernel {
 public:
  using Kernel::Kernel;
  absl::Status Run(OpKernelContext* ctx) final {
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
    std::shared_ptr<EmbeddingStore> store;
    LODESTAR_TRY(resource->GetStore(&store));
    return RunOn(ctx, store.get());
  }

 protected:
  virtual absl::Status RunOn(OpKernelContext* ctx, EmbeddingStore* store) = 0;
};

// Adds the name of a variable, unless it is empty, to an error that does not
// begin with it.
inline absl::Status WithTableName(const std::string& name,
                                  const absl::Status& status) {
  if (status.ok() || name.empty()) return status;
  const std::string table = StrCat("table '", name, "'");
  if (status.message().substr(0, table.size()) == table) return status;
  return Prefixed(status, table, ": ");
}
// Adds the name of the variable with this handle input.
inline absl::Status WithTableName(OpKernelContext* ctx,
                                  const absl::Status& status, int handle = 0) {
  if (status.ok()) return status;
  tensorflow::core::RefCountPtr<EmbeddingResource> resource;
  const absl::Status found = FindResource(ctx, ctx->input(handle), &resource);
  return found.ok() ? WithTableName(resource->name(), status) : status;
}

// Finds the gates of the variables whose handles are the first inputs.
inline absl::Status FindGates(OpKernelContext* ctx, int num_tables,
                              StepGates* gates) {
  std::vector<std::shared_ptr<StepGate>> found;
  for (int t = 0; t < num_tables; ++t) {
    tensorflow::core::RefCountPtr<EmbeddingResource> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(t), &resource));
    found.push_back(resource->gate());
  }
  *gates = StepGates(std::move(found));
  return absl::OkStatus();
}

// Returns InvalidArgument if input `handles` of an op names a table twice.
template <typename T>
absl::Status CheckDifferent(const std::vector<std::shared_ptr<T>>& tables) {
  for (size_t t = 0; t < tables.size(); ++t) {
    for (size_t u = 0; u < t; ++u) {
      if (tables[u] != tables[t]) continue;
      return InvalidArgumentError("`handles[", u, "]` and `handles[", t,
                                  "]` are the same table.");
    }
  }
  return absl::OkStatus();
}

// Requires: `dtype` is a valid row type.
inline RowType RowTypeOf(DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_HALF:
      return RowType::kFloat16;
    case tensorflow::DT_BFLOAT16:
      return RowType::kBFloat16;
    default:
      return RowType::kFloat32;
  }
}

inline DataType DataTypeOf(RowType type) {
  switch (type) {
    case RowType::kFloat16:
      return tensorflow::DT_HALF;
    case RowType::kBFloat16:
      return tensorflow::DT_BFLOAT16;
    case RowType::kFloat32:
      break;
  }
  return tensorflow::DT_FLOAT;
}

// Returns InvalidArgument unless `dtype`, of argument `name`, matches `type`.
inline absl::Status CheckDtype(DataType dtype, const char* name, RowType type) {
  if (dtype == DataTypeOf(type)) return absl::OkStatus();
  return InvalidArgumentError("`", name, "` is ", NameOf(RowTypeOf(dtype)),
                              ", but the variable's rows are ", NameOf(type),
                              ".");
}

// The data of a tensor.
inline const char* RowData(const Tensor& tensor) {
  return tensor.tensor_data().data();
}
inline char* RowData(Tensor* tensor) {
  return const_cast<char*>(tensor->tensor_data().data());
}
inline NumbersView RowNumbers(const Tensor& tensor) {
  return NumbersView(RowTypeOf(tensor.dtype()), RowData(tensor),
                     tensor.NumElements());
}

// Parses an item of attribute `missing`.
inline Missing::Kind ParseMissing(const std::string& missing) {
  return missing == "initial"  ? Missing::Kind::kInitial
         : missing == "vector" ? Missing::Kind::kVector
         : missing == "shared" ? Missing::Kind::kShared
                               : Missing::Kind::kZeros;
}

// Reads `missing_row`, of the variable's dtype, if kind is kVector. It must
// outlive `missing`.
inline absl::Status ReadMissing(Missing::Kind kind, const Tensor& missing_row,
                                int dim, Missing* missing) {
  missing->kind = kind;
  if (kind != Missing::Kind::kVector) return absl::OkStatus();
  LODESTAR_TRY(CheckRank(missing_row, "missing_row", 1));
  if (missing_row.NumElements() != dim) {
    return InvalidArgumentError("`missing_row` has ", missing_row.NumElements(),
                                " elements, but the variable's dim is ", dim,
                                ".");
  }
  missing->vector = RowData(missing_row);
  return absl::OkStatus();
}

// Attributes missing, use_padding and padding_id.
class LookupAttributes {
 public:
  absl::Status Init(OpKernelConstruction* ctx) {
    std::string missing;
    LODESTAR_TRY(ctx->GetAttr("missing", &missing));
    kind_ = ParseMissing(missing);
    LODESTAR_TRY(ctx->GetAttr("use_padding", &use_padding_));
    return ctx->GetAttr("padding_id", &padding_id_);
  }

  // nullptr: no padding.
  const int64_t* padding_id() const {
    return use_padding_ ? &padding_id_ : nullptr;
  }

  absl::Status ReadMissing(const Tensor& missing_row, int dim,
                           Missing* missing) const {
    return lodestar::ReadMissing(kind_, missing_row, dim, missing);
  }

 private:
  Missing::Kind kind_ = Missing::Kind::kZeros;
  bool use_padding_ = false;
  int64_t padding_id_ = 0;
};

// Reads attributes insert, count and admit.
inline absl::Status ReadLookupOptions(OpKernelConstruction* ctx,
                                      LookupOptions* options) {
  LODESTAR_TRY(ctx->GetAttr("insert", &options->insert));
  LODESTAR_TRY(ctx->GetAttr("count", &options->count_frequency));
  std::string admit;
  LODESTAR_TRY(ctx->GetAttr("admit", &admit));
  using Admit = LookupOptions::Admit;
  if (admit == "all") options->admit = Admit::kAll;
  if (admit == "none") options->admit = Admit::kNone;
  return absl::OkStatus();
}

// Returns InvalidArgument unless every position is kNoPosition or in [0,
// num_unique).
inline absl::Status CheckPositions(Span<const int64_t> positions,
                                   int64_t num_unique) {
  for (int64_t i = 0; i < positions.size(); ++i) {
    if (positions[i] < kNoPosition || positions[i] >= num_unique) {
      return InvalidArgumentError("`positions[", i, "]` must be in [-1, ",
                                  num_unique, "), got ", positions[i], ".");
    }
  }
  return absl::OkStatus();
}

// Returns InvalidArgument unless input `hook` is [0, dim] of the variable's
// dtype.
inline absl::Status CheckHook(const Tensor& hook, const Table& table) {
  const int dim = table.dim();
  if (hook.dims() != 2 || hook.dim_size(0) != 0 || hook.dim_size(1) != dim) {
    return InvalidArgumentError("`hook` must have shape [0,", dim, "], got ",
                                hook.shape().DebugString(), ".");
  }
  return CheckDtype(hook.dtype(), "hook", table.type());
}

// Allocates `output` as [lead..., dim], with the output's dtype.
inline absl::Status AllocateRows(OpKernelContext* ctx, int output,
                                 const TensorShape& lead, int dim,
                                 char** rows) {
  TensorShape shape = lead;
  LODESTAR_TRY(shape.AddDimWithStatus(dim));
  Tensor* tensor = nullptr;
  LODESTAR_TRY(ctx->allocate_output(output, shape, &tensor));
  *rows = RowData(tensor);
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_EMBEDDING_EMBEDDING_KERNEL_UTIL_H_
