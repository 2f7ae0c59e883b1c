#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/dataset.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/records/tfrecord_format.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/base/tensor_util.h"
#include "tf_ops/kernels/records/byte_stream.h"
#include "tf_ops/kernels/records/record_reader.h"
#include "tf_ops/kernels/records/slot_attributes.h"
#include "tf_ops/kernels/records/source_dataset.h"

namespace lodestar {
namespace {

constexpr char kRecord[] = "record";
constexpr char kOffset[] = "offset";
constexpr char kFileBytes[] = "file_bytes";
constexpr char kEnded[] = "ended";

class TfrecordDataset : public SourceDataset {
 public:
  TfrecordDataset(OpKernelContext* ctx, std::string path)
      : SourceDataset(ctx, {tensorflow::DT_STRING}, {TensorShape()}),
        path_(std::move(path)) {}

  std::unique_ptr<IteratorBase> MakeIteratorInternal(
      const std::string& prefix) const override {
    return std::make_unique<Iterator>(
        Iterator::Params{this, prefix + "::LodestarTfrecords"});
  }

 protected:
  absl::Status AddFirstInput(DatasetGraphDefBuilder* builder,
                             tensorflow::Node** node) const override {
    return builder->AddScalar(tstring(path_), node);
  }

 private:
  class Iterator : public SourceIterator<TfrecordDataset> {
   public:
    using SourceIterator<TfrecordDataset>::SourceIterator;

   protected:
    absl::Status Next(IteratorContext* ctx, std::vector<Tensor>* out_tensors,
                      bool* end_of_sequence) override
        LODESTAR_REQUIRES(mutex_) {
      if (reader_ == nullptr) LODESTAR_TRY(Open(ctx));
      if (position_ == piece_.end) {
        LODESTAR_TRY(reader_->Read(&piece_));
        position_ = piece_.begin;
        *end_of_sequence = piece_.num_records == 0;
        if (*end_of_sequence) return absl::OkStatus();
      }
      std::string_view record;
      LODESTAR_TRY(Prefixed(ReadTfrecord(position_, &record, &position_),
                            dataset()->path_, ": record ", next_record_,
                            " at byte ", next_offset_, ": "));
      next_offset_ = begin_ + piece_.offset + (position_ - piece_.begin);
      ++next_record_;
      Tensor tensor = NewTensor(tensorflow::DT_STRING, TensorShape());
      tensor.scalar<tstring>()().assign(record.data(), record.size());
      out_tensors->push_back(std::move(tensor));
      return absl::OkStatus();
    }

    absl::Status SaveInternal(SerializationContext* ctx,
                              IteratorStateWriter* writer) override {
      MutexLock lock(&mutex_);
      LODESTAR_TRY(writer->WriteScalar(prefix(), kRecord, next_record_));
      LODESTAR_TRY(writer->WriteScalar(prefix(), kOffset, next_offset_));
      LODESTAR_TRY(writer->WriteScalar(prefix(), kFileBytes, file_bytes_));
      return writer->WriteScalar(prefix(), kEnded, int64_t{ended_});
    }

    absl::Status RestoreInternal(IteratorContext* ctx,
                                 IteratorStateReader* reader) override {
      MutexLock lock(&mutex_);
      int64_t ended = 0;
      LODESTAR_TRY(reader->ReadScalar(prefix(), kRecord, &next_record_));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kOffset, &next_offset_));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kFileBytes, &file_bytes_));
      LODESTAR_TRY(reader->ReadScalar(prefix(), kEnded, &ended));
      ended_ = ended != 0;
      if (next_record_ < 0 || next_offset_ < 0) {
        return InvalidArgumentError("The saved position, record ", next_record_,
                                    " at byte ", next_offset_,
                                    ", must not be negative");
      }
      return absl::OkStatus();
    }

   private:
    absl::Status Open(IteratorContext* ctx) LODESTAR_REQUIRES(mutex_) {
      const std::string& path = dataset()->path_;
      std::unique_ptr<ByteStream> stream;
      LODESTAR_TRY(ByteStream::Open(ctx->env(), path, &stream));
      if (next_record_ > 0) {
        LODESTAR_TRY(stream->CheckResumed(path, file_bytes_));
        LODESTAR_TRY(stream->Skip(next_offset_));
      }
      file_bytes_ = stream->file_bytes();
      begin_ = next_offset_;
      reader_ = std::make_unique<RecordReader>(
          path, std::move(stream),
          std::make_unique<TfrecordCutter>(next_record_, next_offset_));
      return absl::OkStatus();
    }

    std::unique_ptr<RecordReader> reader_ LODESTAR_GUARDED_BY(mutex_);
    int64_t begin_ LODESTAR_GUARDED_BY(mutex_) = 0;  // where reading began
    RecordPiece piece_ LODESTAR_GUARDED_BY(mutex_);
    // The next record in piece_.
    const char* position_ LODESTAR_GUARDED_BY(mutex_) = nullptr;
    int64_t next_record_ LODESTAR_GUARDED_BY(mutex_) = 0;
    int64_t next_offset_ LODESTAR_GUARDED_BY(mutex_) = 0;
    int64_t file_bytes_ LODESTAR_GUARDED_BY(mutex_) = -1;
  };

  const std::string path_;
};

class TfrecordDatasetOp : public tensorflow::data::DatasetOpKernel {
 public:
  explicit TfrecordDatasetOp(OpKernelConstruction* ctx)
      : DatasetOpKernel(ctx) {}

 protected:
  void MakeDataset(OpKernelContext* ctx, DatasetBase** output) override {
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(0), "filename", 0));
    *output = new TfrecordDataset(ctx, ctx->input(0).scalar<tstring>()());
  }
};

LODESTAR_REGISTER(TfrecordDataset);

}  // namespace
}  // namespace lodestar
