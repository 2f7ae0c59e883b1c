// A strict parser of MultiSlot text: one sample a line, and for each feature
// slot in the declared order its number of values and the values,
//
//   <count> <v1> ... <vcount> <count> <v1> ... \n
//
// Blanks and tabs separate; more of them, and a carriage return, may end a
// line. Integers are read as C's strtoull reads them (a leading '-' wraps) and
// kept as the int64 with the same bits; floats as strtof reads them.

#ifndef LODESTAR_TF_OPS_CORE_MULTISLOT_PARSER_H_
#define LODESTAR_TF_OPS_CORE_MULTISLOT_PARSER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/multislot_rows.h"
#include "tf_ops/core/status.h"

namespace lodestar {

// Thread-safe: parsing changes nothing in the parser.
class MultiSlotParser {
 public:
  explicit MultiSlotParser(std::vector<MultiSlotSpec> specs)
      : specs_(std::move(specs)) {}

  const std::vector<MultiSlotSpec>& specs() const { return specs_; }

  // Appends the sample on the line [begin, end), which has no newline.
  // Returns kInvalidArgument naming the feature slot and the byte (from 1) if
  //   a count is missing, no whole number, negative, or not the slot's size;
  //   the line has fewer values than counted, or text after the last slot;
  //   a value is no number, out of its type's range, or beyond the limit.
  // On error `rows` is as before. A count of 0 is valid where size is -1.
  // REQUIRES: `rows` was made from specs().
  Status ParseLine(const char* begin, const char* end,
                   MultiSlotRows* rows) const;

  // As ParseLine() for each line of [begin, end) in turn, each ended by a
  // newline; the last one may lack it, which is an error once the line itself
  // has been found good. On error *bad_line is the line's number in this text,
  // from 0, and the lines before it are kept.
  Status ParseText(const char* begin, const char* end, MultiSlotRows* rows,
                   int64_t* bad_line) const;

 private:
  Status ParseSlot(const MultiSlotSpec& spec, const char* begin,
                   const char** position, const char* end,
                   MultiSlotColumn* column) const;

  std::vector<MultiSlotSpec> specs_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_MULTISLOT_PARSER_H_
