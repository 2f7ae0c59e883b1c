// RecordFormat: interface of the file formats of samples.
//
// One thread cuts a file, in order, into pieces of whole records. Any thread
// can parse a piece; the piece's variant is the only state of the file it
// needs.

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

// The position of the next records of a file.
struct RecordCut {
  int64_t header = 0;   // bytes before the records
  int64_t bytes = 0;    // size of the records
  int64_t records = 0;  // number of records
  int64_t variant = 0;  // for RecordFormat::Parse()
  bool last = false;    // whether the rest of the file is to be ignored
};

// Finds the records of one file. Not thread-safe.
class RecordCutter {
 public:
  virtual ~RecordCutter() = default;

  // Sets *cut for [begin, end), the bytes of the file from the end of the last
  // cut; if `at_end`, there are no more. A cut without records means that more
  // bytes are needed, or if `at_end` that the file is complete; an incomplete
  // file is an error. Called until then, so the last call has no bytes.
  //
  // Bytes that cannot be records are cut as one record, which Parse() rejects,
  // or as all remaining records of the file if no later record can be found.
  // Does not read beyond `end`, whatever the bytes contain.
  virtual Status Next(const char* begin, const char* end, bool at_end,
                      RecordCut* cut) = 0;
};

// The record that Parse() rejected.
struct BadRecord {
  int64_t record = 0;  // its index in the piece
  int64_t offset = 0;  // its first byte in the piece
  int64_t next = -1;   // the first byte of the next record; -1: unknown
  // Set by the caller. If false, the message may be empty, which makes files
  // with many bad records about ten times faster.
  bool wants_message = true;
};

// Thread-safe.
class RecordFormat {
 public:
  explicit RecordFormat(std::vector<ColumnSpec> specs)
      : specs_(std::move(specs)) {}
  virtual ~RecordFormat() = default;

  const std::vector<ColumnSpec>& specs() const { return specs_; }

  virtual std::unique_ptr<RecordCutter> NewCutter() const = 0;

  // Appends the samples of [begin, end), which are the bytes of a cut of this
  // variant or the rest of one after a bad record. On error, sets *bad; `rows`
  // then holds the samples before the bad record. The error (kInvalidArgument)
  // does not contain the position. Does not read beyond `end`. Requires: `rows`
  // was constructed from specs().
  virtual Status Parse(int64_t variant, const char* begin, const char* end,
                       SlotRows* rows, BadRecord* bad) const = 0;

  // Describes the position of a record, to be appended to the file's path in
  // errors: its index in the file and its first byte.
  virtual std::string Describe(int64_t record, int64_t offset) const {
    return StrCat(": record ", record, " at byte ", offset);
  }

 private:
  const std::vector<ColumnSpec> specs_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_RECORD_FORMAT_H_
