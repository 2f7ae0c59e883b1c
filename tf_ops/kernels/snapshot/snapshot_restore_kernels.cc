// Contracts: tf_ops/ops/snapshot/snapshot_ops.cc.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/rows/step_gate.h"
#include "tf_ops/core/snapshot/snapshot_delta.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/snapshot/snapshot_inputs.h"

namespace lodestar {
namespace {

// Of which the attribute optimizer_slots is one.
class LoadKernel : public Kernel {
 public:
  explicit LoadKernel(OpKernelConstruction* ctx) : Kernel(ctx) {
    std::string optimizer_slots;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer_slots", &optimizer_slots));
    options_.reset_slots = optimizer_slots == "reset";
  }

 protected:
  RestoreOptions options_;
};

class SnapshotRestoreOp : public LoadKernel {
 public:
  using LoadKernel::LoadKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    std::vector<TableInput> tables;
    LODESTAR_TRY(ReadTables(ctx, &tables));
    const int64_t n = static_cast<int64_t>(tables.size());
    std::vector<std::vector<std::string>> chains;
    LODESTAR_TRY(ReadChains(ctx, n, &chains));
    std::string base;
    LODESTAR_TRY(ReadText(ctx->input(static_cast<int>(n) + 2), "base", &base));
    Tensor* rows = nullptr;
    LODESTAR_TRY(ctx->allocate_output(0, {n}, &rows));
    const ParallelFor parallel = OwnThreads(ctx);
    std::vector<std::shared_ptr<EmbeddingStore>> loaded;
    for (int64_t t = 0; t < n; ++t) {
      std::unique_ptr<EmbeddingStore> store;
      LODESTAR_TRY(RestoreChain(chains[t], *tables[t].store, options_,
                                &parallel, &store));
      store->SetBase(base);
      rows->vec<int64_t>()(t) = store->size();
      loaded.push_back(std::move(store));
    }
    // A step works on all that it was, or on all that it is from here on. What
    // was is given back later, outside of the gate.
    return ToTensorFlow(StepGate::Global().Flip([&] {
      for (int64_t t = 0; t < n; ++t) {
        tables[t].store = tables[t].resource->store();
        tables[t].resource->Replace(std::move(loaded[t]));
      }
      return Status();
    }));
  }

 private:
  // The files of each of n tables.
  static absl::Status ReadChains(
      OpKernelContext* ctx, int64_t n,
      std::vector<std::vector<std::string>>* chains) {
    std::vector<std::string> files;
    LODESTAR_TRY(ReadTexts(ctx->input(static_cast<int>(n)), "files", &files));
    const Tensor& file_tables = ctx->input(static_cast<int>(n) + 1);
    LODESTAR_TRY(CheckRank(file_tables, "file_tables", 1));
    const Span<const int64_t> numbers = FlatSpan<int64_t>(file_tables);
    if (numbers.size() != static_cast<int64_t>(files.size())) {
      return InvalidArgumentError("`file_tables` has ", numbers.size(),
                                  " items, but there are ", files.size(),
                                  " files");
    }
    chains->resize(n);
    for (int64_t f = 0; f < numbers.size(); ++f) {
      if (numbers[f] < 0 || numbers[f] >= n) {
        return InvalidArgumentError("`file_tables[", f, "]` is ", numbers[f],
                                    ", wanted 0 to ", n - 1);
      }
      (*chains)[numbers[f]].push_back(files[f]);
    }
    for (int64_t t = 0; t < n; ++t) {
      if (!(*chains)[t].empty()) continue;
      return InvalidArgumentError("`file_tables` names no file of table ", t);
    }
    return absl::OkStatus();
  }
};

class SnapshotApplyOp : public LoadKernel {
 public:
  using LoadKernel::LoadKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    std::vector<TableInput> tables;
    LODESTAR_TRY(ReadTables(ctx, &tables));
    const int64_t n = static_cast<int64_t>(tables.size());
    std::vector<std::string> files;
    LODESTAR_TRY(ReadTexts(ctx->input(static_cast<int>(n)), "files", &files));
    LODESTAR_TRY(CheckPerTable("files", files.size(), n));
    std::string base;
    LODESTAR_TRY(ReadText(ctx->input(static_cast<int>(n) + 1), "base", &base));
    Tensor* written = nullptr;
    Tensor* removed = nullptr;
    LODESTAR_TRY(ctx->allocate_output(0, {n}, &written));
    LODESTAR_TRY(ctx->allocate_output(1, {n}, &removed));
    std::vector<std::unique_ptr<SnapshotDelta>> deltas(n);
    for (int64_t t = 0; t < n; ++t) {
      LODESTAR_TRY(SnapshotDelta::Open(files[t], tables[t].store.get(),
                                       options_, &deltas[t]));
    }
    for (int64_t t = 0; t < n; ++t) {
      SnapshotDelta::Applied applied;
      LODESTAR_TRY(deltas[t]->Apply(&applied));
      tables[t].store->SetBase(base);
      written->vec<int64_t>()(t) = applied.written;
      removed->vec<int64_t>()(t) = applied.removed;
    }
    return absl::OkStatus();
  }
};

LODESTAR_REGISTER(SnapshotRestore);
LODESTAR_REGISTER(SnapshotApply);

}  // namespace
}  // namespace lodestar
