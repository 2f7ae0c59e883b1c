// MultiSlot text: one sample a line, and for each feature slot in the declared
// order its number of values and the values,
//
//   <count> <v1> ... <vcount> <count> <v1> ... \n
//
// Blanks and tabs separate; more of them, and a carriage return, may end a
// line. Integers are read as C's strtoull reads them (a leading '-' wraps) and
// kept as the int64 with the same bits; floats as strtof reads them.
//
// Up to three strings without blanks may stand before the first slot, each
// `1 <string>`: see LineFields.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_MULTISLOT_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_MULTISLOT_FORMAT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/records/record_format.h"

namespace lodestar {

// What every line begins with, in this order.
struct LineFields {
  bool ins_id = false;
  bool content = false;
  // 32 characters or more, of which 11 to 13 are cmatch, 14 and 15 rank and 16
  // to 31 search_id, in hexadecimal.
  bool logkey = false;
};

// The columns that hold them: "ins_id" and "content", which are text, and
// "search_id" (the int64 with the same bits), "cmatch" and "rank".
std::vector<ColumnSpec> FieldColumns(const LineFields& fields);

class MultiSlotFormat : public RecordFormat {
 public:
  // The first of `specs` are FieldColumns(fields).
  explicit MultiSlotFormat(std::vector<ColumnSpec> specs,
                           LineFields fields = LineFields());

  std::unique_ptr<RecordCutter> NewCutter() const override;

  // Each line ends in a newline; where the last one lacks it, that is an error
  // once the line itself has been found good. kInvalidArgument naming the
  // feature slot and the byte of the line, from 1, if
  //   a count is missing, no whole number, negative, or not the slot's size;
  //   the line has fewer values than counted, or text after the last slot;
  //   a value is no number, out of its type's range, or beyond the limit;
  //   a field is missing, or a logkey too short or not hexadecimal.
  // A count of 0 is valid where size is -1.
  Status Parse(int64_t variant, const char* begin, const char* end,
               SlotRows* rows, BadRecord* bad) const override;

  std::string Describe(int64_t record, int64_t offset) const override;

 private:
  Status ParseLine(const char* begin, const char* end, const char* limit,
                   bool wants_message, SlotColumn* unused,
                   std::vector<int64_t>* lengths, SlotRows* rows) const;

  // Appends the fields from *position; moves it past them.
  Status ParseFields(const char* begin, const char** position, const char* end,
                     SlotRows* rows) const;

  const LineFields fields_;
  int64_t first_slot_ = 0;  // its column
  bool checks_lengths_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_MULTISLOT_FORMAT_H_
