// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tf_ops/core/embedding/embedding_store.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/resource_util.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/embedding_policies.h"
#include "tf_ops/kernels/embedding/table_kernel.h"

#if LODESTAR_CUDA
#include "tf_ops/core/device/device_store.h"
#endif

namespace lodestar {
namespace {

// Enough that callers adding rows seldom wait for the same shard.
constexpr int64_t kDefaultShards = 16;

class EmbeddingVariableOp : public Kernel {
 public:
  explicit EmbeddingVariableOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    DataType dtype;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype));
    type_ = RowTypeOf(dtype);
    OP_REQUIRES_OK(ctx, ReadInitializer(ctx, &initializer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_shards", &num_shards_));
    if (num_shards_ == 0) num_shards_ = kDefaultShards;
    OP_REQUIRES_OK(ctx, ReadAdmission(ctx, &policies_.admission));
    OP_REQUIRES_OK(ctx, ReadOwnEviction(ctx, &policies_.eviction));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shared_rows", &policies_.shared_rows));
    OP_REQUIRES_OK(ctx,
                   ReadRounding(ctx, type_, &policies_.stochastic_rounding));
    OP_REQUIRES_OK(ctx, ReadStorage(ctx, type_, &policies_.storage));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("table_name", &policies_.table_name));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    return OutputResource<EmbeddingResource>(
        ctx, *this,
        [&](EmbeddingResource** created) {
          std::unique_ptr<Table> table;
          const std::string& table_name = policies_.table_name;
          LODESTAR_TRY(WithTableName(table_name,
                                     ToTensorFlow(CreateTable(ctx, &table))));
          *created = new EmbeddingResource(std::move(table), table_name);
          return absl::OkStatus();
        },
        [this](const EmbeddingResource& found, const std::string& name) {
          const std::shared_ptr<Table> table = found.table();
          if (table->dim() != dim_) {
            return InvalidArgumentError("the embedding variable '", name,
                                        "' must have dim ", dim_, ", got ",
                                        table->dim(), ".");
          }
          if (table->type() != type_) {
            return InvalidArgumentError(
                "the embedding variable '", name, "' must have ", NameOf(type_),
                " rows, got ", NameOf(table->type()), ".");
          }
          return absl::OkStatus();
        });
  }

 private:
  Status CreateTable(OpKernelContext* ctx, std::unique_ptr<Table>* table) {
#if LODESTAR_CUDA
    if (ctx->op_device_context() != nullptr) {
      if (policies_.storage != RowStorage::kSame) {
        return InvalidArgument("rows on a GPU cannot be stored as ",
                               NameOf(policies_.storage), ".");
      }
      DeviceStore::Options options;
      options.dim = dim_;
      options.type = type_;
      options.initializer = initializer_;
      options.policies = policies_;
      std::unique_ptr<DeviceStore> store;
      LODESTAR_RETURN_IF_ERROR(DeviceStore::Create(
          options, std::make_shared<TensorFlowAllocator>(ctx),
          KernelStream(ctx).on(), &store));
      *table = std::move(store);
      return Status();
    }
#endif
    std::unique_ptr<EmbeddingStore> store;
    LODESTAR_RETURN_IF_ERROR(EmbeddingStore::Create(
        dim_, num_shards_, initializer_, &store, policies_, type_));
    *table = std::move(store);
    return Status();
  }

  int64_t dim_ = 0;
  RowType type_ = RowType::kFloat32;
  int64_t num_shards_ = 0;
  RowInitializer initializer_;
  TablePolicies policies_;
};

// Also implements EmbeddingFindForGradient, which outputs only rows.
class EmbeddingFindOp : public TableKernel {
 public:
  explicit EmbeddingFindOp(OpKernelConstruction* ctx) : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, lookup_.Init(ctx));
  }

  absl::Status RunOn(const TableCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    const int dim = call.table->dim();
    LODESTAR_TRY(CheckHook(ctx->input(1), *call.table));
    const Tensor& ids = ctx->input(2);
    Missing missing;
    LODESTAR_TRY(lookup_.ReadMissing(ctx->input(3), dim, &missing));
    char* rows = nullptr;
    LODESTAR_TRY(AllocateRows(ctx, 0, ids.shape(), dim, &rows));
    Tensor* found = nullptr;
    const bool counts = num_outputs() == 2;
    if (counts) LODESTAR_TRY(ctx->allocate_output(1, ids.shape(), &found));
    return ToTensorFlow(call.table->FindRows(
        FlatSpan<int64_t>(ids), lookup_.padding_id(), missing, rows,
        counts ? found->flat<bool>().data() : nullptr, call.on, counts));
  }

 private:
  LookupAttributes lookup_;
};

LODESTAR_REGISTER_TABLE(EmbeddingVariable, EmbeddingVariableOp,
                        .HostMemory("handle"));
LODESTAR_REGISTER_TABLE(EmbeddingFind, EmbeddingFindOp, .HostMemory("handle"));
LODESTAR_REGISTER_TABLE(EmbeddingFindForGradient, EmbeddingFindOp,
                        .HostMemory("handle"));

}  // namespace
}  // namespace lodestar
