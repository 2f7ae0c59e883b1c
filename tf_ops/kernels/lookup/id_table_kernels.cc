// Kernels of id tables. Contracts: tf_ops/ops/lookup/id_table_ops.cc; the
// table: id_table_resource.h over tf_ops/core/lookup/id_table.h.

#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/kernels/lookup/id_table_resource.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::lookup::LookupInterface;

class IdTableOp : public tensorflow::OpKernel {
 public:
  explicit IdTableOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key_dtype", &key_dtype_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mutable", &mutable_));
  }

  // Registered as LookupInterface, which TensorFlow's own ops ask for.
  void Compute(OpKernelContext* ctx) override {
    tensorflow::ContainerInfo info;
    OP_REQUIRES_OK(ctx, info.Init(ctx->resource_manager(), def()));
    LookupInterface* table = nullptr;
    OP_REQUIRES_OK(
        ctx, ctx->resource_manager()->LookupOrCreate<LookupInterface>(
                 info.container(), info.name(), &table,
                 [this](LookupInterface** created) {
                   *created =
                       Create<tensorflow::tstring, int8_t, int16_t, int32_t,
                              int64_t, uint8_t, uint16_t, uint32_t, uint64_t>();
                   return absl::OkStatus();
                 }));
    tensorflow::core::ScopedUnref unref(table);
    OP_REQUIRES(ctx, table->key_dtype() == key_dtype_,
                InvalidArgumentError(
                    "the id table '", info.name(), "' has keys of ",
                    tensorflow::DataTypeString(table->key_dtype()), ", wanted ",
                    tensorflow::DataTypeString(key_dtype_)));
    Tensor* handle = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &handle));
    handle->scalar<tensorflow::ResourceHandle>()() =
        tensorflow::MakeResourceHandle<LookupInterface>(ctx, info.container(),
                                                        info.name());
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

  tensorflow::DataType key_dtype_ = tensorflow::DT_INT64;
  bool mutable_ = false;
};

// A kernel whose input 0 is a table's handle, and input 1 keys if it has one.
class IdTableKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) final {
    CatchBadAlloc(ctx, [&] { ComputeGuarded(ctx); });
  }

 protected:
  // Whether input 1 is keys.
  virtual bool TakesKeys() const { return true; }
  virtual absl::Status ComputeOn(OpKernelContext* ctx,
                                 IdTableResource* table) = 0;

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

 private:
  void ComputeGuarded(OpKernelContext* ctx) {
    tensorflow::core::RefCountPtr<LookupInterface> resource;
    OP_REQUIRES_OK(ctx,
                   tensorflow::LookupResource(
                       ctx, tensorflow::HandleFromInput(ctx, 0), &resource));
    auto* table = dynamic_cast<IdTableResource*>(resource.get());
    OP_REQUIRES(ctx, table != nullptr,
                InvalidArgumentError(
                    "the handle is that of another table than an id table"));
    if (TakesKeys() && ctx->num_inputs() > 1) {
      const Tensor& keys = ctx->input(1);
      OP_REQUIRES(
          ctx, keys.dtype() == table->key_dtype(),
          InvalidArgumentError("`keys` has dtype ",
                               tensorflow::DataTypeString(keys.dtype()),
                               ", but the table's keys are ",
                               tensorflow::DataTypeString(table->key_dtype())));
    }
    OP_REQUIRES_OK(ctx, ComputeOn(ctx, table));
  }
};

class IdTableFindOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(2), "default_value", 0));
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(AllocateValues(ctx, &values));
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
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(AllocateValues(ctx, &values));
    return table->FindOrHash(ctx, ctx->input(1), buckets_, values);
  }

 private:
  OovBuckets buckets_;
};

class IdTableInsertOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    TF_RETURN_IF_ERROR(CheckSameShape(ctx));
    return table->Insert(ctx, ctx->input(1), ctx->input(2));
  }
};

class IdTableRemoveOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    return table->Remove(ctx, ctx->input(1));
  }
};

class IdTableImportOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    TF_RETURN_IF_ERROR(CheckSameShape(ctx));
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
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    const Tensor& path = ctx->input(1);
    TF_RETURN_IF_ERROR(CheckRank(path, "path", 0));
    if (table->key_dtype() == tensorflow::DT_STRING &&
        format_.key_column == kLineNumber) {
      return InvalidArgumentError(
          "`key_column` is the line number, but the table's keys are string");
    }
    return table->ImportFile(
        ctx->env(), std::string(path.scalar<tensorflow::tstring>()()), format_);
  }

 private:
  VocabularyFormat format_;
};

class IdTableExportOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    const tensorflow::DataType wanted = ctx->expected_output_dtype(0);
    if (wanted != table->key_dtype()) {
      return InvalidArgumentError(
          "`Tkeys` is ", tensorflow::DataTypeString(wanted),
          ", but the table's keys are ",
          tensorflow::DataTypeString(table->key_dtype()));
    }
    return table->ExportValues(ctx);
  }
};

class IdTableSizeOp : public IdTableKernel {
 public:
  using IdTableKernel::IdTableKernel;
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    Tensor* size = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, TensorShape({}), &size));
    size->scalar<int64_t>()() = static_cast<int64_t>(table->size());
    return absl::OkStatus();
  }
};

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(IdTable);
REGISTER(IdTableFind);
REGISTER(IdTableFindOrHash);
REGISTER(IdTableInsert);
REGISTER(IdTableRemove);
REGISTER(IdTableImport);
REGISTER(IdTableImportFile);
REGISTER(IdTableExport);
REGISTER(IdTableSize);
#undef REGISTER

}  // namespace
}  // namespace lodestar
