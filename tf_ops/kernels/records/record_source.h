// RecordSource: threads that read and parse files of records ahead of the one
// caller that takes the parsed pieces.
//
// Ordered: a thread takes the next piece of the current file under one lock,
// puts a place for it into the queue, and parses it outside the lock. So pieces
// of one big file, or of several small ones, are parsed at the same time and
// leave in the order of files and records.
// Unordered: each thread owns a file at a time and queues pieces when parsed.
// Whole files: the caller gets the pieces of a file once the last one is
// parsed.

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

// A parsed piece. Where `status` is an error, `rows` holds the samples before
// it, num_records ends there, and nothing follows.
struct ParsedPiece {
  int64_t file = 0;
  int64_t file_bytes = -1;  // its size when it was opened; -1 if unknown
  int64_t first_record = 0;
  int64_t num_records = 0;
  SlotRows rows;
  // The record of each row, from first_record; empty where row i is record i.
  std::vector<int64_t> records;
  absl::Status status;
  bool all_bad = false;  // it has no good record, of any shard
  bool ready = false;
  bool ends_file = false;  // no piece, but the end of them; only within

  // The record in the file that row `row` comes from; for num_rows, where
  // the piece ends.
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
    // If not empty, what writes the bytes of each file.
    std::vector<std::string> open_command;
    // If not empty, what each file goes through; its output has the records.
    std::vector<std::string> pipe_command;
    int64_t num_threads = 1;
    bool ordered = true;
    // Whether a file's samples wait until all of it is known to be good. Takes
    // the memory of a file; if not ordered, of one for each thread.
    bool whole_files = false;
    // Where to begin; only if ordered.
    int64_t first_file = 0;
    int64_t first_record = 0;
    // The file_bytes of the first file, whose records before the first one were
    // read before; another size is an error.
    int64_t first_file_bytes = -1;
    // Of each file, the records whose number is `shard_index` modulo this.
    int64_t num_shards = 1;
    int64_t shard_index = 0;
    // Null: a bad record ends the stream. Else it is left out and noted here,
    // but for kMaxBadInARow of them: a small file that decompresses to nothing
    // but newlines would else keep a reader busy for hours.
    std::shared_ptr<SkipLog> skip_log;
  };
  using StartThread = std::function<std::unique_ptr<tensorflow::Thread>(
      const std::string& name, std::function<void()> body)>;

  // `format` must outlive the source.
  RecordSource(const RecordFormat* format, Options options,
               const StartThread& start_thread);
  // Stops the threads and waits for them.
  ~RecordSource();

  // The next piece; null at the end of the last file. Cancelled after Cancel().
  absl::Status Next(std::unique_ptr<ParsedPiece>* parsed);

  // Wakes and stops everything; may be called from any thread.
  void Cancel();

  // "path:line" or "path: record r at byte b", of the command's output if there
  // is one.
  std::string Describe(int64_t file, int64_t record, int64_t offset) const;

 private:
  // A file being read.
  struct OpenFile {
    int64_t number = 0;
    int64_t file_bytes = -1;
    int64_t first_record = 0;  // those before are left out
    int64_t num_records = 0;   // read so far
    std::unique_ptr<RecordReader> reader;
  };

  // The next piece, or end of a file, of the queue; null if there is none.
  absl::Status NextQueued(std::unique_ptr<ParsedPiece>* parsed);
  // An error where bad records have been left out for too long. REQUIRES:
  // pieces come in the order of the queue.
  absl::Status CheckBadInARow(const ParsedPiece& parsed)
      LODESTAR_REQUIRES(mutex_);
  // Moves the pieces of the next whole file into whole_. An error is all that
  // is left of its file, and of those under way beside it.
  absl::Status ReadWholeFile();

  void RunOrdered();
  void RunUnordered();
  // Calls `run` and makes an error of an allocation that fails in it.
  void Guarded(void (RecordSource::*run)());
  absl::Status Open(int64_t number, OpenFile* file) const;
  // What has the records of a file.
  std::string Name(int64_t file) const;
  // Reads the next piece of `file`; an error ends the file where errors are
  // skipped. *ended: there is none.
  absl::Status ReadPiece(OpenFile* file, RecordPiece* piece, bool* ended) const;
  // Opens the next file, and where there is a command some after it:
  // their processes start meanwhile. REQUIRES: there is a next file.
  absl::Status OpenNext() LODESTAR_REQUIRES(reading_mutex_);
  // Reads the next piece of the current file, moving from file to file. False
  // at the end.
  bool ReadOrdered(RecordPiece* piece, ParsedPiece* parsed)
      LODESTAR_REQUIRES(reading_mutex_);
  // Fills `parsed` from a piece of which records before `first` are left out.
  void Parse(const RecordPiece& piece, int64_t first,
             ParsedPiece* parsed) const;
  absl::Status ParseRecords(const RecordPiece& piece, int64_t first,
                            ParsedPiece* parsed) const;
  // Of the records [begin, end) of a file, those of the shard.
  int64_t CountOfShard(int64_t begin, int64_t end) const;
  void KeepWanted(int64_t first, ParsedPiece* parsed) const;
  // Waits until the queue has room. False if cancelled.
  bool WaitForRoom() LODESTAR_REQUIRES(mutex_);

  const RecordFormat* const format_;
  const Options options_;
  const size_t max_queued_;
  // Null where there are none.
  const std::unique_ptr<PipeCommand> opener_;
  const std::unique_ptr<PipeCommand> command_;

  Mutex reading_mutex_;
  OpenFile current_ LODESTAR_GUARDED_BY(reading_mutex_);
  int64_t next_file_ LODESTAR_GUARDED_BY(reading_mutex_);
  // From next_file_ on.
  std::deque<std::pair<absl::Status, OpenFile>> opened_
      LODESTAR_GUARDED_BY(reading_mutex_);

  // Of the caller: the pieces of a file that is whole, and of others by number.
  std::deque<std::unique_ptr<ParsedPiece>> whole_;
  std::map<int64_t, std::deque<std::unique_ptr<ParsedPiece>>> parts_;

  Mutex mutex_ LODESTAR_ACQUIRED_AFTER(reading_mutex_);
  ConditionVariable changed_;
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
