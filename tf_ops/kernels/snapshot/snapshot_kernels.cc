// Kernels of SnapshotBegin, SnapshotWrite, SnapshotEnd and SnapshotBase.
// Contracts: tf_ops/ops/snapshot/snapshot_ops.cc; algorithm:
// tf_ops/core/snapshot/embedding_snapshot.h.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/snapshot/embedding_snapshot.h"
#include "tf_ops/core/snapshot/snapshot_file.h"
#include "tf_ops/core/snapshot/snapshot_table.h"
#include "tf_ops/kernels/embedding/embedding_kernel_util.h"
#include "tf_ops/kernels/snapshot/snapshot_inputs.h"
#include "tf_ops/kernels/snapshot/snapshot_kernel.h"

namespace lodestar {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;
using tensorflow::Variant;
using tensorflow::VariantTensorData;

// Snapshots of several tables at one moment. Begun, then written, then ended;
// Abort at any time. Thread-safe.
class RunningSnapshot {
 public:
  explicit RunningSnapshot(
      std::vector<std::unique_ptr<EmbeddingSnapshot>> tables)
      : tables_(std::move(tables)) {}

  int64_t num_tables() const { return static_cast<int64_t>(tables_.size()); }
  const SnapshotTable& table(int64_t t) const { return tables_[t]->table(); }

  struct WrittenFile {
    SnapshotTotals totals;
    int64_t bytes = 0;
    uint32_t crc = 0;
  };
  // FailedPrecondition: it is not just begun.
  Status Write(const std::vector<std::string>& paths,
               const std::vector<std::string>& labels,
               std::vector<WrittenFile>* written) {
    LODESTAR_RETURN_IF_ERROR(Move(State::kBegun, State::kWriting));
    for (size_t t = 0; t < tables_.size(); ++t) {
      std::unique_ptr<SnapshotFileWriter> file;
      LODESTAR_RETURN_IF_ERROR(
          SnapshotFileWriter::Create(paths[t], &file, labels[t]));
      LODESTAR_RETURN_IF_ERROR(tables_[t]->Write(file.get()));
      LODESTAR_RETURN_IF_ERROR(file->Finish());
      written->push_back({file->totals(), file->bytes(), file->crc()});
    }
    return Move(State::kWriting, State::kWritten);
  }

  // FailedPrecondition: it is not written.
  Status Commit(const std::string& base) {
    LODESTAR_RETURN_IF_ERROR(Move(State::kWritten, State::kEnded));
    for (const auto& table : tables_) table->Commit(base);
    return Status();
  }

  // FailedPrecondition: it has ended.
  Status Abort() {
    {
      MutexLock lock(&mutex_);
      if (state_ == State::kEnded) return Refusal();
      state_ = State::kEnded;
    }
    for (const auto& table : tables_) table->Abort();
    return Status();
  }

 private:
  enum class State { kBegun, kWriting, kWritten, kEnded };

  Status Move(State from, State to) {
    MutexLock lock(&mutex_);
    if (state_ != from) return Refusal();
    state_ = to;
    return Status();
  }

  Status Refusal() const LODESTAR_REQUIRES(mutex_) {
    switch (state_) {
      case State::kBegun:
        return FailedPrecondition("the snapshot is not written");
      case State::kWriting:
        return FailedPrecondition(
            "the snapshot is being written, or writing it has failed");
      case State::kWritten:
        return FailedPrecondition("the snapshot is written already");
      case State::kEnded:
        break;
    }
    return FailedPrecondition("the snapshot has ended");
  }

  const std::vector<std::unique_ptr<EmbeddingSnapshot>> tables_;
  Mutex mutex_;
  State state_ LODESTAR_GUARDED_BY(mutex_) = State::kBegun;
};

// What a tensor of variants holds. A snapshot that is not ended is aborted with
// the tensor.
struct SnapshotHandle {
  std::shared_ptr<RunningSnapshot> snapshot;

  std::string TypeName() const { return "lodestar::SnapshotHandle"; }
  // It is of this process.
  void Encode(VariantTensorData* data) const {
    data->set_type_name(TypeName());
  }
  bool Decode(VariantTensorData data) { return false; }
};

absl::Status FindSnapshot(const Tensor& tensor,
                          std::shared_ptr<RunningSnapshot>* snapshot) {
  TF_RETURN_IF_ERROR(CheckRank(tensor, "snapshot", 0));
  const SnapshotHandle* handle =
      tensor.scalar<Variant>()().get<SnapshotHandle>();
  if (handle == nullptr || handle->snapshot == nullptr) {
    return InvalidArgumentError("`snapshot` is not what SnapshotBegin gives");
  }
  *snapshot = handle->snapshot;
  return absl::OkStatus();
}

class SnapshotBeginOp : public SnapshotKernel {
 public:
  using SnapshotKernel::SnapshotKernel;

  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::vector<TableInput> tables;
    TF_RETURN_IF_ERROR(ReadTables(ctx, &tables));
    std::vector<std::string> bases;
    TF_RETURN_IF_ERROR(
        ReadTexts(ctx->input(ctx->num_inputs() - 1), "bases", &bases));
    TF_RETURN_IF_ERROR(CheckPerTable("bases", bases.size(), tables.size()));
    std::vector<EmbeddingSnapshot::Source> sources;
    for (size_t t = 0; t < tables.size(); ++t) {
      sources.push_back({tables[t].store, bases[t]});
    }
    std::vector<std::unique_ptr<EmbeddingSnapshot>> begun;
    TF_RETURN_IF_ERROR(ToTensorFlow(EmbeddingSnapshot::Begin(sources, &begun)));
    // From here on an error drops, and so aborts it.
    const auto snapshot = std::make_shared<RunningSnapshot>(std::move(begun));
    return Output(ctx, snapshot);
  }

 private:
  static absl::Status Output(OpKernelContext* ctx,
                             const std::shared_ptr<RunningSnapshot>& snapshot) {
    const int64_t n = snapshot->num_tables();
    Tensor* outputs[7];
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, TensorShape({}), &outputs[0]));
    for (int i = 1; i < 7; ++i) {
      TF_RETURN_IF_ERROR(ctx->allocate_output(i, {n}, &outputs[i]));
    }
    std::vector<tstring> slot_names;
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
    TF_RETURN_IF_ERROR(OutputVector(ctx, 7, slot_names));
    outputs[0]->scalar<Variant>()() = SnapshotHandle{snapshot};
    return absl::OkStatus();
  }
};

class SnapshotWriteOp : public SnapshotKernel {
 public:
  using SnapshotKernel::SnapshotKernel;

  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::shared_ptr<RunningSnapshot> snapshot;
    TF_RETURN_IF_ERROR(FindSnapshot(ctx->input(0), &snapshot));
    std::vector<std::string> paths;
    TF_RETURN_IF_ERROR(ReadTexts(ctx->input(1), "paths", &paths));
    const int64_t n = snapshot->num_tables();
    TF_RETURN_IF_ERROR(CheckPerTable("paths", paths.size(), n));
    TF_RETURN_IF_ERROR(CheckRank(ctx->input(2), "labels", 1));
    const std::vector<std::string> labels = BytesOf(ctx->input(2));
    TF_RETURN_IF_ERROR(CheckPerTable("labels", labels.size(), n));
    Tensor* outputs[4];
    for (int i = 0; i < 4; ++i) {
      TF_RETURN_IF_ERROR(ctx->allocate_output(i, {n}, &outputs[i]));
    }
    std::vector<RunningSnapshot::WrittenFile> written;
    TF_RETURN_IF_ERROR(ToTensorFlow(snapshot->Write(paths, labels, &written)));
    for (int64_t t = 0; t < n; ++t) {
      outputs[0]->vec<int64_t>()(t) = written[t].totals.rows;
      outputs[1]->vec<int64_t>()(t) = written[t].totals.removed;
      outputs[2]->vec<int64_t>()(t) = written[t].bytes;
      outputs[3]->vec<int64_t>()(t) = written[t].crc;
    }
    return absl::OkStatus();
  }
};

class SnapshotEndOp : public SnapshotKernel {
 public:
  using SnapshotKernel::SnapshotKernel;

  absl::Status ComputeOn(OpKernelContext* ctx) override {
    std::shared_ptr<RunningSnapshot> snapshot;
    TF_RETURN_IF_ERROR(FindSnapshot(ctx->input(0), &snapshot));
    std::string base;
    TF_RETURN_IF_ERROR(ReadText(ctx->input(1), "base", &base));
    return ToTensorFlow(base.empty() ? snapshot->Abort()
                                     : snapshot->Commit(base));
  }
};

class SnapshotBaseOp : public EmbeddingKernel {
 public:
  using EmbeddingKernel::EmbeddingKernel;

  void ComputeOn(OpKernelContext* ctx, EmbeddingStore* store) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &output));
    output->scalar<tstring>()() = store->base();
  }
};

#define REGISTER(name) \
  REGISTER_KERNEL_BUILDER(Name("Lodestar>" #name).Device(DEVICE_CPU), name##Op)
REGISTER(SnapshotBegin);
REGISTER(SnapshotWrite);
REGISTER(SnapshotEnd);
REGISTER(SnapshotBase);
#undef REGISTER

}  // namespace
}  // namespace lodestar
