// RecordReader: reads a file as pieces of whole records.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_READER_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/platform/status.h"
#include "tf_ops/core/records/record_format.h"
#include "tf_ops/kernels/records/byte_stream.h"

namespace lodestar {

struct RecordPiece {
  const char* begin = nullptr;
  const char* end = nullptr;
  int64_t offset = 0;        // of the first byte in the file
  int64_t first_record = 0;  // its index in the file
  int64_t num_records = 0;
  int64_t variant = 0;  // for RecordFormat::Parse()
  // The memory of begin and end.
  std::unique_ptr<char[]> buffer;
};

class RecordReader {
 public:
  // Errors of the cutter contain `path`. If `may_be_empty`, an empty stream has
  // no records and is not passed to the cutter.
  RecordReader(std::string path, std::unique_ptr<ByteStream> stream,
               std::unique_ptr<RecordCutter> cutter, bool may_be_empty = false)
      : path_(std::move(path)),
        stream_(std::move(stream)),
        cutter_(std::move(cutter)),
        may_be_empty_(may_be_empty) {}

  // Reads the next piece; num_records is 0 at the end of the file. Returns
  // errors of the stream, and InvalidArgument with the path for errors of the
  // cutter.
  absl::Status Read(RecordPiece* piece);

 private:
  absl::Status Fill();

  const std::string path_;
  const std::unique_ptr<ByteStream> stream_;
  const std::unique_ptr<RecordCutter> cutter_;
  const bool may_be_empty_;
  std::unique_ptr<char[]> buffer_;  // read but not yet cut
  int64_t capacity_ = 0;
  int64_t size_ = 0;
  int64_t offset_ = 0;  // of the buffer in the file
  int64_t next_record_ = 0;
  bool at_end_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_READER_H_
