// RecordFormat: a file format of samples, as the threads that read see it.
//
// One thread cuts a file, in order, into pieces of whole records; any thread
// parses a piece, with no state of the file but the piece's variant.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_RECORD_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_RECORD_FORMAT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

// Where the next records of a file lie.
struct RecordCut {
  int64_t header = 0;   // bytes before them that are no record
  int64_t bytes = 0;    // of them all
  int64_t records = 0;  // their number
  int64_t variant = 0;  // for RecordFormat::Parse()
  bool last = false;    // whether what follows, if anything, is not to be read
};

// Finds the records of one file.
class RecordCutter {
 public:
  virtual ~RecordCutter() = default;

  // Sets *cut for [begin, end), the bytes of the file from where the last cut
  // ended; if `at_end`, there are no more. No records means that more bytes are
  // needed, or if `at_end` that the file ends here, whole: else an error says
  // why not. Is called until that happens, so the last time with no bytes.
  // Bytes that cannot be records are cut as one record, for Parse() to refuse;
  // or as all that the file says to have left, if nothing behind can be found.
  // Does not read beyond `end`, whatever the bytes say.
  virtual Status Next(const char* begin, const char* end, bool at_end,
                      RecordCut* cut) = 0;
};

// The record that Parse() has refused.
struct BadRecord {
  int64_t record = 0;  // its number in the piece, from 0
  int64_t offset = 0;  // where it begins in the piece, in bytes
  int64_t next = -1;   // where the next one begins; -1: cannot be known
  // Set by the caller: if false, the error's message may be empty, which where
  // many records are bad takes a tenth of the time.
  bool wants_message = true;
};

// Thread-safe: parsing changes nothing in the format.
class RecordFormat {
 public:
  explicit RecordFormat(std::vector<ColumnSpec> specs)
      : specs_(std::move(specs)) {}
  virtual ~RecordFormat() = default;

  const std::vector<ColumnSpec>& specs() const { return specs_; }

  virtual std::unique_ptr<RecordCutter> NewCutter() const = 0;

  // Appends the samples of [begin, end), the bytes of a cut of this variant or
  // the rest of one behind a bad record. On error (kInvalidArgument: what
  // was found and wanted, without the place) *bad is set and `rows` holds the
  // samples before the bad record. Does not read beyond `end`.
  // REQUIRES: `rows` was made from specs().
  virtual Status Parse(int64_t variant, const char* begin, const char* end,
                       SlotRows* rows, BadRecord* bad) const = 0;

  // Where a record is, for errors, to follow the file's path: its number from 0
  // and its first byte in the file.
  virtual std::string Describe(int64_t record, int64_t offset) const {
    return StrCat(": record ", record, " at byte ", offset);
  }

 private:
  const std::vector<ColumnSpec> specs_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_RECORD_FORMAT_H_
