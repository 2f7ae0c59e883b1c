#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/snapshot/embedding_snapshot.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/variant_handle.h"
#include "tf_ops/kernels/snapshot/snapshot_inputs.h"

namespace lodestar {
namespace {

// Snapshots of several tables at one consistent point. Thread-safe.
class RunningSnapshot {
 public:
  explicit RunningSnapshot(
      std::vector<std::unique_ptr<EmbeddingSnapshot>> tables)
      : tables_(std::move(tables)) {}

  int64_t num_tables() const { return static_cast<int64_t>(tables_.size()); }
  const SnapshotTable& table(int64_t t) const { return tables_[t]->table(); }

  // Returns FailedPrecondition if it was called before, or after End.
  Status Write(const std::vector<std::string>& paths,
               const std::vector<std::string>& labels,
               std::vector<SnapshotFileSummary>* written) {
    if (ended_ || began_writing_.exchange(true)) {
      return FailedPrecondition(
          "the snapshot has ended or was already written.");
    }
    for (size_t t = 0; t < tables_.size(); ++t) {
      std::unique_ptr<SnapshotFileWriter> file;
      LODESTAR_RETURN_IF_ERROR(
          SnapshotFileWriter::Create(paths[t], labels[t], &file));
      LODESTAR_RETURN_IF_ERROR(tables_[t]->Write(file.get()));
      LODESTAR_RETURN_IF_ERROR(file->Finish());
      written->push_back({file->bytes(), file->crc(), file->totals()});
    }
    is_written_ = true;
    return Status();
  }

  // Aborts the snapshot if `base` is empty. Otherwise returns
  // FailedPrecondition unless it is written. Must not be called twice.
  Status End(const std::string& base) {
    if (!base.empty() && !is_written_) {
      return FailedPrecondition("the snapshot is not written.");
    }
    if (ended_.exchange(true)) {
      return FailedPrecondition("the snapshot has ended.");
    }
    for (const auto& table : tables_) {
      base.empty() ? table->Abort() : table->Commit(base);
    }
    return Status();
  }

 private:
  const std::vector<std::unique_ptr<EmbeddingSnapshot>> tables_;
  std::atomic<bool> began_writing_{false};
  std::atomic<bool> is_written_{false};
  std::atomic<bool> ended_{false};
};

// Destroying the tensor aborts a snapshot that has not ended.
absl::Status ReadSnapshot(OpKernelContext* ctx,
                          std::shared_ptr<RunningSnapshot>* snapshot) {
  return ReadHandle(ctx->input(0), "snapshot", "SnapshotBegin", snapshot);
}

absl::Status OutputSnapshot(OpKernelContext* ctx,
                            const std::shared_ptr<RunningSnapshot>& snapshot) {
  const int64_t n = snapshot->num_tables();
  Tensor* outputs[7];
  for (int i = 1; i < 7; ++i) {
    LODESTAR_TRY(ctx->allocate_output(i, {n}, &outputs[i]));
  }
  std::vector<std::string> slot_names;
  for (int64_t t = 0; t < n; ++t) {
    const SnapshotTable& table = snapshot->table(t);
    const std::vector<std::string>& names = table.optimizer.slot_names;
    outputs[1]->vec<bool>()(t) = table.whole;
    outputs[2]->vec<int64_t>()(t) = table.step;
    outputs[3]->vec<int64_t>()(t) = table.dim;
    outputs[4]->vec<tstring>()(t) = NameOf(table.type);
    outputs[5]->vec<tstring>()(t) = table.optimizer.name;
    outputs[6]->vec<int64_t>()(t) = static_cast<int64_t>(names.size());
    slot_names.insert(slot_names.end(), names.begin(), names.end());
  }
  LODESTAR_TRY(OutputVector(ctx, 7, slot_names));
  return OutputHandle(ctx, 0, snapshot);
}

absl::Status RunSnapshotBegin(OpKernelContext* ctx) {
  std::vector<TableInput> tables;
  LODESTAR_TRY(ReadTables(ctx, &tables));
  std::vector<std::string> bases;
  LODESTAR_TRY(ReadStrings(ctx->input(ctx->num_inputs() - 1), "bases", &bases));
  LODESTAR_TRY(CheckPerTable("bases", bases.size(), tables.size()));
  std::vector<EmbeddingSnapshot::Source> sources;
  for (size_t t = 0; t < tables.size(); ++t) {
    sources.push_back(
        {tables[t].table, bases[t], tables[t].reference->On(nullptr)});
  }
  std::vector<std::unique_ptr<EmbeddingSnapshot>> begun;
  LODESTAR_TRY(EmbeddingSnapshot::Begin(sources, GatesOf(tables), &begun));
  // From here on an error destroys, and so aborts, the snapshot.
  const auto snapshot = std::make_shared<RunningSnapshot>(std::move(begun));
  return OutputSnapshot(ctx, snapshot);
}

absl::Status RunSnapshotWrite(OpKernelContext* ctx) {
  std::shared_ptr<RunningSnapshot> snapshot;
  LODESTAR_TRY(ReadSnapshot(ctx, &snapshot));
  std::vector<std::string> paths;
  LODESTAR_TRY(ReadStrings(ctx->input(1), "paths", &paths));
  const int64_t n = snapshot->num_tables();
  LODESTAR_TRY(CheckPerTable("paths", paths.size(), n));
  LODESTAR_TRY(CheckRank(ctx->input(2), "labels", 1));
  const std::vector<std::string> labels = BytesOf(ctx->input(2));
  LODESTAR_TRY(CheckPerTable("labels", labels.size(), n));
  Tensor* outputs[4];
  for (int i = 0; i < 4; ++i) {
    LODESTAR_TRY(ctx->allocate_output(i, {n}, &outputs[i]));
  }
  std::vector<SnapshotFileSummary> written;
  LODESTAR_TRY(snapshot->Write(paths, labels, &written));
  for (int64_t t = 0; t < n; ++t) {
    outputs[0]->vec<int64_t>()(t) = written[t].totals.rows;
    outputs[1]->vec<int64_t>()(t) = written[t].totals.removed;
    outputs[2]->vec<int64_t>()(t) = written[t].bytes;
    outputs[3]->vec<int64_t>()(t) = written[t].crc;
  }
  return absl::OkStatus();
}

absl::Status RunSnapshotEnd(OpKernelContext* ctx) {
  std::shared_ptr<RunningSnapshot> snapshot;
  LODESTAR_TRY(ReadSnapshot(ctx, &snapshot));
  std::string base;
  LODESTAR_TRY(ReadString(ctx->input(1), "base", &base));
  return ToTensorFlow(snapshot->End(base));
}

LODESTAR_REGISTER_FUNCTION(SnapshotBegin);
LODESTAR_REGISTER_FUNCTION(SnapshotWrite);
LODESTAR_REGISTER_FUNCTION(SnapshotEnd);

}  // namespace
}  // namespace lodestar
