#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/permutation.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/records/sample_bytes.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/record_memory_resource.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
// The maximum of Permutation.
constexpr int64_t kMaxShuffled = int64_t{1} << 62;

absl::Status ReadName(OpKernelContext* ctx, std::string* name) {
  LODESTAR_TRY(CheckRank(ctx->input(0), "memory", 0));
  *name = ctx->input(0).scalar<tstring>()();
  if (!name->empty()) return absl::OkStatus();
  return InvalidArgumentError("`memory` must not be empty.");
}

class RecordMemoryCreateOp : public Kernel {
 public:
  explicit RecordMemoryCreateOp(OpKernelConstruction* ctx)
      : Kernel(ctx), fields_(LineFieldsOf(ctx)) {
    OP_REQUIRES_OK(ctx, slots_.Init(ctx, FieldColumns(fields_)));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("drop_zeros", &drop_zeros_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::string name;
    LODESTAR_TRY(ReadName(ctx, &name));
    RecordMemory::Options options;
    options.specs = slots_.specs();
    options.drop_zeros = drop_zeros_;
    const size_t num_fields = FieldColumns(fields_).size();
    for (size_t c = 0; c < options.specs.size(); ++c) {
      options.roles.push_back(c < num_fields ? RecordMemory::Role::kField
                              : slots_.IsSparse(c)
                                  ? RecordMemory::Role::kSparse
                                  : RecordMemory::Role::kDense);
    }
    auto format = std::make_unique<MultiSlotFormat>(slots_.specs(), fields_);
    return RecordMemoryResource::Register(
        name,
        std::make_shared<RecordMemoryResource>(
            std::move(options), std::move(format), fields_.ins_id ? 0 : -1));
  }

 private:
  const LineFields fields_;
  SlotAttributes slots_;
  bool drop_zeros_;
};

absl::Status RunRecordMemoryForget(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx, &name));
  RecordMemoryResource::Forget(name);
  return absl::OkStatus();
}

absl::Status FindMemory(OpKernelContext* ctx,
                        std::shared_ptr<RecordMemoryResource>* resource) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx, &name));
  return RecordMemoryResource::Find(name, resource);
}

class RecordMemoryLoadOp : public Kernel {
 public:
  explicit RecordMemoryLoadOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("open_command", &open_command_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("pipe_command", &pipe_command_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("preload", &preload_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_errors", &skip_errors_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_log", &skip_log_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::shared_ptr<RecordMemoryResource> resource;
    LODESTAR_TRY(FindMemory(ctx, &resource));
    RecordSource::Options options;
    options.open_command = open_command_;
    options.pipe_command = pipe_command_;
    LODESTAR_TRY(ReadPaths(ctx->input(1), &options.files));
    LODESTAR_TRY(ReadScalar(ctx->input(2), "num_parallel_files", 1, 1024,
                            &options.num_threads));
    LODESTAR_TRY(
        ReadScalar(ctx->input(3), "num_shards", 1, kMax, &options.num_shards));
    LODESTAR_TRY(ReadScalar(ctx->input(4), "shard_index", 0,
                            options.num_shards - 1, &options.shard_index));
    if (skip_errors_) options.skip_log = SkipLog::Named(skip_log_);
    return preload_ ? resource->StartPreload(std::move(options))
                    : resource->Load(ctx, std::move(options));
  }

 private:
  std::vector<std::string> open_command_;
  std::vector<std::string> pipe_command_;
  bool preload_;
  bool skip_errors_;
  std::string skip_log_;
};

absl::Status RunRecordMemoryWaitPreload(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  return resource->WaitPreload(ctx);
}

absl::Status RunRecordMemoryRelease(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  resource->memory()->Release();
  return absl::OkStatus();
}

absl::Status RunRecordMemorySize(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  const auto samples = resource->memory()->Current();
  LODESTAR_TRY(OutputScalar(ctx, 0, samples->num_samples()));
  return OutputScalar(ctx, 1, samples->Bytes());
}

absl::Status RunRecordMemoryGlobalShuffle(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  int64_t seed = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(1), "seed", kMin, kMax, &seed));
  resource->memory()->GlobalShuffle(static_cast<uint64_t>(seed));
  return absl::OkStatus();
}

absl::Status RunRecordMemorySlotsShuffle(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  const RecordMemory::Options& options = resource->memory()->options();
  LODESTAR_TRY(CheckRank(ctx->input(1), "slots", 1));
  std::vector<int64_t> columns;
  for (int64_t i = 0; i < ctx->input(1).NumElements(); ++i) {
    const std::string slot = ctx->input(1).vec<tstring>()(i);
    size_t c = 0;
    while (c < options.specs.size() &&
           (options.specs[c].name != slot || !options.specs[c].used ||
            options.roles[c] != RecordMemory::Role::kSparse)) {
      ++c;
    }
    if (c == options.specs.size()) {
      return InvalidArgumentError("`slots`: '", slot,
                                  "' is not a used sparse slot.");
    }
    columns.push_back(static_cast<int64_t>(c));
  }
  int64_t seed = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(2), "seed", kMin, kMax, &seed));
  resource->memory()->SlotsShuffle(columns, static_cast<uint64_t>(seed));
  return absl::OkStatus();
}

class RecordMemoryMergeByInsIdOp : public Kernel {
 public:
  explicit RecordMemoryMergeByInsIdOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("keep_unmerged", &keep_unmerged_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("erase_duplicates", &erase_duplicates_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::shared_ptr<RecordMemoryResource> resource;
    LODESTAR_TRY(FindMemory(ctx, &resource));
    int64_t min_size = 0;
    LODESTAR_TRY(ReadScalar(ctx->input(1), "min_size", 2, kMax, &min_size));
    if (resource->id_column() < 0) {
      return ToTensorFlow(FailedPrecondition(
          "merge_by_ins_id requires samples that were read with ins_id=True."));
    }
    const RecordMemory::MergeCounts counts = resource->memory()->MergeByText(
        resource->id_column(), min_size, keep_unmerged_, erase_duplicates_);
    LODESTAR_TRY(OutputScalar(ctx, 0, counts.merged));
    LODESTAR_TRY(OutputScalar(ctx, 1, counts.too_few));
    return OutputScalar(ctx, 2, counts.conflicting);
  }

 private:
  bool keep_unmerged_;
  bool erase_duplicates_;
};

absl::Status RunRecordMemoryEncode(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  LODESTAR_TRY(CheckRank(ctx->input(1), "samples", 1));
  const Span<const int64_t> samples = FlatSpan<int64_t>(ctx->input(1));
  RecordMemory* const memory = resource->memory();
  const auto contents = memory->Current();
  for (const int64_t sample : samples) {
    if (sample < 0 || sample >= contents->num_samples()) {
      return InvalidArgumentError("`samples` contains ", sample,
                                  ", expected values in [0, ",
                                  contents->num_samples(), ")");
    }
  }
  return OutputScalar(
      ctx, 0,
      EncodeSamples(memory->options().specs, memory->Copy(*contents, samples)));
}

absl::Status RunRecordMemoryReceive(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  LODESTAR_TRY(CheckRank(ctx->input(1), "pieces", 1));
  return resource->Receive(FlatSpan<tstring>(ctx->input(1)));
}

absl::Status RunRecordMemoryArrange(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  LODESTAR_TRY(CheckRank(ctx->input(1), "order", 1));
  return resource->Arrange(FlatSpan<int64_t>(ctx->input(1)));
}

absl::Status RunRecordMemoryCommit(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  return resource->Commit();
}

absl::Status RunRecordMemoryDiscard(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  resource->Discard();
  return absl::OkStatus();
}

absl::Status RunShuffledNumbers(OpKernelContext* ctx) {
  int64_t count = 0, seed = 0, begin = 0, end = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(0), "count", 0, kMaxShuffled, &count));
  LODESTAR_TRY(ReadScalar(ctx->input(1), "seed", kMin, kMax, &seed));
  LODESTAR_TRY(ReadScalar(ctx->input(2), "begin", 0, count, &begin));
  LODESTAR_TRY(ReadScalar(ctx->input(3), "end", begin, count, &end));
  Tensor* numbers = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 0, {end - begin}, &numbers));
  const Permutation permutation(count, static_cast<uint64_t>(seed));
  for (int64_t i = begin; i < end; ++i) {
    numbers->flat<int64_t>()(i - begin) = permutation(i);
  }
  return absl::OkStatus();
}

LODESTAR_REGISTER(RecordMemoryCreate);
LODESTAR_REGISTER_FUNCTION(RecordMemoryForget);
LODESTAR_REGISTER(RecordMemoryLoad);
LODESTAR_REGISTER_FUNCTION(RecordMemoryWaitPreload);
LODESTAR_REGISTER_FUNCTION(RecordMemoryRelease);
LODESTAR_REGISTER_FUNCTION(RecordMemorySize);
LODESTAR_REGISTER_FUNCTION(RecordMemoryGlobalShuffle);
LODESTAR_REGISTER_FUNCTION(RecordMemorySlotsShuffle);
LODESTAR_REGISTER(RecordMemoryMergeByInsId);
LODESTAR_REGISTER_FUNCTION(RecordMemoryEncode);
LODESTAR_REGISTER_FUNCTION(RecordMemoryReceive);
LODESTAR_REGISTER_FUNCTION(RecordMemoryArrange);
LODESTAR_REGISTER_FUNCTION(RecordMemoryCommit);
LODESTAR_REGISTER_FUNCTION(RecordMemoryDiscard);
LODESTAR_REGISTER_FUNCTION(ShuffledNumbers);

}  // namespace
}  // namespace lodestar
