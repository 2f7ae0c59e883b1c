// Kernels of id tables. Contracts: tf_ops/ops/id_table_ops.cc; the table:
// id_table_resource.h over tf_ops/core/integer_map.h and string_map.h.

#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/kernels/id_table_resource.h"

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
    OP_REQUIRES_OK(ctx,
                   ctx->resource_manager()->LookupOrCreate<LookupInterface>(
                       info.container(), info.name(), &table,
                       [this](LookupInterface** created) {
                         *created = Create();
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
  IdTableResource* Create() const {
    switch (key_dtype_) {
      case tensorflow::DT_STRING:
        return new IdTableOf<tensorflow::tstring>(mutable_);
      case tensorflow::DT_INT32:
        return new IdTableOf<int32_t>(mutable_);
      default:
        return new IdTableOf<int64_t>(mutable_);
    }
  }

  tensorflow::DataType key_dtype_ = tensorflow::DT_INT64;
  bool mutable_ = false;
};

// A kernel whose input 0 is a table's handle, and input 1 keys if it has one.
class IdTableKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) final {
    tensorflow::core::RefCountPtr<LookupInterface> resource;
    OP_REQUIRES_OK(ctx,
                   tensorflow::LookupResource(
                       ctx, tensorflow::HandleFromInput(ctx, 0), &resource));
    auto* table = dynamic_cast<IdTableResource*>(resource.get());
    OP_REQUIRES(ctx, table != nullptr,
                InvalidArgumentError(
                    "the handle is that of another table than an id table"));
    if (ctx->num_inputs() > 1) {
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

 protected:
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
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_oov_buckets", &num_oov_buckets_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("hasher", &hasher));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("hasher_key", &key));
    OP_REQUIRES_OK(ctx, ToTensorFlow(BucketHash::Create(hasher, key, &hash_)));
  }
  absl::Status ComputeOn(OpKernelContext* ctx,
                         IdTableResource* table) override {
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(AllocateValues(ctx, &values));
    return table->FindOrHash(ctx, ctx->input(1), num_oov_buckets_, hash_,
                             values);
  }

 private:
  int64_t num_oov_buckets_ = 1;
  BucketHash hash_;
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
REGISTER(IdTableExport);
REGISTER(IdTableSize);
#undef REGISTER

}  // namespace
}  // namespace lodestar
