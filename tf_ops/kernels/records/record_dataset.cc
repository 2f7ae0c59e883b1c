#include "tf_ops/kernels/records/record_dataset.h"

#include <algorithm>
#include <functional>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/platform/errors.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/records/sample_bytes.h"
#include "tf_ops/core/records/slot_batch.h"
#include "tf_ops/core/records/slot_rows.h"
#include "tf_ops/core/records/slot_shuffler.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/records/record_source.h"
#include "tf_ops/kernels/records/skip_log.h"
#include "tf_ops/kernels/records/source_dataset.h"

namespace lodestar {
namespace {

namespace errors = tensorflow::errors;

constexpr char kFile[] = "file";
constexpr char kRecord[] = "record";
constexpr char kFileBytes[] = "file_bytes";
constexpr char kEnded[] = "ended";
constexpr char kSourceEnded[] = "source_ended";
constexpr char kShuffleState[] = "shuffle_state";
constexpr char kWindow[] = "window";

// The op's inputs, in this order.
struct Arguments {
  RecordSource::Options source;
  int64_t batch_size = 0;
  int64_t shuffle_rows = 0;
  int64_t seed = 0;
};

class RecordDataset : public SourceDataset {
 public:
  using Attributes = RecordDatasetOp::Attributes;

  RecordDataset(OpKernelContext* ctx, Attributes attributes,
                Arguments arguments, std::shared_ptr<const RecordFormat> format)
      : SourceDataset(
            ctx, attributes.slots.output_types(),
            attributes.slots.output_shapes(), attributes.all,
            {arguments.batch_size, arguments.source.num_threads,
             arguments.shuffle_rows, arguments.seed,
             arguments.source.num_shards, arguments.source.shard_index}),
        attributes_(std::move(attributes)),
        arguments_(std::move(arguments)),
        format_(std::move(format)) {}

  std::unique_ptr<IteratorBase> MakeIteratorInternal(
      const std::string& prefix) const override {
    return std::make_unique<Iterator>(
        Iterator::Params{this, prefix + "::LodestarRecords"});
  }

 protected:
  absl::Status AddFirstInput(DatasetGraphDefBuilder* builder,
                             tensorflow::Node** node) const override {
    const std::vector<tstring> names(arguments_.source.files.begin(),
                                     arguments_.source.files.end());
    return builder->AddVector(names, node);
  }

 private:
  class Iterator : public SourceIterator<RecordDataset> {
   public:
    explicit Iterator(const Params& params)
        : SourceIterator<RecordDataset>(params),
          shuffler_(params.dataset->arguments_.shuffle_rows,
                    static_cast<uint64_t>(params.dataset->arguments_.seed)) {}

    ~Iterator() override {
      if (deregister_) deregister_();
    }

    absl::Status Initialize(IteratorContext* ctx) override {
      return tensorflow::RegisterCancellationCallback(
          ctx->cancellation_manager(),
          [this] {
            MutexLock lock(&cancel_mutex_);
            cancelled_ = true;
            if (source_ != nullptr) source_->Cancel();
          },
          &deregister_);
    }

   protected:
    absl::Status Next(IteratorContext* ctx, std::vector<Tensor>* out_tensors,
                      bool* end_of_sequence) override
        LODESTAR_REQUIRES(mutex_) {
      const int64_t batch_size = dataset()->arguments_.batch_size;
      const Attributes& attributes = dataset()->attributes_;
      SlotBatch batch;
      if (source_ == nullptr) LODESTAR_TRY(Start(ctx));
      LODESTAR_TRY(IsShuffled() ? FillShuffled(batch_size, &batch)
                                : FillInOrder(batch_size, &batch));
      LODESTAR_TRY(attributes.slots.CheckInferred(batch));
      *end_of_sequence = attributes.drop_remainder
                             ? batch.num_rows() < batch_size
                             : batch.num_rows() == 0;
      if (!*end_of_sequence) {
        attributes.slots.AppendTensors(batch, out_tensors);
      }
      return absl::OkStatus();
    }

    absl::Status SaveInternal(SerializationContext* ctx,
                              IteratorStateWriter* writer) override {
      MutexLock lock(&mutex_);
      LODESTAR_TRY(CheckOrdered());
      LODESTAR_TRY(writer->WriteScalar(prefix(), kFile, next_file_));
      LODESTAR_TRY(writer->WriteScalar(prefix(), kRecord, next_record_));
      LODESTAR_TRY(writer->WriteScalar(prefix(), kFileBytes, file_bytes_));
      LODESTAR_TRY(writer->WriteScalar(prefix(), kEnded, int64_t{ended_}));
      if (!IsShuffled()) return absl::OkStatus();
      return WithoutBadAlloc([&] {
        mutex_.AssertHeld();
        return SaveWindow(writer);
      });
    }

    absl::Status RestoreInternal(IteratorContext* ctx,
                                 IteratorStateReader* reader) override {
      MutexLock lock(&mutex_);
      LODESTAR_TRY(CheckOrdered());
      int64_t ended = 0;
      LODESTAR_TRY(reader->ReadScalar(prefix(), kFile, &next_file_));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kRecord, &next_record_));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kFileBytes, &file_bytes_));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kEnded, &ended));
      ended_ = ended != 0;
      const int64_t num_files = dataset()->arguments_.source.files.size();
      if (next_file_ < 0 || next_record_ < 0 || next_file_ > num_files) {
        return errors::InvalidArgument(
            "The saved position, file ", next_file_, " record ", next_record_,
            ", is out of range for a dataset of ", num_files, " files");
      }
      if (!IsShuffled()) return absl::OkStatus();
      return WithoutBadAlloc([&] {
        mutex_.AssertHeld();
        return RestoreWindow(reader);
      });
    }

   private:
    bool IsShuffled() const { return dataset()->arguments_.shuffle_rows > 0; }

    absl::Status CheckOrdered() const {
      if (dataset()->arguments_.source.ordered) return absl::OkStatus();
      return errors::Unimplemented(
          "Iterators over record files can be saved and restored only with "
          "deterministic=True. Otherwise there is no defined record at which "
          "to resume.");
    }

    // Saves the shuffle window, in the order that later draws depend on.
    absl::Status SaveWindow(IteratorStateWriter* writer)
        LODESTAR_REQUIRES(mutex_) {
      const std::vector<ColumnSpec>& specs = dataset()->format_->specs();
      LODESTAR_TRY(
          writer->WriteScalar(prefix(), kSourceEnded, int64_t{source_ended_}));
      LODESTAR_TRY(writer->WriteScalar(
          prefix(), kShuffleState, static_cast<int64_t>(shuffler_.state())));
      return writer->WriteScalar(
          prefix(), kWindow,
          tstring(EncodeSamples(specs, shuffler_.CopyRowsLeft(specs))));
    }

    absl::Status RestoreWindow(IteratorStateReader* reader)
        LODESTAR_REQUIRES(mutex_) {
      int64_t source_ended = 0;
      int64_t state = 0;
      tstring window;
      LODESTAR_TRY(reader->ReadScalar(prefix(), kSourceEnded, &source_ended));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kShuffleState, &state));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kWindow, &window));
      source_ended_ = source_ended != 0;
      SlotRows rows;
      LODESTAR_TRY(
          Prefixed(DecodeSamples(dataset()->format_->specs(), window.data(),
                                 static_cast<int64_t>(window.size()), &rows),
                   "The iterator was saved from another dataset: "));
      shuffler_.Restore(static_cast<uint64_t>(state), std::move(rows));
      return absl::OkStatus();
    }

    absl::Status Start(IteratorContext* ctx) LODESTAR_REQUIRES(mutex_) {
      RecordSource::Options options = dataset()->arguments_.source;
      options.first_file = next_file_;
      options.first_record = next_record_;
      options.first_file_bytes = file_bytes_;
      if (dataset()->attributes_.skip_errors) {
        options.skip_log = SkipLog::Named(dataset()->attributes_.skip_log);
      }
      MutexLock lock(&cancel_mutex_);
      if (cancelled_) return errors::Cancelled("the iterator was cancelled");
      source_ = std::make_unique<RecordSource>(
          dataset()->format_.get(), std::move(options),
          [ctx](const std::string& name, std::function<void()> body) {
            return ctx->StartThread(name, std::move(body));
          });
      return absl::OkStatus();
    }

    // Sets piece_ to the next piece; *has_piece is false at the end.
    absl::Status NextPiece(bool* has_piece) LODESTAR_REQUIRES(mutex_) {
      if (piece_ != nullptr) LODESTAR_TRY(piece_->status);
      std::unique_ptr<ParsedPiece> parsed;
      LODESTAR_TRY(source_->Next(&parsed));
      piece_ = std::move(parsed);
      piece_row_ = 0;
      *has_piece = piece_ != nullptr;
      return absl::OkStatus();
    }

    // Marks the samples of piece_ before `row` as consumed.
    void MoveTo(int64_t row) LODESTAR_REQUIRES(mutex_) {
      piece_row_ = row;
      next_file_ = piece_->file;
      file_bytes_ = piece_->file_bytes;
      next_record_ = piece_->RecordOf(row);
    }

    // Shares ownership of the piece.
    std::shared_ptr<const SlotRows> PieceRows() const
        LODESTAR_REQUIRES(mutex_) {
      return std::shared_ptr<const SlotRows>(piece_, &piece_->rows);
    }

    absl::Status FillInOrder(int64_t batch_size, SlotBatch* batch)
        LODESTAR_REQUIRES(mutex_) {
      while (batch->num_rows() < batch_size) {
        if (piece_ == nullptr || piece_row_ == piece_->rows.num_rows()) {
          bool has_piece = false;
          LODESTAR_TRY(NextPiece(&has_piece));
          if (!has_piece) break;
          continue;
        }
        const int64_t count = std::min(batch_size - batch->num_rows(),
                                       piece_->rows.num_rows() - piece_row_);
        batch->Add(PieceRows(), piece_row_, count);
        MoveTo(piece_row_ + count);
      }
      return absl::OkStatus();
    }

    absl::Status FillShuffled(int64_t batch_size, SlotBatch* batch)
        LODESTAR_REQUIRES(mutex_) {
      while (batch->num_rows() < batch_size) {
        while (!source_ended_ && shuffler_.WantsMore()) {
          bool has_piece = false;
          LODESTAR_TRY(NextPiece(&has_piece));
          source_ended_ = !has_piece;
          if (has_piece) {
            MoveTo(piece_->rows.num_rows());
            shuffler_.Add(PieceRows());
          }
        }
        if (shuffler_.Size() == 0) break;
        shuffler_.Draw(batch);
      }
      return absl::OkStatus();
    }

    SlotShuffler shuffler_ LODESTAR_GUARDED_BY(mutex_);
    std::shared_ptr<ParsedPiece> piece_ LODESTAR_GUARDED_BY(mutex_);
    // The first row of piece_ not yet consumed.
    int64_t piece_row_ LODESTAR_GUARDED_BY(mutex_) = 0;
    // The position of the next sample, at which a restored iterator resumes.
    int64_t next_file_ LODESTAR_GUARDED_BY(mutex_) = 0;
    int64_t next_record_ LODESTAR_GUARDED_BY(mutex_) = 0;
    int64_t file_bytes_ LODESTAR_GUARDED_BY(mutex_) = -1;  // of next_file_
    bool source_ended_ LODESTAR_GUARDED_BY(mutex_) = false;

    Mutex cancel_mutex_ LODESTAR_ACQUIRED_AFTER(mutex_);
    bool cancelled_ LODESTAR_GUARDED_BY(cancel_mutex_) = false;
    std::function<void()> deregister_;
    // Written under both mutexes, read under either.
    std::unique_ptr<RecordSource> source_;
  };

  const Attributes attributes_;
  const Arguments arguments_;
  const std::shared_ptr<const RecordFormat> format_;
};

}  // namespace

RecordDatasetOp::RecordDatasetOp(OpKernelConstruction* ctx,
                                 MakeFormat make_format,
                                 std::vector<ColumnSpec> leading)
    : DatasetOpKernel(ctx) {
  Attributes& a = attributes_;
  OP_REQUIRES_OK(ctx, a.slots.Init(ctx, std::move(leading)));
  OP_REQUIRES_OK(ctx, make_format(ctx, a.slots.specs(), &format_));
  OP_REQUIRES_OK(ctx, a.slots.InitOutputs(ctx));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("drop_remainder", &a.drop_remainder));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("deterministic", &a.source.ordered));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("whole_files", &a.source.whole_files));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_errors", &a.skip_errors));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_log", &a.skip_log));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("open_command", &a.source.open_command));
  if (ctx->HasAttr("pipe_command")) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("pipe_command", &a.source.pipe_command));
  }
  a.all = GraphAttributes(ctx);
}

void RecordDatasetOp::MakeDataset(OpKernelContext* ctx, DatasetBase** output) {
  Arguments arguments;
  RecordSource::Options& source = arguments.source;
  source = attributes_.source;
  OP_REQUIRES_OK(ctx, ReadPaths(ctx->input(0), &source.files));
  struct Scalar {
    const char* name;
    int64_t* value;
    int64_t lowest;
    int64_t highest;
  };
  const Scalar scalars[] = {
      {"batch_size", &arguments.batch_size, 1, kMaxScalar},
      {"num_parallel_files", &source.num_threads, 1, 1024},
      {"shuffle_rows", &arguments.shuffle_rows, 0, int64_t{1} << 31},
      {"seed", &arguments.seed, kMinScalar, kMaxScalar},
      {"num_shards", &source.num_shards, 1, kMaxScalar},
      {"shard_index", &source.shard_index, 0, kMaxScalar},
  };
  int input = 1;
  for (const Scalar& scalar : scalars) {
    OP_REQUIRES_OK(ctx,
                   ReadScalar(ctx->input(input++), scalar.name, scalar.value,
                              scalar.lowest, scalar.highest));
  }
  OP_REQUIRES(ctx, source.shard_index < source.num_shards,
              errors::InvalidArgument("`shard_index` must be less than ",
                                      source.num_shards, ", found ",
                                      source.shard_index));
  OP_REQUIRES_OK(ctx,
                 attributes_.slots.CheckOutputShapes(
                     attributes_.drop_remainder ? arguments.batch_size : -1));
  *output = new RecordDataset(ctx, attributes_, std::move(arguments), format_);
}

}  // namespace lodestar
