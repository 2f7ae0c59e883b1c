#include <string>

#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/lookup/id_table_resource.h"

namespace lodestar {
namespace {

using tensorflow::lookup::LookupInterface;

class IdTableOp : public Kernel {
 public:
  explicit IdTableOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key_dtype", &key_dtype_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mutable", &mutable_));
  }

  // Registered as LookupInterface, which TensorFlow's own ops require.
  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<LookupInterface>(
        ctx, *this,
        [this](LookupInterface** created) {
          *created = NewIdTable(key_dtype_, mutable_);
          return absl::OkStatus();
        },
        [this](const LookupInterface& found, const std::string& name) {
          if (found.key_dtype() == key_dtype_) return absl::OkStatus();
          return InvalidArgumentError("the id table '", name,
                                      "' must have keys of ",
                                      DataTypeString(key_dtype_), ", got ",
                                      DataTypeString(found.key_dtype()), ".");
        });
  }

 private:
  DataType key_dtype_ = tensorflow::DT_INT64;
  bool mutable_ = false;
};

// Calls `run` with the table of input 0.
template <absl::Status (*run)(OpKernelContext*, IdTableResource*)>
absl::Status WithTable(OpKernelContext* ctx) {
  IdTablePtr table;
  LODESTAR_TRY(FindTable(ctx, &table));
  return run(ctx, table.get());
}

// As above. Input 1 must have the table's key type.
template <absl::Status (*run)(OpKernelContext*, IdTableResource*)>
absl::Status WithKeys(OpKernelContext* ctx) {
  IdTablePtr table;
  LODESTAR_TRY(FindTableOfKeys(ctx, &table));
  return run(ctx, table.get());
}

// Allocates output 0 with the shape of the keys.
absl::Status AllocateValues(OpKernelContext* ctx, Tensor** values) {
  return ctx->allocate_output(0, ctx->input(1).shape(), values);
}

absl::Status CheckSameShape(OpKernelContext* ctx) {
  if (ctx->input(1).shape() == ctx->input(2).shape()) return absl::OkStatus();
  return InvalidArgumentError(
      "`keys` has shape ", ctx->input(1).shape().DebugString(),
      ", but `values` has ", ctx->input(2).shape().DebugString(), ".");
}

absl::Status RunIdTableFind(OpKernelContext* ctx, IdTableResource* table) {
  LODESTAR_TRY(CheckRank(ctx->input(2), "default_value", 0));
  Tensor* values = nullptr;
  LODESTAR_TRY(AllocateValues(ctx, &values));
  return table->Find(ctx, ctx->input(1), values, ctx->input(2));
}

class IdTableFindOrHashOp : public Kernel {
 public:
  explicit IdTableFindOrHashOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, buckets_.Init(ctx));
  }
  absl::Status Run(OpKernelContext* ctx) override {
    IdTablePtr table;
    LODESTAR_TRY(FindTableOfKeys(ctx, &table));
    Tensor* values = nullptr;
    LODESTAR_TRY(AllocateValues(ctx, &values));
    return table->FindOrHash(ctx, ctx->input(1), buckets_, values);
  }

 private:
  OovBuckets buckets_;
};

absl::Status RunIdTableInsert(OpKernelContext* ctx, IdTableResource* table) {
  LODESTAR_TRY(CheckSameShape(ctx));
  return table->Insert(ctx, ctx->input(1), ctx->input(2));
}

absl::Status RunIdTableRemove(OpKernelContext* ctx, IdTableResource* table) {
  return table->Remove(ctx, ctx->input(1));
}

absl::Status RunIdTableImport(OpKernelContext* ctx, IdTableResource* table) {
  LODESTAR_TRY(CheckSameShape(ctx));
  return table->ImportValues(ctx, ctx->input(1), ctx->input(2));
}

class IdTableImportFileOp : public Kernel {
 public:
  explicit IdTableImportFileOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    std::string delimiter;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key_column", &format_.key_column));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("value_column", &format_.value_column));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("vocab_size", &format_.vocab_size));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("delimiter", &delimiter));
    OP_REQUIRES(ctx, delimiter.size() == 1,
                InvalidArgumentError("`delimiter` must be one character, got '",
                                     delimiter, "'."));
    format_.delimiter = delimiter[0];
  }
  absl::Status Run(OpKernelContext* ctx) override {
    IdTablePtr table;
    LODESTAR_TRY(FindTable(ctx, &table));
    const Tensor& path = ctx->input(1);
    LODESTAR_TRY(CheckRank(path, "path", 0));
    if (table->key_dtype() == tensorflow::DT_STRING &&
        format_.key_column == kLineNumber) {
      return InvalidArgumentError(
          "`key_column` is the line number, but the table's keys are strings.");
    }
    return table->ImportFile(ctx->env(), std::string(path.scalar<tstring>()()),
                             format_);
  }

 private:
  VocabularyFormat format_;
};

absl::Status RunIdTableExport(OpKernelContext* ctx, IdTableResource* table) {
  const DataType wanted = ctx->expected_output_dtype(0);
  if (wanted != table->key_dtype()) {
    return InvalidArgumentError("`Tkeys` is ", DataTypeString(wanted),
                                ", but the table's keys are ",
                                DataTypeString(table->key_dtype()), ".");
  }
  return table->ExportValues(ctx);
}

absl::Status RunIdTableSize(OpKernelContext* ctx, IdTableResource* table) {
  return OutputScalar(ctx, 0, static_cast<int64_t>(table->size()));
}

absl::Status RunIdTableMemoryUsed(OpKernelContext* ctx,
                                  IdTableResource* table) {
  return OutputScalar(ctx, 0, table->MemoryUsed());
}

using IdTableFindOp = FunctionKernel<WithKeys<RunIdTableFind>>;
using IdTableInsertOp = FunctionKernel<WithKeys<RunIdTableInsert>>;
using IdTableRemoveOp = FunctionKernel<WithKeys<RunIdTableRemove>>;
using IdTableImportOp = FunctionKernel<WithKeys<RunIdTableImport>>;
using IdTableExportOp = FunctionKernel<WithTable<RunIdTableExport>>;
using IdTableSizeOp = FunctionKernel<WithTable<RunIdTableSize>>;
using IdTableMemoryUsedOp = FunctionKernel<WithTable<RunIdTableMemoryUsed>>;

LODESTAR_REGISTER(IdTable);
LODESTAR_REGISTER(IdTableFind);
LODESTAR_REGISTER(IdTableFindOrHash);
LODESTAR_REGISTER(IdTableInsert);
LODESTAR_REGISTER(IdTableRemove);
LODESTAR_REGISTER(IdTableImport);
LODESTAR_REGISTER(IdTableImportFile);
LODESTAR_REGISTER(IdTableExport);
LODESTAR_REGISTER(IdTableSize);
LODESTAR_REGISTER(IdTableMemoryUsed);

}  // namespace
}  // namespace lodestar
