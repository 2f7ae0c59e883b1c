// Contracts: tf_ops/ops/snapshot/snapshot_ops.cc.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/snapshot/snapshot_delta.h"
#include "tf_ops/core/snapshot/snapshot_restore.h"
#include "tf_ops/core/table/table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/parallel_util.h"
#include "tf_ops/kernels/base/variant_handle.h"
#include "tf_ops/kernels/snapshot/snapshot_inputs.h"

namespace lodestar {
namespace {

// Base of the kernels with the attribute optimizer_slots.
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

// Reads a row of an input called `name` that contains a part number and the
// number of parts.
absl::Status ReadPart(const Tensor& tensor, const char* name, int64_t row,
                      TablePart* part) {
  const auto numbers = tensor.matrix<int64_t>();
  const int64_t number = numbers(row, 0);
  const int64_t count = numbers(row, 1);
  if (number < 0 || number >= count ||
      count > std::numeric_limits<int32_t>::max()) {
    return InvalidArgumentError("`", name, "[", row, "]` is part ", number,
                                " of ", count, ", expected 0 <= part < count");
  }
  *part = {static_cast<uint32_t>(number), static_cast<uint32_t>(count)};
  return absl::OkStatus();
}

absl::Status CheckParts(const Tensor& tensor, const char* name, int64_t rows) {
  LODESTAR_TRY(CheckRank(tensor, name, 2));
  if (tensor.dim_size(0) == rows && tensor.dim_size(1) == 2) {
    return absl::OkStatus();
  }
  return InvalidArgumentError("`", name, "` has shape ",
                              tensor.shape().DebugString(), ", expected [",
                              rows, ",2]");
}

// Reads the files at input `at`, their table numbers at the next one, and what
// a manifest lists for them at `listed`. Calls fn(table, file number, file) for
// each, in order.
template <typename Fn>
absl::Status ForEachFile(OpKernelContext* ctx, int at, int listed, int64_t n,
                         const Fn& fn) {
  std::vector<ListedFile> files;
  LODESTAR_TRY(ReadFiles(ctx->input(at), ctx->input(listed), &files));
  const Tensor& file_tables = ctx->input(at + 1);
  LODESTAR_TRY(CheckRank(file_tables, "file_tables", 1));
  const Span<const int64_t> numbers = FlatSpan<int64_t>(file_tables);
  if (numbers.size() != static_cast<int64_t>(files.size())) {
    return InvalidArgumentError("`file_tables` has ", numbers.size(),
                                " items, but there are ", files.size(),
                                " files");
  }
  std::vector<bool> named(n);
  for (int64_t f = 0; f < numbers.size(); ++f) {
    if (numbers[f] < 0 || numbers[f] >= n) {
      return InvalidArgumentError("`file_tables[", f, "]` is ", numbers[f],
                                  ", expected 0 to ", n - 1);
    }
    named[numbers[f]] = true;
    LODESTAR_TRY(fn(numbers[f], f, files[f]));
  }
  for (int64_t t = 0; t < n; ++t) {
    if (named[t]) continue;
    return InvalidArgumentError("`file_tables` has no file of table ", t);
  }
  return absl::OkStatus();
}

// Returns InvalidArgument unless the parts of table t are complete and unique.
absl::Status CheckWhole(const std::vector<SavedPart>& parts, int64_t t) {
  const uint32_t count = parts[0].part.count;
  std::vector<bool> found(parts.size());
  for (const SavedPart& saved : parts) {
    const TablePart& part = saved.part;
    if (part.count != count) {
      return InvalidArgumentError(
          "table ", t, " has files of part ", parts[0].part.number, " of ",
          count, " and of part ", part.number, " of ", part.count);
    }
    if (part.number >= found.size()) continue;  // another part is missing
    if (found[part.number]) {
      return InvalidArgumentError("table ", t, " has part ", part.number,
                                  " of ", count, " more than once");
    }
    found[part.number] = true;
  }
  if (parts.size() == count) return absl::OkStatus();
  const auto missing = std::find(found.begin(), found.end(), false);
  return InvalidArgumentError("table ", t, " has no file of part ",
                              missing - found.begin(), " of ", count);
}

class SnapshotLoadOp : public LoadKernel {
 public:
  using LoadKernel::LoadKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    std::vector<TableInput> tables;
    LODESTAR_TRY(ReadTables(ctx, &tables));
    const int64_t n = static_cast<int64_t>(tables.size());
    const int at = static_cast<int>(n);
    std::vector<std::vector<SavedPart>> saved(n);
    const Tensor& file_parts = ctx->input(at + 2);
    LODESTAR_TRY(
        CheckParts(file_parts, "file_parts", ctx->input(at).NumElements()));
    LODESTAR_TRY(ForEachFile(
        ctx, at, at + 5, n, [&](int64_t t, int64_t f, const ListedFile& file) {
          TablePart part;
          LODESTAR_TRY(ReadPart(file_parts, "file_parts", f, &part));
          std::vector<SavedPart>& parts = saved[t];
          if (parts.empty() || parts.back().part.number != part.number ||
              parts.back().part.count != part.count) {
            parts.push_back({part, {}});
          }
          parts.back().files.push_back(file);
          return absl::OkStatus();
        }));
    for (int64_t t = 0; t < n; ++t) {
      LODESTAR_TRY(CheckWhole(saved[t], t));
    }
    const Tensor& own_parts = ctx->input(at + 3);
    LODESTAR_TRY(CheckParts(own_parts, "parts", n));
    std::vector<std::string> bases;
    LODESTAR_TRY(ReadStrings(ctx->input(at + 4), "bases", &bases));
    LODESTAR_TRY(CheckPerTable("bases", bases.size(), n));
    Tensor* rows = nullptr;
    LODESTAR_TRY(ctx->allocate_output(1, {n}, &rows));
    const ParallelFor parallel = OwnThreads(ctx);
    const auto loaded = std::make_shared<LoadedTables>(std::move(tables));
    for (int64_t t = 0; t < n; ++t) {
      TablePart part;
      LODESTAR_TRY(ReadPart(own_parts, "parts", t, &part));
      const TableInput& input = loaded->input(t);
      const Execution on = input.reference->On(&parallel);
      std::unique_ptr<Table> table;
      LODESTAR_TRY(RestoreTable(saved[t], part, *input.table, options_,
                                &parallel, on, &table));
      table->SetBase(bases[t], on);
      LODESTAR_TRY(table->ReadSize(&rows->vec<int64_t>()(t), on));
      loaded->Add(std::move(table));
    }
    return OutputHandle(ctx, 0, loaded);
  }
};

absl::Status RunSnapshotInstall(OpKernelContext* ctx) {
  std::shared_ptr<LoadedTables> loaded;
  LODESTAR_TRY(ReadHandle(ctx->input(0), "loaded", "SnapshotLoad", &loaded));
  return ToTensorFlow(loaded->Install());
}

class SnapshotApplyOp : public LoadKernel {
 public:
  using LoadKernel::LoadKernel;

  absl::Status Run(OpKernelContext* ctx) override {
    std::vector<TableInput> tables;
    LODESTAR_TRY(ReadTables(ctx, &tables));
    const int64_t n = static_cast<int64_t>(tables.size());
    const int at = static_cast<int>(n);
    std::vector<std::vector<ListedFile>> files(n);
    LODESTAR_TRY(ForEachFile(ctx, at, at + 4, n,
                             [&](int64_t t, int64_t, const ListedFile& file) {
                               files[t].push_back(file);
                               return absl::OkStatus();
                             }));
    const Tensor& own_parts = ctx->input(at + 2);
    LODESTAR_TRY(CheckParts(own_parts, "parts", n));
    std::string base;
    LODESTAR_TRY(ReadString(ctx->input(at + 3), "base", &base));
    Tensor* written = nullptr;
    Tensor* removed = nullptr;
    LODESTAR_TRY(ctx->allocate_output(0, {n}, &written));
    LODESTAR_TRY(ctx->allocate_output(1, {n}, &removed));
    std::vector<std::unique_ptr<SnapshotDelta>> deltas(n);
    for (int64_t t = 0; t < n; ++t) {
      TablePart part;
      LODESTAR_TRY(ReadPart(own_parts, "parts", t, &part));
      LODESTAR_TRY(
          SnapshotDelta::Open(files[t], part, tables[t].table.get(), options_,
                              tables[t].reference->On(nullptr), &deltas[t]));
    }
    for (int64_t t = 0; t < n; ++t) {
      SnapshotDelta::Applied applied;
      const Execution on = tables[t].reference->On(nullptr);
      LODESTAR_TRY(deltas[t]->Apply(&applied));
      tables[t].table->SetBase(base, on);
      written->vec<int64_t>()(t) = applied.written;
      removed->vec<int64_t>()(t) = applied.removed;
    }
    return absl::OkStatus();
  }
};

LODESTAR_REGISTER(SnapshotLoad);
LODESTAR_REGISTER_FUNCTION(SnapshotInstall);
LODESTAR_REGISTER(SnapshotApply);

}  // namespace
}  // namespace lodestar
