#include "tf_ops/kernels/records/record_source.h"

#include <algorithm>
#include <new>
#include <utility>

#include "tensorflow/core/platform/errors.h"
#include "tf_ops/kernels/base/status_util.h"
#include "tf_ops/kernels/records/byte_stream.h"

namespace lodestar {
namespace {

absl::Status OutOfMemory() {
  return ToTensorFlow(
      ResourceExhausted("out of memory while reading records."));
}

std::unique_ptr<PipeCommand> CommandOf(const std::vector<std::string>& argv) {
  return argv.empty() ? nullptr : std::make_unique<PipeCommand>(argv);
}

}  // namespace

RecordSource::RecordSource(const RecordFormat* format, Options options,
                           const StartThread& start_thread)
    : format_(format),
      options_(std::move(options)),
      // Large enough that consuming a batch at a time does not stop the
      // threads; limits memory to a few pieces per thread.
      max_queued_(2 * options_.num_threads + 2),
      opener_(CommandOf(options_.open_command)),
      command_(CommandOf(options_.pipe_command)),
      streams_(options_.ordered ? 1 : options_.num_threads),
      next_file_(options_.first_file),
      running_(options_.num_threads) {
  for (int64_t i = 0; i < options_.num_threads; ++i) {
    Stream* const stream = &streams_[options_.ordered ? 0 : i];
    threads_.push_back(start_thread("lodestar_records", [this, stream] {
      bool has_memory = true;
      try {
        Run(stream);
      } catch (const std::bad_alloc&) {
        has_memory = false;
      }
      MutexLock lock(&mutex_);
      if (!has_memory) {
        stop_reading_ = true;
        queue_.push_back(std::make_unique<ParsedPiece>());
        queue_.back()->status = OutOfMemory();
        queue_.back()->ready = true;
      }
      --running_;
      changed_.NotifyAll();
    }));
  }
}

RecordSource::~RecordSource() {
  Cancel();
  threads_.clear();  // joins
}

void RecordSource::Cancel() {
  for (PipeCommand* const command : {opener_.get(), command_.get()}) {
    if (command != nullptr) command->Cancel();
  }
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

absl::Status RecordSource::Next(std::unique_ptr<ParsedPiece>* parsed) {
  if (!options_.whole_files) return NextQueued(parsed);
  parsed->reset();
  if (whole_.empty()) LODESTAR_TRY(ReadWholeFile());
  if (!whole_.empty()) {
    *parsed = std::move(whole_.front());
    whole_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status RecordSource::ReadWholeFile() {
  while (whole_.empty()) {
    std::unique_ptr<ParsedPiece> parsed;
    LODESTAR_TRY(NextQueued(&parsed));
    if (parsed == nullptr) break;
    if (!parsed->status.ok()) {
      parts_.clear();
      parsed->rows = SlotRows(format_->specs());
      parsed->records.clear();
      whole_.push_back(std::move(parsed));
    } else if (parsed->ends_file) {
      whole_.swap(parts_[parsed->file]);
      parts_.erase(parsed->file);
    } else {
      parts_[parsed->file].push_back(std::move(parsed));
    }
  }
  return absl::OkStatus();
}

absl::Status RecordSource::NextQueued(std::unique_ptr<ParsedPiece>* parsed) {
  MutexLock lock(&mutex_);
  while (!cancelled_ &&
         (queue_.empty() ? running_ > 0 : !queue_.front()->ready)) {
    changed_.Wait(&mutex_);
  }
  if (cancelled_) {
    return tensorflow::errors::Cancelled("reading was cancelled.");
  }
  parsed->reset();
  if (!queue_.empty()) {
    *parsed = std::move(queue_.front());
    queue_.pop_front();
    if ((*parsed)->status.ok()) (*parsed)->status = CheckBadInARow(**parsed);
    if (!(*parsed)->status.ok()) stop_reading_ = true;
    changed_.NotifyAll();
  }
  return absl::OkStatus();
}

absl::Status RecordSource::CheckBadInARow(const ParsedPiece& parsed) {
  bad_in_a_row_ = parsed.all_bad ? bad_in_a_row_ + parsed.num_records : 0;
  if (bad_in_a_row_ < kMaxBadInARow) return absl::OkStatus();
  return ToTensorFlow(
      InvalidArgument(Name(parsed.file), ": ", bad_in_a_row_,
                      " bad records in a row exceed the limit of ",
                      kMaxBadInARow, ". Check the file's format and slots."));
}

bool RecordSource::WaitForRoom() {
  while (!cancelled_ && !stop_reading_ && queue_.size() >= max_queued_) {
    changed_.Wait(&mutex_);
  }
  return !cancelled_ && !stop_reading_;
}

std::string RecordSource::Describe(int64_t file, int64_t record,
                                   int64_t offset) const {
  return StrCat(options_.files[file], format_->Describe(record, offset),
                command_ == nullptr ? "" : " of the output of ",
                command_ == nullptr ? "" : command_->text());
}

std::string RecordSource::Name(int64_t file) const {
  const std::string& path = options_.files[file];
  return command_ == nullptr
             ? path
             : StrCat(path, ": the output of ", command_->text());
}

absl::Status RecordSource::Open(int64_t number, OpenFile* file) const {
  const std::string& path = options_.files[number];
  file->number = number;
  std::unique_ptr<ByteStream> stream;
  LODESTAR_TRY(opener_ == nullptr
                   ? ByteStream::Open(tensorflow::Env::Default(), path, &stream)
                   : opener_->Open(path, &stream));
  file->file_bytes = stream->file_bytes();
  file->num_records = 0;
  file->first_record = options_.ordered && number == options_.first_file
                           ? options_.first_record
                           : 0;
  if (file->first_record > 0) {
    LODESTAR_TRY(stream->CheckResumed(path, options_.first_file_bytes));
  }
  if (command_ != nullptr) {
    LODESTAR_TRY(command_->Run(path, std::move(stream), &stream));
  }
  file->reader = std::make_unique<RecordReader>(
      Name(number), std::move(stream), format_->NewCutter(),
      /*may_be_empty=*/command_ != nullptr);
  return absl::OkStatus();
}

absl::Status RecordSource::ReadPiece(OpenFile* file, RecordPiece* piece,
                                     bool* ended) const {
  *ended = false;
  do {
    const absl::Status status = file->reader->Read(piece);
    if (!status.ok()) {
      // Only errors in the contents can be skipped, not I/O errors.
      if (options_.skip_log == nullptr || !absl::IsInvalidArgument(status)) {
        return status;
      }
      options_.skip_log->Add(std::string(status.message()), 1);
      *ended = true;
      return absl::OkStatus();
    }
    *ended = piece->num_records == 0;
    if (*ended && file->num_records < file->first_record) {
      // Not OutOfRange, which a dataset would take for its end.
      return ToTensorFlow(FailedPrecondition(
          Name(file->number), ": has ", file->num_records,
          " records, but reading was to resume at record ", file->first_record,
          ". The file has changed since."));
    }
    file->num_records += piece->num_records;
  } while (!*ended && file->num_records <= file->first_record);
  return absl::OkStatus();
}

int64_t RecordSource::CountOfShard(int64_t begin, int64_t end) const {
  const auto below = [this](int64_t n) {
    const int64_t index = options_.shard_index;
    return n <= index ? 0 : (n - index - 1) / options_.num_shards + 1;
  };
  return begin < end ? below(end) - below(begin) : 0;
}

absl::Status RecordSource::ParseRecords(const RecordPiece& piece, int64_t first,
                                        ParsedPiece* parsed) const {
  const char* begin = piece.begin;
  int64_t number = 0;  // index in the piece of the record at `begin`
  while (begin < piece.end) {
    const int64_t num_rows = parsed->rows.num_rows();
    BadRecord bad;
    const bool is_kept =
        options_.skip_log == nullptr || options_.skip_log->wants_messages();
    bad.wants_message = is_kept;
    const Status status =
        format_->Parse(piece.variant, begin, piece.end, &parsed->rows, &bad);
    const auto note_records = [&](int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        parsed->records.push_back(number + i);
      }
    };
    if (status.ok()) {
      // Row i is record i unless records were skipped.
      if (number > 0) note_records(parsed->rows.num_rows() - num_rows);
      break;
    }
    const int64_t record = number + bad.record;
    const std::string message =
        is_kept ? StrCat(Describe(
                             parsed->file, piece.first_record + record,
                             piece.offset + (begin - piece.begin) + bad.offset),
                         ": ", status.message())
                : "";
    if (options_.skip_log == nullptr) {
      // Makes a resumed reader find the error again.
      parsed->num_records = record;
      return ToTensorFlow(Status(status.code(), message));
    }
    note_records(bad.record);
    const bool rest_is_lost = bad.next < 0;
    // Other shards log their own records, and those before `first` are already
    // logged.
    const int64_t lost = CountOfShard(
        std::max(first, piece.first_record + record),
        piece.first_record + (rest_is_lost ? piece.num_records : record + 1));
    if (lost > 0) options_.skip_log->Add(message, lost);
    if (rest_is_lost) break;
    number = record + 1;
    begin += bad.next;
  }
  return absl::OkStatus();
}

void RecordSource::KeepWanted(int64_t first, ParsedPiece* parsed) const {
  const int64_t num_rows = parsed->rows.num_rows();
  if (first <= parsed->first_record && options_.num_shards == 1) return;
  SlotRows kept(format_->specs());
  std::vector<int64_t> records;
  for (int64_t row = 0; row < num_rows;) {
    const auto is_wanted = [&](int64_t r) {
      const int64_t record = parsed->RecordOf(r);
      return record >= first &&
             record % options_.num_shards == options_.shard_index;
    };
    int64_t end = row;
    while (end < num_rows && is_wanted(end)) {
      records.push_back(parsed->RecordOf(end) - parsed->first_record);
      ++end;
    }
    kept.Append(parsed->rows, row, end - row);
    row = std::max(end, row + 1);
  }
  parsed->rows = std::move(kept);
  parsed->records = std::move(records);
}

void RecordSource::Parse(const RecordPiece& piece, int64_t first,
                         ParsedPiece* parsed) const {
  // Allocated here, because other threads wait for this piece once it is
  // queued.
  try {
    parsed->rows = SlotRows(format_->specs());
    parsed->status = ParseRecords(piece, first, parsed);
    parsed->all_bad = parsed->rows.num_rows() == 0;
    KeepWanted(first, parsed);
  } catch (const std::bad_alloc&) {
    parsed->rows = SlotRows();
    parsed->records.clear();
    parsed->status = OutOfMemory();
  }
}

int64_t RecordSource::TakeFile() {
  MutexLock lock(&mutex_);
  const int64_t num_files = static_cast<int64_t>(options_.files.size());
  return next_file_ < num_files ? next_file_++ : -1;
}

bool RecordSource::OpenNext(Stream* stream, absl::Status* status) {
  const bool opens_ahead =
      options_.ordered && (opener_ != nullptr || command_ != nullptr);
  const size_t wanted = opens_ahead ? options_.num_threads : 1;
  while (stream->opened.size() < wanted) {
    const int64_t number = TakeFile();
    if (number < 0) break;
    stream->opened.emplace_back();
    stream->opened.back().first = Open(number, &stream->opened.back().second);
  }
  if (stream->opened.empty()) return false;
  *status = std::move(stream->opened.front().first);
  stream->current = std::move(stream->opened.front().second);
  stream->opened.pop_front();
  return true;
}

bool RecordSource::ReadNext(Stream* stream, RecordPiece* piece,
                            ParsedPiece* parsed) {
  OpenFile* const file = &stream->current;
  bool ended = true;
  while (parsed->status.ok() && ended) {
    if (file->reader == nullptr) {
      if (!OpenNext(stream, &parsed->status)) return false;
      continue;
    }
    parsed->status = ReadPiece(file, piece, &ended);
    if (ended) {
      file->reader.reset();
      parsed->ends_file = options_.whole_files;
      if (parsed->ends_file) break;
    }
  }
  parsed->file = file->number;
  parsed->file_bytes = file->file_bytes;
  parsed->first_record = piece->first_record;
  parsed->num_records = piece->num_records;
  return true;
}

void RecordSource::Run(Stream* stream) {
  while (true) {
    RecordPiece piece;
    ParsedPiece* parsed = nullptr;
    int64_t first_record = 0;
    {
      MutexLock reading(&stream->mutex);
      {
        MutexLock lock(&mutex_);
        if (!WaitForRoom()) {
          // Also ends the processes of a command.
          stream->current.reader.reset();
          stream->opened.clear();
          return;
        }
      }
      auto next = std::make_unique<ParsedPiece>();
      if (!ReadNext(stream, &piece, next.get())) return;
      parsed = next.get();
      first_record = stream->current.first_record;
      MutexLock lock(&mutex_);
      if (!parsed->status.ok()) stop_reading_ = true;
      queue_.push_back(std::move(next));
    }
    // The piece belongs to this thread until it is ready.
    if (parsed->status.ok()) Parse(piece, first_record, parsed);
    MutexLock lock(&mutex_);
    if (!parsed->status.ok()) stop_reading_ = true;
    parsed->ready = true;
    changed_.NotifyAll();
  }
}

}  // namespace lodestar
