#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/platform/errors.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/base/permutation.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/record_memory_resource.h"
#include "tf_ops/kernels/records/slot_attributes.h"
#include "tf_ops/kernels/records/source_dataset.h"

namespace lodestar {
namespace {

constexpr char kNext[] = "next";
constexpr char kFingerprint[] = "fingerprint";

struct Attributes {
  SlotAttributes slots;
  bool drop_remainder = false;
  bool shuffle = false;
  std::vector<std::pair<std::string, tensorflow::AttrValue>> all;
};

// The op's inputs, in this order.
struct Arguments {
  std::string memory;
  int64_t batch_size = 1;
  int64_t num_queues = 1;
  int64_t queue = 0;
  int64_t seed = 0;
};

class RecordMemoryDataset : public SourceDataset {
 public:
  RecordMemoryDataset(OpKernelContext* ctx, Attributes attributes,
                      Arguments arguments,
                      std::shared_ptr<RecordMemoryResource> resource)
      : SourceDataset(ctx, attributes.slots.output_types(),
                      attributes.slots.output_shapes(), attributes.all,
                      {arguments.batch_size, arguments.num_queues,
                       arguments.queue, arguments.seed}),
        attributes_(std::move(attributes)),
        arguments_(std::move(arguments)),
        resource_(std::move(resource)) {}

  std::unique_ptr<IteratorBase> MakeIteratorInternal(
      const std::string& prefix) const override {
    return std::make_unique<Iterator>(
        Iterator::Params{this, prefix + "::LodestarRecordMemory"});
  }

 protected:
  absl::Status AddFirstInput(DatasetGraphDefBuilder* builder,
                             tensorflow::Node** node) const override {
    return builder->AddScalar(tstring(arguments_.memory), node);
  }

 private:
  // Reads the samples as of the iterator's creation, regardless of later
  // changes.
  class Iterator : public SourceIterator<RecordMemoryDataset> {
   public:
    using SourceIterator<RecordMemoryDataset>::SourceIterator;

    absl::Status Initialize(IteratorContext* ctx) override {
      samples_ = dataset()->resource_->memory()->Current();
      const Arguments& arguments = dataset()->arguments_;
      count_ = (samples_->num_samples() - arguments.queue +
                arguments.num_queues - 1) /
               arguments.num_queues;
      order_.emplace(count_, static_cast<uint64_t>(arguments.seed));
      return absl::OkStatus();
    }

   protected:
    absl::Status Next(IteratorContext* ctx, std::vector<Tensor>* out_tensors,
                      bool* end_of_sequence) override
        LODESTAR_REQUIRES(mutex_) {
      const Arguments& arguments = dataset()->arguments_;
      const Attributes& attributes = dataset()->attributes_;
      const int64_t end =
          next_ + std::min(arguments.batch_size, count_ - next_);
      std::vector<int64_t> numbers;
      for (int64_t i = next_; i < end; ++i) {
        numbers.push_back(arguments.queue +
                          arguments.num_queues *
                              (attributes.shuffle ? (*order_)(i) : i));
      }
      *end_of_sequence =
          numbers.empty() ||
          (attributes.drop_remainder &&
           static_cast<int64_t>(numbers.size()) < arguments.batch_size);
      if (*end_of_sequence) return absl::OkStatus();
      next_ = end;
      SlotBatch batch;
      samples_->Gather(numbers, &batch);
      LODESTAR_TRY(attributes.slots.CheckInferred(batch));
      attributes.slots.AppendTensors(batch, out_tensors);
      return absl::OkStatus();
    }

    absl::Status SaveInternal(SerializationContext* ctx,
                              IteratorStateWriter* writer) override {
      MutexLock lock(&mutex_);
      LODESTAR_TRY(
          writer->WriteScalar(prefix(), kNext, ended_ ? count_ : next_));
      return writer->WriteScalar(prefix(), kFingerprint,
                                 static_cast<int64_t>(samples_->fingerprint()));
    }

    absl::Status RestoreInternal(IteratorContext* ctx,
                                 IteratorStateReader* reader) override {
      MutexLock lock(&mutex_);
      int64_t next = 0;
      int64_t fingerprint = 0;
      LODESTAR_TRY(reader->ReadScalar(prefix(), kNext, &next));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kFingerprint, &fingerprint));
      if (static_cast<uint64_t>(fingerprint) != samples_->fingerprint()) {
        return ToTensorFlow(FailedPrecondition(
            "The samples in memory differ from those when this iterator was "
            "saved. Load, shuffle and merge as before, with the same seeds"));
      }
      if (next < 0 || next > count_) {
        return InvalidArgumentError("The saved position, sample ", next,
                                    ", is out of range for ", count_,
                                    " samples");
      }
      next_ = next;
      return absl::OkStatus();
    }

   private:
    std::shared_ptr<const RecordMemory::Contents> samples_;
    int64_t count_ = 0;  // of this queue
    std::optional<Permutation> order_;

    int64_t next_ LODESTAR_GUARDED_BY(mutex_) = 0;
  };

  const Attributes attributes_;
  const Arguments arguments_;
  const std::shared_ptr<RecordMemoryResource> resource_;
};

class RecordMemoryDatasetOp : public tensorflow::data::DatasetOpKernel {
 public:
  explicit RecordMemoryDatasetOp(OpKernelConstruction* ctx)
      : DatasetOpKernel(ctx) {
    Attributes& a = attributes_;
    OP_REQUIRES_OK(ctx, a.slots.Init(ctx, FieldColumns(LineFieldsOf(ctx))));
    OP_REQUIRES_OK(ctx, a.slots.InitOutputs(ctx));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("drop_remainder", &a.drop_remainder));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shuffle", &a.shuffle));
    a.all = GraphAttributes(ctx);
  }

 protected:
  void MakeDataset(OpKernelContext* ctx, DatasetBase** output) override {
    Arguments arguments;
    OP_REQUIRES_OK(ctx, ReadName(ctx->input(0), "memory", &arguments.memory));
    OP_REQUIRES_OK(
        ctx, ReadScalar(ctx->input(1), "batch_size", &arguments.batch_size, 1));
    OP_REQUIRES_OK(ctx, ReadScalar(ctx->input(2), "num_queues",
                                   &arguments.num_queues, 1, 1 << 20));
    OP_REQUIRES_OK(ctx, ReadScalar(ctx->input(3), "queue", &arguments.queue, 0,
                                   arguments.num_queues - 1));
    OP_REQUIRES_OK(ctx, ReadScalar(ctx->input(4), "seed", &arguments.seed));
    std::shared_ptr<RecordMemoryResource> resource;
    OP_REQUIRES_OK(ctx,
                   RecordMemoryResource::Find(arguments.memory, &resource));
    OP_REQUIRES_OK(ctx,
                   attributes_.slots.CheckOutputShapes(
                       attributes_.drop_remainder ? arguments.batch_size : -1));
    OP_REQUIRES(ctx, IsSame(resource->memory()->options().specs),
                InvalidArgumentError("The dataset's slots differ from those of "
                                     "the samples in memory."));
    *output = new RecordMemoryDataset(ctx, attributes_, std::move(arguments),
                                      std::move(resource));
  }

 private:
  bool IsSame(const std::vector<ColumnSpec>& specs) const {
    const std::vector<ColumnSpec>& own = attributes_.slots.specs();
    return std::equal(own.begin(), own.end(), specs.begin(), specs.end(),
                      [](const ColumnSpec& a, const ColumnSpec& b) {
                        return a.name == b.name && a.is_float == b.is_float &&
                               a.is_text == b.is_text && a.size == b.size &&
                               a.used == b.used && a.multiple == b.multiple;
                      });
  }

  Attributes attributes_;
};

LODESTAR_REGISTER(RecordMemoryDataset);

}  // namespace
}  // namespace lodestar
