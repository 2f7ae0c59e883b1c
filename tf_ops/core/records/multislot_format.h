// MultiSlot text: one sample per line. Each line has, for each feature slot in
// the declared order, the number of values and the values:
//
//   <count> <v1> ... <vcount> <count> <v1> ... \n
//
// Values are separated by blanks and tabs. Extra blanks and a carriage return
// may end a line. Integers are parsed like C's strtoull (a leading '-' wraps)
// and stored as the int64 with the same bits; floats are parsed like strtof.
//
// Up to three strings without blanks may precede the first slot, each as `1
// <string>`, see LineFields.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_MULTISLOT_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_MULTISLOT_FORMAT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/records/record_format.h"

namespace lodestar {

// The fields that precede the first slot, in this order.
struct LineFields {
  bool ins_id = false;
  bool content = false;
  // At least 32 characters. Characters 11 to 13 are cmatch, 14 and 15 rank, and
  // 16 to 31 search_id, in hexadecimal.
  bool logkey = false;
};

// The columns of the fields: "ins_id" and "content", which are strings, and
// "search_id" (the int64 with the same bits), "cmatch" and "rank".
std::vector<ColumnSpec> FieldColumns(const LineFields& fields);

class MultiSlotFormat : public RecordFormat {
 public:
  // Requires: `specs` begins with FieldColumns(fields).
  explicit MultiSlotFormat(std::vector<ColumnSpec> specs,
                           LineFields fields = LineFields());

  std::unique_ptr<RecordCutter> NewCutter() const override;

  // Parses lines that end in newlines. A missing newline at the end of the file
  // is reported after the last line itself has been parsed. Returns
  // kInvalidArgument with the feature slot and the byte of the line, from 1, if
  //   a count is missing, not an integer, negative, or not the slot's size;
  //   the line has fewer values than counted, or text after the last slot;
  //   a value is not a number, out of its type's range, or not below the limit;
  //   a field is missing, or a logkey is too short or not hexadecimal.
  // A count of 0 is valid if the slot's size is -1.
  Status Parse(int64_t variant, const char* begin, const char* end,
               SlotRows* rows, BadRecord* bad) const override;

  std::string Describe(int64_t record, int64_t offset) const override;

 private:
  Status ParseLine(const char* begin, const char* end, const char* limit,
                   bool wants_message, std::vector<int64_t>* lengths,
                   SlotRows* rows) const;

  // Appends the fields at *position and moves *position past them.
  Status ParseFields(const char* begin, const char** position, const char* end,
                     SlotRows* rows) const;

  const LineFields fields_;
  int64_t first_slot_ = 0;  // column of the first slot
  bool checks_lengths_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_MULTISLOT_FORMAT_H_
