// Kernels of id tables. Contracts: tf_ops/ops/lookup/id_table_ops.cc; the
// table: id_table_resource.h over tf_ops/core/lookup/id_table.h.

#include <string>
#include <vector>

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

  // Registered as LookupInterface, which TensorFlow's own ops ask for.
  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<LookupInterface>(
        ctx, *this,
        [this](LookupInterface** created) {
          *created = Create<tstring, int8_t, int16_t, int32_t, int64_t, uint8_t,
                            uint16_t, uint32_t, uint64_t>();
          return absl::OkStatus();
        },
        [this](const LookupInterface& found, const std::string& name) {
          if (found.key_dtype() == key_dtype_) return absl::OkStatus();
          return InvalidArgumentError("the id table '", name, "' has keys of ",
                                      DataTypeString(found.key_dtype()),
                                      ", wanted ", DataTypeString(key_dtype_));
        });
  }

 private:
  // A table whose keys are of the one of these types that key_dtype_ is.
  template <typename... Ks>
  IdTableResource* Create() const {
    IdTableResource* table = nullptr;
    ((tensorflow::DataTypeToEnum<Ks>::v() == key_dtype_
          ? void(table = new IdTableOf<Ks>(mutable_))
          : void()),
     ...);
    return table;
  }

  DataType key_dtype_ = tensorflow::DT_INT64;
  bool mutable_ = false;
};

// A kernel whose input 0 is a table's handle, and input 1 keys if it has one.
class IdTableKernel : public Kernel {
 public:
  using Kernel::Kernel;

  absl::Status Run(OpKernelContext* ctx) final {
    tensorflow::core::RefCountPtr<LookupInterface> resource;
    LODESTAR_TRY(FindResource(ctx, ctx->input(0), &resource));
    auto* table = dynamic_cast<IdTableResource*>(resource.get());
    if (table == nullptr) {
      return InvalidArgumentError(
          "the handle is that of another table than an id table");
    }
    if (TakesKeys() && ctx->num_inputs() > 1) {
      const Tensor& keys = ctx->input(1);
      if (keys.dtype() != table->key_dtype()) {
        return InvalidArgumentError(
            "`keys` has dtype ", DataTypeString(keys.dtype()),
            ", but the table's keys are ", DataTypeString(table->key_dtype()));
      }
    }
    return RunOn(ctx, table);
  }

 protected:
  // Whether input 1 is keys.
  virtual bool TakesKeys() const { return true; }
  virtual absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) = 0;

  // `values` at output 0, of the keys' shape.
  static absl::Status AllocateValues(OpKernelContext* ctx, Tensor** values) {
    return ctx->allocate_output(0, ctx->input(1).shape(), values);
  }
  static absl::Status CheckSameShape(OpKernelContext* ctx) {
    if (ctx->input(1).shape() == ctx->input(2).shape()) {
      return absl::OkStatus();
    }
    return InvalidArgumentError(
        "`keys` has shape ", ctx->input(1).shape().DebugString(),
        ", but `values` has ", ctx->input(2).shape().DebugString());
  }
};

class IdTableFindOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) override {
    LODESTAR_TRY(CheckRank(ctx->input(2), "default_value", 0));
    Tensor* values = nullptr;
    LODESTAR_TRY(AllocateValues(ctx, &values));
    return table->Find(ctx, ctx->input(1), values, ctx->input(2));
  }
};

class IdTableFindOrHashOp : public IdTableKernel {
 public:
  explicit IdTableFindOrHashOp(OpKernelConstruction* ctx) : IdTableKernel(ctx) {
    std::string hasher;
    std::vector<int64_t> key;
    int64_t num_oov_buckets = 1;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_oov_buckets", &num_oov_buckets));
    OP_REQUIRES(ctx, num_oov_buckets >= 1,
                InvalidArgumentError("`num_oov_buckets` is ", num_oov_buckets,
                                     ", wanted 1 or more"));
    buckets_.remainder = Remainder(num_oov_buckets);
    OP_REQUIRES_OK(ctx, ctx->GetAttr("first_bucket", &buckets_.first));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("hasher", &hasher));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("hasher_key", &key));
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(BucketHash::Create(hasher, key, &buckets_.hash)));
  }
  absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) override {
    Tensor* values = nullptr;
    LODESTAR_TRY(AllocateValues(ctx, &values));
    return table->FindOrHash(ctx, ctx->input(1), buckets_, values);
  }

 private:
  OovBuckets buckets_;
};

class IdTableInsertOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) override {
    LODESTAR_TRY(CheckSameShape(ctx));
    return table->Insert(ctx, ctx->input(1), ctx->input(2));
  }
};

class IdTableRemoveOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) override {
    return table->Remove(ctx, ctx->input(1));
  }
};

class IdTableImportOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) override {
    LODESTAR_TRY(CheckSameShape(ctx));
    return table->ImportValues(ctx, ctx->input(1), ctx->input(2));
  }
};

class IdTableImportFileOp : public IdTableKernel {
 public:
  explicit IdTableImportFileOp(OpKernelConstruction* ctx) : IdTableKernel(ctx) {
    std::string delimiter;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key_column", &format_.key_column));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("value_column", &format_.value_column));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("vocab_size", &format_.vocab_size));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("delimiter", &delimiter));
    OP_REQUIRES(ctx, delimiter.size() == 1,
                InvalidArgumentError("`delimiter` is '", delimiter,
                                     "', wanted one character"));
    format_.delimiter = delimiter[0];
  }
  bool TakesKeys() const override { return false; }
  absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) override {
    const Tensor& path = ctx->input(1);
    LODESTAR_TRY(CheckRank(path, "path", 0));
    if (table->key_dtype() == tensorflow::DT_STRING &&
        format_.key_column == kLineNumber) {
      return InvalidArgumentError(
          "`key_column` is the line number, but the table's keys are string");
    }
    return table->ImportFile(ctx->env(), std::string(path.scalar<tstring>()()),
                             format_);
  }

 private:
  VocabularyFormat format_;
};

class IdTableExportOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) override {
    const DataType wanted = ctx->expected_output_dtype(0);
    if (wanted != table->key_dtype()) {
      return InvalidArgumentError("`Tkeys` is ", DataTypeString(wanted),
                                  ", but the table's keys are ",
                                  DataTypeString(table->key_dtype()));
    }
    return table->ExportValues(ctx);
  }
};

class IdTableSizeOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status RunOn(OpKernelContext* ctx, IdTableResource* table) override {
    return OutputScalar(ctx, 0, static_cast<int64_t>(table->size()));
  }
};

LODESTAR_REGISTER(IdTable);
LODESTAR_REGISTER(IdTableFind);
LODESTAR_REGISTER(IdTableFindOrHash);
LODESTAR_REGISTER(IdTableInsert);
LODESTAR_REGISTER(IdTableRemove);
LODESTAR_REGISTER(IdTableImport);
LODESTAR_REGISTER(IdTableImportFile);
LODESTAR_REGISTER(IdTableExport);
LODESTAR_REGISTER(IdTableSize);

}  // namespace
}  // namespace lodestar
