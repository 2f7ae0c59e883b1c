// RecordSource: threads that read and parse record files ahead of one consumer.
//
// A stream reads files one after the other. Under its lock, a thread takes the
// next piece and appends a placeholder to the queue; it parses the piece
// outside the lock. Ordered: all threads share one stream, so pieces of one
// large file, or of several small ones, are parsed in parallel and leave in the
// order of files and records. Unordered: each thread has a stream. Whole files:
// the consumer gets the pieces of a file once the last one is parsed.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_SOURCE_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_SOURCE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/status.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/core/records/record_format.h"
#include "tf_ops/kernels/records/pipe_stream.h"
#include "tf_ops/kernels/records/record_reader.h"
#include "tf_ops/kernels/records/skip_log.h"

namespace lodestar {

// A parsed piece. If `status` is an error, `rows` has the samples before it,
// num_records ends there, and no piece follows.
struct ParsedPiece {
  int64_t file = 0;
  int64_t file_bytes = -1;  // its size when opened; -1 if unknown
  int64_t first_record = 0;
  int64_t num_records = 0;
  SlotRows rows;
  // The record of each row, relative to first_record; empty if row i is record
  // i.
  std::vector<int64_t> records;
  absl::Status status;
  bool all_bad = false;  // it has no good record, in any shard
  bool ready = false;
  bool ends_file = false;  // marks the end of a file; internal

  // Returns the record in the file of row `row`; for num_rows, the end of the
  // piece.
  int64_t RecordOf(int64_t row) const {
    if (row == rows.num_rows()) return first_record + num_records;
    return first_record + (records.empty() ? row : records[row]);
  }
};

class RecordSource {
 public:
  static constexpr int64_t kMaxBadInARow = 10'000'000;

  struct Options {
    std::vector<std::string> files;
    // Unless empty, a command that writes the bytes of each file.
    std::vector<std::string> open_command;
    // Unless empty, a command that each file is piped through; its output has
    // the records.
    std::vector<std::string> pipe_command;
    int64_t num_threads = 1;
    bool ordered = true;
    // Whether to hold a file's samples until all of it has been parsed without
    // errors. Needs the memory of a file; if not ordered, of one file per
    // thread.
    bool whole_files = false;
    // The position to start at; only if ordered.
    int64_t first_file = 0;
    int64_t first_record = 0;
    // The expected file_bytes of the first file, when resuming; -1: any.
    int64_t first_file_bytes = -1;
    // Selects the records of each file whose index is `shard_index` modulo
    // this.
    int64_t num_shards = 1;
    int64_t shard_index = 0;
    // If null, a bad record ends the stream. Otherwise bad records are skipped
    // and logged here, up to kMaxBadInARow consecutive ones: a small file that
    // decompresses to newlines only could otherwise keep a reader busy for
    // hours.
    std::shared_ptr<SkipLog> skip_log;
  };
  using StartThread = std::function<std::unique_ptr<tensorflow::Thread>(
      const std::string& name, std::function<void()> body)>;

  // `format` must outlive this object.
  RecordSource(const RecordFormat* format, Options options,
               const StartThread& start_thread);
  // Stops the threads and waits for them.
  ~RecordSource();

  // Returns the next piece; null after the last file. Cancelled after Cancel().
  absl::Status Next(std::unique_ptr<ParsedPiece>* parsed);

  // Wakes and stops everything. Thread-safe.
  void Cancel();

  // Returns "path:line" or "path: record r at byte b", of the command's output
  // if there is one.
  std::string Describe(int64_t file, int64_t record, int64_t offset) const;

 private:
  // A file being read.
  struct OpenFile {
    int64_t number = 0;
    int64_t file_bytes = -1;
    int64_t first_record = 0;  // earlier records are skipped
    int64_t num_records = 0;   // read so far
    std::unique_ptr<RecordReader> reader;
  };

  // Returns the next piece, or end of a file, of the queue; null if there is
  // none.
  absl::Status NextQueued(std::unique_ptr<ParsedPiece>* parsed);
  // Returns an error if too many consecutive records were bad. Requires: called
  // in queue order.
  absl::Status CheckBadInARow(const ParsedPiece& parsed)
      LODESTAR_REQUIRES(mutex_);
  // Moves the pieces of the next complete file into whole_. An error discards
  // the rest of its file and all partially read files.
  absl::Status ReadWholeFile();

  struct Stream {
    Mutex mutex;
    OpenFile current LODESTAR_GUARDED_BY(mutex);
    // The files to read next.
    std::deque<std::pair<absl::Status, OpenFile>> opened
        LODESTAR_GUARDED_BY(mutex);
  };

  // Reads and parses pieces of a stream until there are no more.
  void Run(Stream* stream);
  // Returns the index of the next file to open; -1 after the last one.
  int64_t TakeFile();
  absl::Status Open(int64_t number, OpenFile* file) const;
  // The source of a file's records, for messages.
  std::string Name(int64_t file) const;
  // Reads the next piece of `file`. If errors are skipped, an error ends the
  // file. *ended: there is no piece.
  absl::Status ReadPiece(OpenFile* file, RecordPiece* piece, bool* ended) const;
  // Moves to the next file. If the stream is ordered and there is a command,
  // opens some later files as well, so that their processes start early.
  // Returns false after the last file.
  bool OpenNext(Stream* stream, absl::Status* status)
      LODESTAR_REQUIRES(stream->mutex);
  // Reads the next piece of the current file, advancing to the next file if
  // necessary. Returns false at the end.
  bool ReadNext(Stream* stream, RecordPiece* piece, ParsedPiece* parsed)
      LODESTAR_REQUIRES(stream->mutex);
  // Parses a piece into `parsed`, skipping records before `first`.
  void Parse(const RecordPiece& piece, int64_t first,
             ParsedPiece* parsed) const;
  absl::Status ParseRecords(const RecordPiece& piece, int64_t first,
                            ParsedPiece* parsed) const;
  // Number of the records [begin, end) of a file that belong to the shard.
  int64_t CountOfShard(int64_t begin, int64_t end) const;
  void KeepWanted(int64_t first, ParsedPiece* parsed) const;
  // Waits until the queue has room. Returns false if cancelled.
  bool WaitForRoom() LODESTAR_REQUIRES(mutex_);

  const RecordFormat* const format_;
  const Options options_;
  const size_t max_queued_;
  // Null without commands.
  const std::unique_ptr<PipeCommand> opener_;
  const std::unique_ptr<PipeCommand> command_;

  std::deque<Stream> streams_;

  // Used by the consumer: the pieces of a complete file, and of others by
  // number.
  std::deque<std::unique_ptr<ParsedPiece>> whole_;
  std::map<int64_t, std::deque<std::unique_ptr<ParsedPiece>>> parts_;

  // Acquired after the mutex of a stream.
  Mutex mutex_;
  ConditionVariable changed_;
  int64_t next_file_ LODESTAR_GUARDED_BY(mutex_);  // to open
  std::deque<std::unique_ptr<ParsedPiece>> queue_ LODESTAR_GUARDED_BY(mutex_);
  int64_t running_ LODESTAR_GUARDED_BY(mutex_);
  int64_t bad_in_a_row_ LODESTAR_GUARDED_BY(mutex_) = 0;
  // An error ends the stream.
  bool stop_reading_ LODESTAR_GUARDED_BY(mutex_) = false;
  bool cancelled_ LODESTAR_GUARDED_BY(mutex_) = false;

  std::vector<std::unique_ptr<tensorflow::Thread>> threads_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_SOURCE_H_
