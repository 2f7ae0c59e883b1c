// Contracts: tf_ops/ops/snapshot/snapshot_ops.cc.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/variant_handle.h"
#include "tf_ops/kernels/snapshot/snapshot_inputs.h"

namespace lodestar {
namespace {

// Loaded tables, held in addition to the tables that they will replace.
class LoadedTables {
 public:
  explicit LoadedTables(std::vector<TableInput> tables)
      : tables_(std::move(tables)) {}

  void Add(std::unique_ptr<Table> table) {
    loaded_.push_back(std::move(table));
  }

  const TableInput& input(int64_t t) const { return tables_[t]; }
  // Returns FailedPrecondition if already installed, or if optimizer steps
  // overlap for too long.
  Status Install() {
    MutexLock lock(&mutex_);
    if (loaded_.size() != tables_.size()) {
      return FailedPrecondition("the loaded tables are already installed.");
    }
    // Each step sees either all old or all new tables. The old tables are freed
    // later, outside the gates.
    return GatesOf(tables_).Flip([&] {
      mutex_.AssertHeld();
      for (size_t t = 0; t < tables_.size(); ++t) {
        TableInput& input = tables_[t];
        input.table = input.reference->variable->table();
        LODESTAR_RETURN_IF_ERROR(loaded_[t]->CopyLiveState(
            *input.table, Table::OwnState(), input.reference->On(nullptr)));
      }
      for (size_t t = 0; t < tables_.size(); ++t) {
        tables_[t].reference->variable->Replace(std::move(loaded_[t]));
      }
      loaded_.clear();
      return Status();
    });
  }

 private:
  Mutex mutex_;
  std::vector<TableInput> tables_;
  std::vector<std::unique_ptr<Table>> loaded_;
};

class SnapshotLoadOp : public Kernel {
 public:
  explicit SnapshotLoadOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    std::string optimizer_slots;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer_slots", &optimizer_slots));
    options_.reset_slots = optimizer_slots == "reset";
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::vector<TableInput> tables;
    LODESTAR_TRY(ReadTables(ctx, &tables));
    const size_t n = tables.size();
    const int at = static_cast<int>(n);
    std::vector<std::vector<FileInput>> files;
    LODESTAR_TRY(ReadFiles(ctx->input(at), ctx->input(at + 1), n, &files));
    std::vector<TablePart> parts;
    LODESTAR_TRY(ReadParts(ctx->input(at + 2), n, &parts));
    std::vector<std::string> bases;
    LODESTAR_TRY(ReadStrings(ctx->input(at + 3), "bases", &bases));
    LODESTAR_TRY(CheckPerTable("bases", bases.size(), n));
    Tensor* rows = nullptr;
    LODESTAR_TRY(ctx->allocate_output(1, {at}, &rows));
    const ParallelFor parallel = OwnThreads(ctx);
    const auto loaded = std::make_shared<LoadedTables>(std::move(tables));
    for (size_t t = 0; t < n; ++t) {
      std::vector<SavedPart> saved;
      for (FileInput& input : files[t]) {
        if (saved.empty() || saved.back().part.number != input.part.number) {
          saved.push_back({input.part, {}});
        }
        saved.back().files.push_back(std::move(input.file));
      }
      const TableInput& input = loaded->input(t);
      const Execution on = input.reference->On(&parallel);
      std::unique_ptr<Table> table;
      LODESTAR_TRY(RestoreTable(saved, parts[t], *input.table, options_,
                                &parallel, on, &table));
      table->SetBase(bases[t], on);
      LODESTAR_TRY(table->ReadSize(&rows->vec<int64_t>()(t), on));
      loaded->Add(std::move(table));
    }
    return OutputHandle(ctx, 0, loaded);
  }

 private:
  RestoreOptions options_;
};

absl::Status RunSnapshotInstall(OpKernelContext* ctx) {
  std::shared_ptr<LoadedTables> loaded;
  LODESTAR_TRY(ReadHandle(ctx->input(0), "loaded", "SnapshotLoad", &loaded));
  return ToTensorFlow(loaded->Install());
}

LODESTAR_REGISTER(SnapshotLoad);
LODESTAR_REGISTER_FUNCTION(SnapshotInstall);

}  // namespace
}  // namespace lodestar
