// Contracts: tf_ops/ops/embedding/embedding_ops.cc.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tf_ops/core/table/lookup_plan.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/embedding/table_kernel.h"
#include "tf_ops/kernels/embedding/unique_ids.h"

namespace lodestar {
namespace {

class EmbeddingFindOrInsertOp : public TableKernel {
 public:
  explicit EmbeddingFindOrInsertOp(OpKernelConstruction* ctx)
      : TableKernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Init(ctx));
    OP_REQUIRES_OK(ctx, ReadLookupOptions(ctx, &options_));
  }

  absl::Status RunOn(const TableCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    const int dim = call.table->dim();
    LODESTAR_TRY(CheckHook(ctx->input(1), *call.table));
    const Tensor& ids = ctx->input(2);
    TableLookup lookup;
    lookup.ids = FlatSpan<int64_t>(ids);
    lookup.padding_id = attributes_.padding_id();
    lookup.options = options_;
    LODESTAR_TRY(attributes_.ReadMissing(ctx->input(3), dim, &lookup.missing));
    char* rows = nullptr;
    LODESTAR_TRY(AllocateRows(ctx, 0, ids.shape(), dim, &rows));
    lookup.rows = rows;
    Tensor* positions = nullptr;
    LODESTAR_TRY(ctx->allocate_output(2, {lookup.ids.size()}, &positions));
    lookup.positions = FlatSpan<int64_t>(positions);
    Tensor unique_ids;
    lookup.allocate = [&](int64_t count, int64_t** memory, LookupPlan** plan) {
      const absl::Status status =
          AllocateUniqueIds(ctx, count, &unique_ids, plan);
      if (!status.ok()) return ResourceExhausted(std::string(status.message()));
      *memory = unique_ids.flat<int64_t>().data();
      return Status();
    };
    LODESTAR_TRY(call.table->Lookup(lookup, call.on));
    ctx->set_output(1, unique_ids);
    return absl::OkStatus();
  }

 private:
  LookupAttributes attributes_;
  LookupOptions options_;
};

class EmbeddingFindOrInsertUniqueOp : public TableKernel {
 public:
  explicit EmbeddingFindOrInsertUniqueOp(OpKernelConstruction* ctx)
      : TableKernel(ctx) {
    std::string missing;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("missing", &missing));
    kind_ = ParseMissing(missing);
    OP_REQUIRES_OK(ctx, ReadLookupOptions(ctx, &options_));
  }

  absl::Status RunOn(const TableCall& call) override {
    OpKernelContext* const ctx = call.ctx;
    const Tensor& ids = ctx->input(1);
    LODESTAR_TRY(CheckRank(ids, "ids", 1));
    UniqueLookup lookup;
    lookup.ids = FlatSpan<int64_t>(ids);
    lookup.known_unique = PlanOf(ids) != nullptr;
    lookup.options = options_;
    std::vector<uint32_t> occurrences;
    LODESTAR_TRY(
        ReadOccurrences(ctx->input(2), lookup.ids.size(), &occurrences));
    lookup.occurrences = occurrences;
    const Tensor& missing_row = ctx->input(3);
    LODESTAR_TRY(
        CheckDtype(missing_row.dtype(), "missing_row", call.table->type()));
    LODESTAR_TRY(
        ReadMissing(kind_, missing_row, call.table->dim(), &lookup.missing));
    char* rows = nullptr;
    LODESTAR_TRY(AllocateRows(ctx, 0, ids.shape(), call.table->dim(), &rows));
    lookup.rows = rows;
    Tensor* resident = nullptr;
    LODESTAR_TRY(ctx->allocate_output(1, ids.shape(), &resident));
    lookup.resident = resident->flat<bool>().data();
    return ToTensorFlow(call.table->LookupUnique(lookup, call.on));
  }

 private:
  // Leaves the output unchanged if the tensor is empty.
  static absl::Status ReadOccurrences(const Tensor& tensor, int64_t count,
                                      std::vector<uint32_t>* occurrences) {
    LODESTAR_TRY(CheckRank(tensor, "occurrences", 1));
    if (tensor.NumElements() == 0) return absl::OkStatus();
    const Span<const int64_t> numbers = FlatSpan<int64_t>(tensor);
    if (numbers.size() != count) {
      return InvalidArgumentError("`occurrences` has ", numbers.size(),
                                  " elements, but there are ", count, " ids.");
    }
    for (int64_t i = 0; i < count; ++i) {
      if (numbers[i] < 1 || numbers[i] > std::numeric_limits<uint32_t>::max()) {
        return InvalidArgumentError("`occurrences[", i,
                                    "]` must be in [1, 2^32 - 1], got ",
                                    numbers[i], ".");
      }
      occurrences->push_back(static_cast<uint32_t>(numbers[i]));
    }
    return absl::OkStatus();
  }

  Missing::Kind kind_ = Missing::Kind::kZeros;
  LookupOptions options_;
};

LODESTAR_REGISTER_TABLE(EmbeddingFindOrInsert, EmbeddingFindOrInsertOp,
                        .HostMemory("handle"));
LODESTAR_REGISTER_TABLE(EmbeddingFindOrInsertUnique,
                        EmbeddingFindOrInsertUniqueOp,
                        .HostMemory("handle").HostMemory("occurrences"));

}  // namespace
}  // namespace lodestar
