#include "tf_ops/kernels/record_dataset.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/overflow.h"
#include "tf_ops/core/slot_rows.h"
#include "tf_ops/kernels/record_source.h"
#include "tf_ops/kernels/skip_log.h"
#include "tf_ops/kernels/status_util.h"

namespace lodestar {
namespace {

using tensorflow::DataTypeVector;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;
using tensorflow::data::DatasetBase;
using tensorflow::data::DatasetContext;
using tensorflow::data::DatasetIterator;
using tensorflow::data::IteratorBase;
using tensorflow::data::IteratorContext;
using tensorflow::data::IteratorStateReader;
using tensorflow::data::IteratorStateWriter;
using tensorflow::data::SerializationContext;
namespace errors = tensorflow::errors;

constexpr char kFile[] = "file";
constexpr char kRecord[] = "record";
constexpr char kEnded[] = "ended";
constexpr char kSourceEnded[] = "source_ended";
constexpr char kShuffleState[] = "shuffle_state";
constexpr char kWindowRows[] = "window_rows";
constexpr char kWindow[] = "window";

// The op's inputs, in this order.
struct Arguments {
  std::vector<std::string> filenames;
  int64_t batch_size = 0;
  int64_t num_parallel_files = 0;
  int64_t shuffle_rows = 0;
  int64_t seed = 0;
  int64_t num_shards = 1;
  int64_t shard_index = 0;
};

bool IsSparse(const PartialTensorShape& shape) { return shape.unknown_rank(); }

// Whether every sample of a batch has as many values, but not of two batches.
bool IsInferred(const PartialTensorShape& shape) {
  return !shape.unknown_rank() && !shape.IsFullyDefined();
}

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

template <typename T>
Tensor ToVector(tensorflow::DataType dtype, const std::vector<T>& values) {
  return ToTensor(dtype, TensorShape({static_cast<int64_t>(values.size())}),
                  values);
}

class RecordDataset : public DatasetBase {
 public:
  using Attributes = RecordDatasetOp::Attributes;

  RecordDataset(OpKernelContext* ctx, Attributes attributes,
                Arguments arguments, std::unique_ptr<RecordFormat> format)
      : DatasetBase(DatasetContext(ctx)),
        attributes_(std::move(attributes)),
        arguments_(std::move(arguments)),
        format_(std::move(format)) {}

  std::unique_ptr<IteratorBase> MakeIteratorInternal(
      const std::string& prefix) const override {
    return std::make_unique<Iterator>(
        Iterator::Params{this, prefix + "::LodestarRecords"});
  }
  const DataTypeVector& output_dtypes() const override {
    return attributes_.output_types;
  }
  const std::vector<PartialTensorShape>& output_shapes() const override {
    return attributes_.output_shapes;
  }
  std::string DebugString() const override { return type_string(); }
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
          arguments_.shuffle_rows, arguments_.seed, arguments_.num_shards,
          arguments_.shard_index}) {
      inputs.push_back(nullptr);
      TF_RETURN_IF_ERROR(b->AddScalar(scalar, &inputs.back()));
    }
    const std::vector<std::pair<absl::string_view, tensorflow::AttrValue>>
        attrs(attributes_.all.begin(), attributes_.all.end());
    std::vector<std::pair<size_t, tensorflow::Node*>> numbered;
    for (size_t i = 0; i < inputs.size(); ++i) {
      numbered.emplace_back(i, inputs[i]);
    }
    return b->AddDataset(this, numbered, {}, attrs, output);
  }

 private:
  class Iterator : public DatasetIterator<RecordDataset> {
   public:
    explicit Iterator(const Params& params)
        : DatasetIterator<RecordDataset>(params),
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
      SlotRows batch(dataset()->format_->specs());
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
      const absl::Status inferred = CheckInferred(batch);
      if (!inferred.ok()) {
        ended_ = true;
        return inferred;
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
      if (!dataset()->attributes_.deterministic) {
        return errors::Unimplemented(
            "An iterator over files of records can be saved only with "
            "deterministic=True: in a free order there is no record at which "
            "to go on");
      }
      TF_RETURN_IF_ERROR(writer->WriteScalar(prefix(), kFile, next_file_));
      TF_RETURN_IF_ERROR(writer->WriteScalar(prefix(), kRecord, next_record_));
      TF_RETURN_IF_ERROR(
          writer->WriteScalar(prefix(), kEnded, int64_t{ended_}));
      return IsShuffled() ? SaveWindow(writer) : absl::OkStatus();
    }

    absl::Status RestoreInternal(IteratorContext* ctx,
                                 IteratorStateReader* reader) override {
      std::lock_guard<std::mutex> lock(mutex_);
      int64_t ended = 0;
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), kFile, &next_file_));
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), kRecord, &next_record_));
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), kEnded, &ended));
      ended_ = ended != 0;
      if (next_file_ < 0 || next_record_ < 0 ||
          next_file_ >
              static_cast<int64_t>(dataset()->arguments_.filenames.size())) {
        return errors::InvalidArgument(
            "The saved position, file ", next_file_, " record ", next_record_,
            ", is not one of this dataset's ",
            dataset()->arguments_.filenames.size(), " files");
      }
      return IsShuffled() ? RestoreWindow(reader) : absl::OkStatus();
    }

    std::shared_ptr<tensorflow::data::model::Node> CreateNode(
        IteratorContext* ctx,
        tensorflow::data::model::Node::Args args) const override {
      return tensorflow::data::model::MakeSourceNode(std::move(args));
    }

   private:
    bool IsShuffled() const { return dataset()->arguments_.shuffle_rows > 0; }

    // The samples that wait to be drawn, in the order that draws depend on.
    absl::Status SaveWindow(IteratorStateWriter* writer) {
      const SlotRows window = shuffler_.Window(dataset()->format_->specs());
      TF_RETURN_IF_ERROR(
          writer->WriteScalar(prefix(), kSourceEnded, int64_t{source_ended_}));
      TF_RETURN_IF_ERROR(writer->WriteScalar(
          prefix(), kShuffleState, static_cast<int64_t>(shuffler_.state())));
      TF_RETURN_IF_ERROR(
          writer->WriteScalar(prefix(), kWindowRows, window.num_rows()));
      for (size_t c = 0; c < window.columns().size(); ++c) {
        const SlotColumn& column = window.columns()[c];
        const Tensor parts[] = {
            ToVector(tensorflow::DT_INT64, column.ints),
            ToVector(tensorflow::DT_FLOAT, column.floats),
            ToVector(tensorflow::DT_INT64, column.row_splits)};
        for (int part = 0; part < 3; ++part) {
          TF_RETURN_IF_ERROR(
              writer->WriteTensor(prefix(), WindowKey(c, part), parts[part]));
        }
      }
      return absl::OkStatus();
    }

    absl::Status RestoreWindow(IteratorStateReader* reader) {
      int64_t source_ended = 0;
      int64_t state = 0;
      int64_t num_rows = 0;
      TF_RETURN_IF_ERROR(
          reader->ReadScalar(prefix(), kSourceEnded, &source_ended));
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), kShuffleState, &state));
      TF_RETURN_IF_ERROR(reader->ReadScalar(prefix(), kWindowRows, &num_rows));
      source_ended_ = source_ended != 0;
      const std::vector<ColumnSpec>& specs = dataset()->format_->specs();
      SlotRows window(specs);
      for (size_t c = 0; c < specs.size(); ++c) {
        Tensor parts[3];
        for (int part = 0; part < 3; ++part) {
          TF_RETURN_IF_ERROR(
              reader->ReadTensor(prefix(), WindowKey(c, part), &parts[part]));
          const bool is_float = part == 1;
          if (parts[part].dims() != 1 ||
              parts[part].dtype() !=
                  (is_float ? tensorflow::DT_FLOAT : tensorflow::DT_INT64)) {
            return BadWindow(specs[c].name);
          }
        }
        SlotColumn* column = window.mutable_column(c);
        const auto ints = parts[0].vec<int64_t>();
        const auto floats = parts[1].vec<float>();
        const auto splits = parts[2].vec<int64_t>();
        column->ints.assign(ints.data(), ints.data() + ints.size());
        column->floats.assign(floats.data(), floats.data() + floats.size());
        column->row_splits.assign(splits.data(), splits.data() + splits.size());
      }
      window.AddRows(num_rows);
      const int64_t bad = window.FindUnfit(specs);
      if (num_rows < 0 || bad >= 0) {
        return BadWindow(specs[std::max<int64_t>(bad, 0)].name);
      }
      shuffler_.Restore(static_cast<uint64_t>(state), std::move(window));
      return absl::OkStatus();
    }

    static std::string WindowKey(size_t column, int part) {
      return StrCat(kWindow, "_", column, "_", part);
    }

    static absl::Status BadWindow(const std::string& slot) {
      return errors::InvalidArgument(
          "The saved samples of slot '", slot,
          "' are not what this dataset's slots say; the iterator was saved "
          "from another dataset");
    }

    absl::Status Start(IteratorContext* ctx) {
      const Arguments& arguments = dataset()->arguments_;
      RecordSource::Options options;
      options.files = arguments.filenames;
      options.pipe_command = dataset()->attributes_.pipe_command;
      options.num_threads = arguments.num_parallel_files;
      options.ordered = dataset()->attributes_.deterministic;
      options.first_file = next_file_;
      options.first_record = next_record_;
      options.num_shards = arguments.num_shards;
      options.shard_index = arguments.shard_index;
      if (dataset()->attributes_.skip_errors) {
        options.skip_log = SkipLog::Named(dataset()->attributes_.skip_log);
      }
      std::lock_guard<std::mutex> lock(cancel_mutex_);
      if (cancelled_) return errors::Cancelled("the iterator was cancelled");
      source_ = std::make_unique<RecordSource>(
          dataset()->format_.get(), std::move(options),
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

    // The samples of block_ before `row` are taken.
    void MoveTo(int64_t row) {
      block_row_ = row;
      next_file_ = block_->file;
      next_record_ = block_->RecordOf(row);
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
        const bool is_first = batch->num_rows() == 0;
        batch->Append(block_->rows, block_row_, count);
        // The other blocks will take about as much; a batch may end before.
        if (is_first && count < batch_size) {
          batch->Reserve(std::min<int64_t>(batch_size / count + 1, 64));
        }
        MoveTo(block_row_ + count);
      }
      return absl::OkStatus();
    }

    absl::Status FillShuffled(int64_t batch_size, SlotRows* batch) {
      while (batch->num_rows() < batch_size) {
        while (!source_ended_ && shuffler_.WantsMore()) {
          bool has_block = false;
          TF_RETURN_IF_ERROR(NextBlock(&has_block));
          source_ended_ = !has_block;
          if (has_block) {
            MoveTo(block_->rows.num_rows());
            shuffler_.Add(std::move(block_->rows));
            block_->rows = SlotRows();
            block_row_ = 0;
          }
        }
        if (shuffler_.Size() == 0) break;
        shuffler_.Draw(batch);
      }
      return absl::OkStatus();
    }

    // Whether slots whose shape has a -1 have one shape in this batch.
    absl::Status CheckInferred(const SlotRows& batch) const {
      const auto& shapes = dataset()->attributes_.slot_shapes;
      const auto& specs = dataset()->format_->specs();
      for (size_t c = 0; c < shapes.size(); ++c) {
        if (!IsInferred(shapes[c]) || !specs[c].used) continue;
        for (int64_t row = 1; row < batch.num_rows(); ++row) {
          if (batch.Length(c, row) == batch.Length(c, 0)) continue;
          return errors::InvalidArgument(
              "slot '", specs[c].name, "': sample ", row, " of the batch has ",
              batch.Length(c, row), " values, sample 0 has ",
              batch.Length(c, 0), "; with shape ", shapes[c].DebugString(),
              " all samples of a batch must have as many");
        }
      }
      return absl::OkStatus();
    }

    void AppendTensors(const SlotRows& batch,
                       std::vector<Tensor>* out_tensors) const {
      const auto& shapes = dataset()->attributes_.slot_shapes;
      const auto& types = dataset()->attributes_.slot_types;
      const auto& specs = dataset()->format_->specs();
      for (size_t c = 0; c < shapes.size(); ++c) {
        if (!specs[c].used) continue;
        const SlotColumn& column = batch.columns()[c];
        const bool is_float = types[c] == tensorflow::DT_FLOAT;
        TensorShape shape;
        if (IsSparse(shapes[c])) {
          shape.AddDim(is_float ? column.floats.size() : column.ints.size());
        } else {
          shape.AddDim(batch.num_rows());
          for (int d = 0; d < shapes[c].dims(); ++d) {
            const int64_t dim = shapes[c].dim_size(d);
            shape.AddDim(dim >= 0 ? dim
                                  : batch.Length(c, 0) / specs[c].multiple);
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
    std::unique_ptr<RecordBlock> block_;
    int64_t block_row_ = 0;  // the first row of block_ not yet taken
    // Where the next sample in order is; the place to go on from.
    int64_t next_file_ = 0;
    int64_t next_record_ = 0;
    bool source_ended_ = false;
    bool ended_ = false;

    std::mutex cancel_mutex_;  // guards setting source_ against cancelling
    bool cancelled_ = false;
    std::function<void()> deregister_;
    std::unique_ptr<RecordSource> source_;
  };

  const Attributes attributes_;
  const Arguments arguments_;
  const std::unique_ptr<RecordFormat> format_;
};

}  // namespace

RecordDatasetOp::RecordDatasetOp(tensorflow::OpKernelConstruction* ctx)
    : DatasetOpKernel(ctx) {
  Attributes& a = attributes_;
  std::vector<int64_t> limits;
  std::vector<int64_t> weighs;
  OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_names", &a.slot_names));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_types", &a.slot_types));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_shapes", &a.slot_shapes));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_limits", &limits));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_weighs", &weighs));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("slot_used", &a.slot_used));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("drop_remainder", &a.drop_remainder));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("deterministic", &a.deterministic));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_errors", &a.skip_errors));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_log", &a.skip_log));
  if (ctx->HasAttr("pipe_command")) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("pipe_command", &a.pipe_command));
  }
  OP_REQUIRES_OK(ctx, ctx->GetAttr("output_types", &a.output_types));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("output_shapes", &a.output_shapes));
  for (const auto& attr : ctx->def().attr()) {
    // The dataset adds its outputs itself; "_" begins what TensorFlow adds.
    if (attr.first.front() != '_' && attr.first.rfind("output_", 0) != 0) {
      a.all.push_back(attr);
    }
  }
  const size_t num_slots = a.slot_names.size();
  OP_REQUIRES(ctx,
              a.slot_types.size() == num_slots &&
                  a.slot_shapes.size() == num_slots &&
                  limits.size() == num_slots && weighs.size() == num_slots &&
                  a.slot_used.size() == num_slots,
              errors::InvalidArgument(
                  "`slot_names`, `slot_types`, `slot_shapes`, `slot_limits`, "
                  "`slot_weighs` and `slot_used` must have one length, found ",
                  num_slots, ", ", a.slot_types.size(), ", ",
                  a.slot_shapes.size(), ", ", limits.size(), ", ",
                  weighs.size(), " and ", a.slot_used.size()));
  DataTypeVector types;
  for (size_t i = 0; i < num_slots; ++i) {
    ColumnSpec spec;
    spec.name = a.slot_names[i];
    spec.is_float = a.slot_types[i] == tensorflow::DT_FLOAT;
    spec.limit = limits[i];
    spec.weighs = weighs[i];
    spec.used = a.slot_used[i];
    if (!IsSparse(a.slot_shapes[i])) {
      int64_t num_unknown = 0;
      for (int d = 0; d < a.slot_shapes[i].dims(); ++d) {
        const int64_t dim = a.slot_shapes[i].dim_size(d);
        num_unknown += dim < 0;
        if (dim >= 0) {
          spec.multiple =
              tensorflow::MultiplyWithoutOverflow(spec.multiple, dim);
        }
      }
      OP_REQUIRES(ctx,
                  num_unknown <= 1 && spec.multiple >= 1 &&
                      spec.multiple <= std::numeric_limits<int32_t>::max(),
                  errors::InvalidArgument(
                      "`slot_shapes` of slot '", spec.name,
                      "' must have at most one unknown dimension and 1 to 2^31 "
                      "- 1 elements, or be of unknown rank, found ",
                      a.slot_shapes[i].DebugString()));
      if (num_unknown == 0) {
        spec.size = spec.multiple;
        spec.multiple = 1;
      }
    }
    OP_REQUIRES(ctx,
                spec.weighs < static_cast<int64_t>(num_slots) &&
                    (spec.weighs < 0 ||
                     (spec.size < 0 && IsSparse(a.slot_shapes[spec.weighs]))),
                errors::InvalidArgument(
                    "`slot_weighs` of slot '", spec.name, "' is ", spec.weighs,
                    ", wanted the index of a sparse slot, or -1"));
    if (spec.used) {
      types.push_back(a.slot_types[i]);
      if (IsSparse(a.slot_shapes[i])) types.push_back(tensorflow::DT_INT64);
    }
    specs_.push_back(std::move(spec));
  }
  OP_REQUIRES(
      ctx, types == a.output_types && types.size() == a.output_shapes.size(),
      errors::InvalidArgument(
          "`output_types` must be ", tensorflow::DataTypeVectorString(types),
          ", found ", tensorflow::DataTypeVectorString(a.output_types)));
}

void RecordDatasetOp::MakeDataset(OpKernelContext* ctx, DatasetBase** output) {
  const Tensor& filenames = ctx->input(0);
  OP_REQUIRES(ctx, filenames.dims() == 1,
              errors::InvalidArgument("`filenames` must have rank 1, found ",
                                      filenames.shape().DebugString()));
  Arguments arguments;
  for (int64_t i = 0; i < filenames.NumElements(); ++i) {
    arguments.filenames.emplace_back(filenames.vec<tstring>()(i));
  }
  struct Scalar {
    const char* name;
    int64_t lowest;
    int64_t highest;
    int64_t* value;
  };
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const Scalar scalars[] = {
      {"batch_size", 1, kMax, &arguments.batch_size},
      {"num_parallel_files", 1, 1024, &arguments.num_parallel_files},
      {"shuffle_rows", 0, int64_t{1} << 31, &arguments.shuffle_rows},
      {"seed", std::numeric_limits<int64_t>::min(), kMax, &arguments.seed},
      {"num_shards", 1, kMax, &arguments.num_shards},
      {"shard_index", 0, kMax, &arguments.shard_index},
  };
  int input = 1;
  for (const Scalar& scalar : scalars) {
    const Tensor& tensor = ctx->input(input++);
    OP_REQUIRES(ctx, tensor.dims() == 0,
                errors::InvalidArgument("`", scalar.name,
                                        "` must be a scalar, found shape ",
                                        tensor.shape().DebugString()));
    *scalar.value = tensor.scalar<int64_t>()();
    OP_REQUIRES(
        ctx, *scalar.value >= scalar.lowest && *scalar.value <= scalar.highest,
        errors::InvalidArgument("`", scalar.name, "` must be from ",
                                scalar.lowest, " to ", scalar.highest,
                                ", found ", *scalar.value));
  }
  OP_REQUIRES(ctx, arguments.shard_index < arguments.num_shards,
              errors::InvalidArgument("`shard_index` must be less than ",
                                      arguments.num_shards, ", found ",
                                      arguments.shard_index));
  std::unique_ptr<RecordFormat> format;
  OP_REQUIRES_OK(ctx, MakeFormat(specs_, &format));
  *output = new RecordDataset(ctx, attributes_, std::move(arguments),
                              std::move(format));
}

}  // namespace lodestar
