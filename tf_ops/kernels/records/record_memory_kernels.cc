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
#include "tf_ops/kernels/records/registry.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {
namespace {

// The maximum of Permutation.
constexpr int64_t kMaxShuffled = int64_t{1} << 62;

class RecordMemoryCreateOp : public Kernel {
 public:
  explicit RecordMemoryCreateOp(OpKernelConstruction* ctx)
      : Kernel(ctx), fields_(LineFieldsOf(ctx)) {
    OP_REQUIRES_OK(ctx, slots_.Init(ctx, FieldColumns(fields_)));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("drop_zeros", &drop_zeros_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::string name;
    LODESTAR_TRY(ReadName(ctx->input(0), "memory", &name));
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
    if (Registry<RecordMemoryResource>::Global().Add(
            name, std::make_shared<RecordMemoryResource>(
                      std::move(options), std::move(format),
                      fields_.ins_id ? 0 : -1))) {
      return absl::OkStatus();
    }
    return InvalidArgumentError("`memory` '", name, "' is already in use.");
  }

 private:
  const LineFields fields_;
  SlotAttributes slots_;
  bool drop_zeros_;
};

absl::Status RunRecordMemoryForget(OpKernelContext* ctx) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx->input(0), "memory", &name));
  Registry<RecordMemoryResource>::Global().Release(name);
  return absl::OkStatus();
}

absl::Status FindMemory(OpKernelContext* ctx,
                        std::shared_ptr<RecordMemoryResource>* resource) {
  std::string name;
  LODESTAR_TRY(ReadName(ctx->input(0), "memory", &name));
  return RecordMemoryResource::Find(name, resource);
}

// Calls `run` with the samples of input 0.
template <absl::Status (*run)(OpKernelContext*, RecordMemoryResource*)>
absl::Status WithMemory(OpKernelContext* ctx) {
  std::shared_ptr<RecordMemoryResource> resource;
  LODESTAR_TRY(FindMemory(ctx, &resource));
  return run(ctx, resource.get());
}

class RecordMemoryLoadOp : public Kernel {
 public:
  explicit RecordMemoryLoadOp(OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("open_command", &options_.open_command));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("pipe_command", &options_.pipe_command));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("preload", &preload_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_errors", &skip_errors_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_log", &skip_log_));
  }

  absl::Status Run(OpKernelContext* ctx) override {
    std::shared_ptr<RecordMemoryResource> resource;
    LODESTAR_TRY(FindMemory(ctx, &resource));
    RecordSource::Options options = options_;
    LODESTAR_TRY(ReadPaths(ctx->input(1), &options.files));
    LODESTAR_TRY(ReadScalar(ctx->input(2), "num_parallel_files",
                            &options.num_threads, 1, 1024));
    LODESTAR_TRY(
        ReadScalar(ctx->input(3), "num_shards", &options.num_shards, 1));
    LODESTAR_TRY(ReadScalar(ctx->input(4), "shard_index", &options.shard_index,
                            0, options.num_shards - 1));
    if (skip_errors_) options.skip_log = SkipLog::Named(skip_log_);
    return preload_ ? resource->StartPreload(std::move(options))
                    : resource->Load(ctx, std::move(options));
  }

 private:
  RecordSource::Options options_;
  bool preload_;
  bool skip_errors_;
  std::string skip_log_;
};

absl::Status RunRecordMemoryWaitPreload(OpKernelContext* ctx,
                                        RecordMemoryResource* resource) {
  return resource->WaitPreload(ctx);
}

absl::Status RunRecordMemoryRelease(OpKernelContext* ctx,
                                    RecordMemoryResource* resource) {
  resource->memory()->Release();
  return absl::OkStatus();
}

absl::Status RunRecordMemorySize(OpKernelContext* ctx,
                                 RecordMemoryResource* resource) {
  const auto samples = resource->memory()->Current();
  LODESTAR_TRY(OutputScalar(ctx, 0, samples->num_samples()));
  return OutputScalar(ctx, 1, samples->Bytes());
}

absl::Status RunRecordMemoryGlobalShuffle(OpKernelContext* ctx,
                                          RecordMemoryResource* resource) {
  int64_t seed = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(1), "seed", &seed));
  resource->memory()->GlobalShuffle(static_cast<uint64_t>(seed));
  return absl::OkStatus();
}

absl::Status RunRecordMemorySlotsShuffle(OpKernelContext* ctx,
                                         RecordMemoryResource* resource) {
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
  LODESTAR_TRY(ReadScalar(ctx->input(2), "seed", &seed));
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
    LODESTAR_TRY(ReadScalar(ctx->input(1), "min_size", &min_size, 2));
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

absl::Status RunRecordMemoryEncode(OpKernelContext* ctx,
                                   RecordMemoryResource* resource) {
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

absl::Status RunRecordMemoryReceive(OpKernelContext* ctx,
                                    RecordMemoryResource* resource) {
  LODESTAR_TRY(CheckRank(ctx->input(1), "pieces", 1));
  return resource->Receive(FlatSpan<tstring>(ctx->input(1)));
}

absl::Status RunRecordMemoryArrange(OpKernelContext* ctx,
                                    RecordMemoryResource* resource) {
  LODESTAR_TRY(CheckRank(ctx->input(1), "order", 1));
  return resource->Arrange(FlatSpan<int64_t>(ctx->input(1)));
}

absl::Status RunRecordMemoryCommit(OpKernelContext* ctx,
                                   RecordMemoryResource* resource) {
  return resource->Commit();
}

absl::Status RunRecordMemoryDiscard(OpKernelContext* ctx,
                                    RecordMemoryResource* resource) {
  resource->Discard();
  return absl::OkStatus();
}

absl::Status RunShuffledNumbers(OpKernelContext* ctx) {
  int64_t count = 0, seed = 0, begin = 0, end = 0;
  LODESTAR_TRY(ReadScalar(ctx->input(0), "count", &count, 0, kMaxShuffled));
  LODESTAR_TRY(ReadScalar(ctx->input(1), "seed", &seed));
  LODESTAR_TRY(ReadScalar(ctx->input(2), "begin", &begin, 0, count));
  LODESTAR_TRY(ReadScalar(ctx->input(3), "end", &end, begin, count));
  Tensor* numbers = nullptr;
  LODESTAR_TRY(AllocateOutput(ctx, 0, {end - begin}, &numbers));
  const Permutation permutation(count, static_cast<uint64_t>(seed));
  for (int64_t i = begin; i < end; ++i) {
    numbers->flat<int64_t>()(i - begin) = permutation(i);
  }
  return absl::OkStatus();
}

#define LODESTAR_REGISTER_MEMORY(name)                          \
  REGISTER_KERNEL_BUILDER(                                      \
      Name("Lodestar>" #name).Device(::tensorflow::DEVICE_CPU), \
      FunctionKernel<WithMemory<Run##name>>)

LODESTAR_REGISTER(RecordMemoryCreate);
LODESTAR_REGISTER_FUNCTION(RecordMemoryForget);
LODESTAR_REGISTER(RecordMemoryLoad);
LODESTAR_REGISTER_MEMORY(RecordMemoryWaitPreload);
LODESTAR_REGISTER_MEMORY(RecordMemoryRelease);
LODESTAR_REGISTER_MEMORY(RecordMemorySize);
LODESTAR_REGISTER_MEMORY(RecordMemoryGlobalShuffle);
LODESTAR_REGISTER_MEMORY(RecordMemorySlotsShuffle);
LODESTAR_REGISTER(RecordMemoryMergeByInsId);
LODESTAR_REGISTER_MEMORY(RecordMemoryEncode);
LODESTAR_REGISTER_MEMORY(RecordMemoryReceive);
LODESTAR_REGISTER_MEMORY(RecordMemoryArrange);
LODESTAR_REGISTER_MEMORY(RecordMemoryCommit);
LODESTAR_REGISTER_MEMORY(RecordMemoryDiscard);
LODESTAR_REGISTER_FUNCTION(ShuffledNumbers);

}  // namespace
}  // namespace lodestar
