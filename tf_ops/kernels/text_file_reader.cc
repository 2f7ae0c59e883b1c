#include "tf_ops/kernels/text_file_reader.h"

#include <algorithm>
#include <utility>

#include "tensorflow/core/lib/io/random_inputstream.h"
#include "tensorflow/core/lib/io/zlib_compression_options.h"
#include "tensorflow/core/lib/io/zlib_inputstream.h"
#include "tensorflow/core/platform/errors.h"

namespace lodestar {
namespace {

// Small enough that the first batch comes soon, large enough that a piece is
// worth a hand-over between threads.
constexpr int64_t kPieceBytes = 512 << 10;
constexpr size_t kMaxLineBytes = 64 << 20;

bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

absl::Status WithPath(const absl::Status& status, const std::string& path) {
  const std::string message(status.message());
  if (message.find(path) != std::string::npos) return status;
  return absl::Status(status.code(), path + ": " + message);
}

}  // namespace

absl::Status TextFileReader::Open(tensorflow::Env* env, const std::string& path,
                                  std::unique_ptr<TextFileReader>* reader) {
  namespace io = tensorflow::io;
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  absl::Status status = env->NewRandomAccessFile(path, &file);
  if (!status.ok()) return WithPath(status, path);
  std::unique_ptr<io::InputStreamInterface> stream(
      new io::RandomAccessInputStream(file.get()));
  int64_t compressed_bytes = -1;
  if (EndsWith(path, ".gz")) {
    tensorflow::uint64 size = 0;
    status = env->GetFileSize(path, &size);
    if (!status.ok()) return WithPath(status, path);
    compressed_bytes = static_cast<int64_t>(size);
    stream.reset(new io::ZlibInputStream(
        stream.release(), kPieceBytes, kPieceBytes,
        io::ZlibCompressionOptions::GZIP(), /*owns_input_stream=*/true));
  }
  reader->reset(new TextFileReader(path, compressed_bytes, std::move(file),
                                   std::move(stream)));
  return absl::OkStatus();
}

absl::Status TextFileReader::CheckTrailer() const {
  // The stream takes the end of the file for the end of the data. A gzip file
  // ends with the number of bytes that its last member holds, modulo 2^32.
  constexpr int64_t kLengthBytes = 4;
  if (compressed_bytes_ <= 0) return absl::OkStatus();
  uint64_t length = 0;
  if (compressed_bytes_ >= kLengthBytes) {
    tensorflow::io::RandomAccessInputStream end(file_.get());
    tensorflow::tstring bytes;
    absl::Status status = end.Seek(compressed_bytes_ - kLengthBytes);
    if (status.ok()) status = end.ReadNBytes(kLengthBytes, &bytes);
    if (!status.ok()) return WithPath(status, path_);
    for (int64_t i = 0; i < kLengthBytes; ++i) {
      length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
  }
  if (compressed_bytes_ < kLengthBytes || length > bytes_read_) {
    return tensorflow::errors::InvalidArgument(
        path_, ": the compressed file was cut short after ", compressed_bytes_,
        " bytes");
  }
  return absl::OkStatus();
}

absl::Status TextFileReader::Read(std::string* text, int64_t* first_line) {
  text->clear();
  *first_line = next_line_;
  text->swap(rest_);
  size_t searched = 0;
  while (!at_end_) {
    const absl::Status status = stream_->ReadNBytes(kPieceBytes, &buffer_);
    if (!status.ok() && !tensorflow::errors::IsOutOfRange(status)) {
      return WithPath(status, path_);
    }
    text->append(buffer_.data(), buffer_.size());
    bytes_read_ += buffer_.size();
    if (!status.ok()) {
      at_end_ = true;
      const absl::Status whole = CheckTrailer();
      if (!whole.ok()) return whole;
    }
    const size_t newline = text->rfind('\n');
    if (newline != std::string::npos && newline >= searched) {
      if (!at_end_) {
        rest_.assign(*text, newline + 1, std::string::npos);
        text->resize(newline + 1);
      }
      break;
    }
    searched = text->size();
    if (searched > kMaxLineBytes) {
      return tensorflow::errors::InvalidArgument(
          path_, ":", next_line_ + 1, ": not text: no newline within ",
          kMaxLineBytes, " bytes");
    }
  }
  if (text->empty() && next_line_ == 0) {
    return tensorflow::errors::InvalidArgument(path_,
                                               ": the file has no records");
  }
  next_line_ += std::count(text->begin(), text->end(), '\n');
  return absl::OkStatus();
}

absl::Status TextFileReader::SkipTo(int64_t line) {
  while (next_line_ < line) {
    std::string text;
    int64_t first_line = 0;
    absl::Status status = Read(&text, &first_line);
    if (!status.ok()) return status;
    if (text.empty()) {
      // Not OutOfRange: a dataset takes that for its end.
      return tensorflow::errors::FailedPrecondition(
          path_, ": has ", next_line_,
          " lines, but reading was to go on at line ", line + 1,
          "; it was changed since");
    }
    if (next_line_ > line) {
      size_t position = 0;
      for (int64_t n = first_line; n < line; ++n) {
        position = text.find('\n', position) + 1;
      }
      // Put back: the lines from `line` on are the next piece's beginning.
      rest_.insert(0, text, position, std::string::npos);
      next_line_ = line;
    }
  }
  return absl::OkStatus();
}

}  // namespace lodestar
