// Lodestar>MultiSlotDataset. Contract: ops/multislot_ops.cc. Parsing:
// core/multislot_parser.h. Threads: multislot_source.h.

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/platform/errors.h"
#include "tf_ops/core/multislot_parser.h"
#include "tf_ops/core/slot_rows.h"
#include "tf_ops/kernels/multislot_source.h"

namespace lodestar {
namespace {

using tensorflow::DataTypeVector;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;
using tensorflow::data::DatasetBase;
using tensorflow::data::DatasetContext;
using tensorflow::data::DatasetIterator;
using tensorflow::data::DatasetOpKernel;
using tensorflow::data::IteratorBase;
using tensorflow::data::IteratorContext;
using tensorflow::data::IteratorStateReader;
using tensorflow::data::IteratorStateWriter;
using tensorflow::data::SerializationContext;
namespace errors = tensorflow::errors;

constexpr char kFile[] = "file";
constexpr char kLine[] = "line";
constexpr char kEnded[] = "ended";

// The op's attributes; the graph that the dataset serializes to repeats them.
struct Attributes {
  std::vector<std::string> slot_names;
  DataTypeVector slot_types;
  std::vector<PartialTensorShape> slot_shapes;
  std::vector<int64_t> slot_limits;
  bool drop_remainder = false;
  bool deterministic = true;
  DataTypeVector output_types;
  std::vector<PartialTensorShape> output_shapes;
};

// The op's inputs.
struct Arguments {
  std::vector<std::string> filenames;
  int64_t batch_size = 0;
  int64_t num_parallel_files = 0;
  int64_t shuffle_rows = 0;
  int64_t seed = 0;
};

bool IsSparse(const PartialTensorShape& shape) { return shape.unknown_rank(); }

template <typename T>
Tensor ToTensor(tensorflow::DataType dtype, const TensorShape& shape,
                const std::vector<T>& values) {
  Tensor tensor(dtype, shape);
  if (!values.empty()) {
    std::memcpy(tensor.flat<T>().data(), values.data(),
                values.size() * sizeof(T));
  }
  return tensor;
}

class MultiSlotDataset : public DatasetBase {
 public:
  MultiSlotDataset(OpKernelContext* ctx, Attributes attributes,
                   Arguments arguments, std::vector<ColumnSpec> specs)
      : DatasetBase(DatasetContext(ctx)),
        attributes_(std::move(attributes)),
        arguments_(std::move(arguments)),
        parser_(std::move(specs)) {}

  std::unique_ptr<IteratorBase> MakeIteratorInternal(
      const std::string& prefix) const override {
    return std::make_unique<Iterator>(
        Iterator::Params{this, prefix + "::LodestarMultiSlot"});
  }
  const DataTypeVector& output_dtypes() const override {
    return attributes_.output_types;
  }
  const std::vector<PartialTensorShape>& output_shapes() const override {
    return attributes_.output_shapes;
  }
  std::string DebugString() const override {
    return "Lodestar>MultiSlotDataset";
  }
  absl::Status InputDatasets(
      std::vector<const DatasetBase*>* inputs) const override {
    inputs->clear();
    return absl::OkStatus();
  }
  absl::Status CheckExternalState() const override { return absl::OkStatus(); }

 protected:
  absl::Status AsGraphDefInternal(SerializationContext* ctx,
                                  DatasetGraphDefBuilder* b,
                                  tensorflow::Node** output) const override {
    tensorflow::Node* files = nullptr;
    const std::vector<tstring> names(arguments_.filenames.begin(),
                                     arguments_.filenames.end());
    TF_RETURN_IF_ERROR(b->AddVector(names, &files));
    std::vector<tensorflow::Node*> inputs = {files};
    for (const int64_t scalar :
         {arguments_.batch_size, arguments_.num_parallel_files,
          arguments_.shuffle_rows, arguments_.seed}) {
      inputs.push_back(nullptr);
      TF_RETURN_IF_ERROR(b->AddScalar(scalar, &inputs.back()));
    }
    std::vector<std::pair<absl::string_view, tensorflow::AttrValue>> attrs;
    const auto add = [&](const char* name, const auto& value) {
      attrs.emplace_back(name, tensorflow::AttrValue());
      b->BuildAttrValue(value, &attrs.back().second);
    };
    add("slot_names", attributes_.slot_names);
    add("slot_types", attributes_.slot_types);
    add("slot_shapes", attributes_.slot_shapes);
    add("slot_limits", attributes_.slot_limits);
    add("drop_remainder", attributes_.drop_remainder);
    add("deterministic", attributes_.deterministic);
    std::vector<std::pair<size_t, tensorflow::Node*>> numbered;
    for (size_t i = 0; i < inputs.size(); ++i) {
      numbered.emplace_back(i, inputs[i]);
    }
    return b->AddDataset(this, numbered, {}, attrs, output);
  }

 private:
  class Iterator : public DatasetIterator<MultiSlotDataset> {
   public:
    explicit Iterator(const Params& params)
        : DatasetIterator<MultiSlotDataset>(params),
          shuffler_(params.dataset->arguments_.shuffle_rows,
                    static_cast<uint64_t>(params.dataset->arguments_.seed)) {}

    ~Iterator() override {
      if (deregister_) deregister_();
    }

    absl::Status Initialize(IteratorContext* ctx) override {
      return tensorflow::RegisterCancellationCallback(
          ctx->cancellation_manager(),
          [this] {
            std::lock_guard<std::mutex> lock(cancel_mutex_);
            cancelled_ = true;
            if (source_ != nullptr) source_->Cancel();
          },
          &deregister_);
    }

   protected:
    absl::Status GetNextInternal(IteratorContext* ctx,
                                 std::vector<Tensor>* out_tensors,
                                 bool* end_of_sequence) override {
      std::lock_guard<std::mutex> lock(mutex_);
      const int64_t batch_size = dataset()->arguments_.batch_size;
      SlotRows batch(dataset()->parser_.specs());
      if (!ended_) {
        if (source_ == nullptr) TF_RETURN_IF_ERROR(Start(ctx));
        const absl::Status status = dataset()->arguments_.shuffle_rows > 0
                                        ? FillShuffled(batch_size, &batch)
                                        : FillInOrder(batch_size, &batch);
        if (!status.ok()) {
          // What follows a bad line is unknown, so nothing follows the error.
          ended_ = true;
          return status;
        }
      }
      const bool enough = dataset()->attributes_.drop_remainder
                              ? batch.num_rows() == batch_size
                              : batch.num_rows() > 0;
      *end_of_sequence = !enough;
      if (enough) {
        AppendTensors(batch, out_tensors);
      } else {
        ended_ = true;
      }
      return absl::OkStatus();
    }

    absl::Status SaveInternal(SerializationContext* ctx,
                              IteratorStateWriter* writer) override {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!dataset()->attributes_.deterministic ||
          dataset()->arguments_.shuffle_rows > 0) {
        return errors::Unimplemented(
            "An iterator over MultiSlot files can be saved only with "
            "deterministic=True and shuffle_rows=0: in a free order there is "
            "no line at which to go on");
      }
      TF_RETURN_IF_ERROR(writer->WriteScalar(prefix(), kFile, next_file_));
      TF_RETURN_IF_ERROR(writer->WriteScalar(prefix(), kLine, next_line_));
      return writer->WriteScalar(prefix(), kEnded, int64_t{ended_});
    }

    absl::Status RestoreInternal(IteratorContext* ctx,
                                 IteratorStateReader* reader) override {
      std::lock_guard<std::mutex> lock(mutex_);
      int64_t ended = 0;
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), kFile, &next_file_));
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), kLine, &next_line_));
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), kEnded, &ended));
      ended_ = ended != 0;
      if (next_file_ < 0 || next_line_ < 0 ||
          next_file_ >
              static_cast<int64_t>(dataset()->arguments_.filenames.size())) {
        return errors::InvalidArgument(
            "The saved position, file ", next_file_, " line ", next_line_,
            ", is not one of this dataset's ",
            dataset()->arguments_.filenames.size(), " files");
      }
      return absl::OkStatus();
    }

    std::shared_ptr<tensorflow::data::model::Node> CreateNode(
        IteratorContext* ctx,
        tensorflow::data::model::Node::Args args) const override {
      return tensorflow::data::model::MakeSourceNode(std::move(args));
    }

   private:
    absl::Status Start(IteratorContext* ctx) {
      MultiSlotSource::Options options;
      options.files = dataset()->arguments_.filenames;
      options.num_threads = dataset()->arguments_.num_parallel_files;
      options.ordered = dataset()->attributes_.deterministic;
      options.first_file = next_file_;
      options.first_line = next_line_;
      std::lock_guard<std::mutex> lock(cancel_mutex_);
      if (cancelled_) return errors::Cancelled("the iterator was cancelled");
      source_ = std::make_unique<MultiSlotSource>(
          &dataset()->parser_, std::move(options),
          [ctx](const std::string& name, std::function<void()> body) {
            return ctx->StartThread(name, std::move(body));
          });
      return absl::OkStatus();
    }

    // Makes block_ the next one; *has_block is false at the end.
    absl::Status NextBlock(bool* has_block) {
      if (block_ != nullptr) TF_RETURN_IF_ERROR(block_->status);
      TF_RETURN_IF_ERROR(source_->Next(&block_));
      block_row_ = 0;
      *has_block = block_ != nullptr;
      return absl::OkStatus();
    }

    absl::Status FillInOrder(int64_t batch_size, SlotRows* batch) {
      while (batch->num_rows() < batch_size) {
        if (block_ == nullptr || block_row_ == block_->rows.num_rows()) {
          bool has_block = false;
          TF_RETURN_IF_ERROR(NextBlock(&has_block));
          if (!has_block) break;
          continue;
        }
        const int64_t count = std::min(batch_size - batch->num_rows(),
                                       block_->rows.num_rows() - block_row_);
        batch->Append(block_->rows, block_row_, count);
        block_row_ += count;
        next_file_ = block_->file;
        next_line_ = block_->first_line + block_row_;
      }
      return absl::OkStatus();
    }

    absl::Status FillShuffled(int64_t batch_size, SlotRows* batch) {
      while (batch->num_rows() < batch_size) {
        bool has_block = !source_ended_;
        while (has_block && shuffler_.WantsMore()) {
          TF_RETURN_IF_ERROR(NextBlock(&has_block));
          if (has_block) shuffler_.Add(std::move(block_->rows));
        }
        source_ended_ = !has_block;
        if (shuffler_.Size() == 0) break;
        shuffler_.Draw(batch);
      }
      return absl::OkStatus();
    }

    void AppendTensors(const SlotRows& batch,
                       std::vector<Tensor>* out_tensors) const {
      const auto& shapes = dataset()->attributes_.slot_shapes;
      const auto& types = dataset()->attributes_.slot_types;
      for (size_t c = 0; c < shapes.size(); ++c) {
        const SlotColumn& column = batch.columns()[c];
        const bool is_float = types[c] == tensorflow::DT_FLOAT;
        TensorShape shape;
        if (IsSparse(shapes[c])) {
          shape.AddDim(is_float ? column.floats.size() : column.ints.size());
        } else {
          shape.AddDim(batch.num_rows());
          for (int d = 0; d < shapes[c].dims(); ++d) {
            shape.AddDim(shapes[c].dim_size(d));
          }
        }
        out_tensors->push_back(is_float
                                   ? ToTensor(types[c], shape, column.floats)
                                   : ToTensor(types[c], shape, column.ints));
        if (IsSparse(shapes[c])) {
          out_tensors->push_back(ToTensor(tensorflow::DT_INT64,
                                          TensorShape({batch.num_rows() + 1}),
                                          column.row_splits));
        }
      }
    }

    std::mutex mutex_;  // guards what follows but for the last three
    SlotShuffler shuffler_;
    std::unique_ptr<MultiSlotBlock> block_;
    int64_t block_row_ = 0;  // the first row of block_ not yet taken
    // Where the next sample in order is; the place to go on from.
    int64_t next_file_ = 0;
    int64_t next_line_ = 0;
    bool source_ended_ = false;
    bool ended_ = false;

    std::mutex cancel_mutex_;  // guards setting source_ against cancelling
    bool cancelled_ = false;
    std::function<void()> deregister_;
    std::unique_ptr<MultiSlotSource> source_;
  };

  const Attributes attributes_;
  const Arguments arguments_;
  const MultiSlotParser parser_;
};

class MultiSlotDatasetOp : public DatasetOpKernel {
 public:
  explicit MultiSlotDatasetOp(OpKernelConstruction* ctx)
      : DatasetOpKernel(ctx) {
    Attributes& a = attributes_;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_names", &a.slot_names));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_types", &a.slot_types));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_shapes", &a.slot_shapes));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_limits", &a.slot_limits));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("drop_remainder", &a.drop_remainder));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("deterministic", &a.deterministic));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("output_types", &a.output_types));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("output_shapes", &a.output_shapes));
    OP_REQUIRES(ctx,
                a.slot_types.size() == a.slot_names.size() &&
                    a.slot_shapes.size() == a.slot_names.size() &&
                    a.slot_limits.size() == a.slot_names.size(),
                errors::InvalidArgument(
                    "`slot_names`, `slot_types`, `slot_shapes` and "
                    "`slot_limits` must have one length, found ",
                    a.slot_names.size(), ", ", a.slot_types.size(), ", ",
                    a.slot_shapes.size(), " and ", a.slot_limits.size()));
    DataTypeVector types;
    for (size_t i = 0; i < a.slot_names.size(); ++i) {
      const bool sparse = IsSparse(a.slot_shapes[i]);
      OP_REQUIRES(
          ctx, sparse || a.slot_shapes[i].IsFullyDefined(),
          errors::InvalidArgument("`slot_shapes` of slot '", a.slot_names[i],
                                  "' must be known or of unknown rank, found ",
                                  a.slot_shapes[i].DebugString()));
      specs_.push_back(
          {a.slot_names[i], a.slot_types[i] == tensorflow::DT_FLOAT,
           sparse ? -1 : a.slot_shapes[i].num_elements(), a.slot_limits[i]});
      types.push_back(a.slot_types[i]);
      if (sparse) types.push_back(tensorflow::DT_INT64);
    }
    OP_REQUIRES(
        ctx, types == a.output_types && types.size() == a.output_shapes.size(),
        errors::InvalidArgument(
            "`output_types` must be ", tensorflow::DataTypeVectorString(types),
            ", found ", tensorflow::DataTypeVectorString(a.output_types)));
  }

 protected:
  void MakeDataset(OpKernelContext* ctx, DatasetBase** output) override {
    const Tensor& filenames = ctx->input(0);
    OP_REQUIRES(ctx, filenames.dims() == 1,
                errors::InvalidArgument("`filenames` must have rank 1, found ",
                                        filenames.shape().DebugString()));
    Arguments arguments;
    for (int64_t i = 0; i < filenames.NumElements(); ++i) {
      arguments.filenames.emplace_back(filenames.vec<tstring>()(i));
    }
    struct Scalar {
      int input;
      const char* name;
      int64_t lowest;
      int64_t highest;
      int64_t* value;
    };
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    const Scalar scalars[] = {
        {1, "batch_size", 1, kMax, &arguments.batch_size},
        {2, "num_parallel_files", 1, 1024, &arguments.num_parallel_files},
        {3, "shuffle_rows", 0, int64_t{1} << 31, &arguments.shuffle_rows},
        {4, "seed", std::numeric_limits<int64_t>::min(), kMax, &arguments.seed},
    };
    for (const Scalar& scalar : scalars) {
      const Tensor& tensor = ctx->input(scalar.input);
      OP_REQUIRES(ctx, tensor.dims() == 0,
                  errors::InvalidArgument("`", scalar.name,
                                          "` must be a scalar, found shape ",
                                          tensor.shape().DebugString()));
      *scalar.value = tensor.scalar<int64_t>()();
      OP_REQUIRES(
          ctx,
          *scalar.value >= scalar.lowest && *scalar.value <= scalar.highest,
          errors::InvalidArgument("`", scalar.name, "` must be from ",
                                  scalar.lowest, " to ", scalar.highest,
                                  ", found ", *scalar.value));
    }
    *output =
        new MultiSlotDataset(ctx, attributes_, std::move(arguments), specs_);
  }

 private:
  Attributes attributes_;
  std::vector<ColumnSpec> specs_;
};

REGISTER_KERNEL_BUILDER(
    Name("Lodestar>MultiSlotDataset").Device(tensorflow::DEVICE_CPU),
    MultiSlotDatasetOp);

}  // namespace
}  // namespace lodestar
