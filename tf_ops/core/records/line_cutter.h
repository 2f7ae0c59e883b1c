// LineCutter: cuts a text file into lines.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_LINE_CUTTER_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_LINE_CUTTER_H_

#include <cstdint>
#include <cstring>

#include "tf_ops/core/records/record_format.h"

namespace lodestar {

// Counts the newlines in [begin, end), eight bytes at a time, since this runs
// on every byte of the file.
inline int64_t CountNewlines(const char* begin, const char* end) {
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
  constexpr uint64_t kNewlines = 0x0a0a0a0a0a0a0a0a;
  int64_t count = 0;
  const char* p = begin;
  for (; end - p >= 8; p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= kNewlines;
    // Sets the high bit of exactly the bytes that are now zero.
    const uint64_t zeros = ~(((word & kLow) + kLow) | word | kLow);
    count += __builtin_popcountll(zeros);
  }
  for (; p < end; ++p) count += *p == '\n';
  return count;
}

// Every line of a cut ends in a newline, except possibly the last line of the
// file.
class LineCutter : public RecordCutter {
 public:
  // Returns kInvalidArgument if a line is longer than 64 MiB or the file is
  // empty.
  Status Next(const char* begin, const char* end, bool at_end,
              RecordCut* cut) override {
    constexpr int64_t kMaxLineBytes = 64 << 20;
    const char* last = end;
    while (last > begin && last[-1] != '\n') --last;
    if (end - last > kMaxLineBytes) {
      return InvalidArgument(
          "line ", num_lines_ + CountNewlines(begin, last) + 1,
          ": not a text file: no newline within ", kMaxLineBytes, " bytes");
    }
    *cut = RecordCut();
    cut->records = CountNewlines(begin, last);
    if (at_end && last < end) {
      ++cut->records;
      last = end;
    }
    cut->bytes = last - begin;
    num_lines_ += cut->records;
    if (at_end && num_lines_ == 0) {
      return InvalidArgument("the file has no records");
    }
    return Status();
  }

 private:
  int64_t num_lines_ = 0;  // cut so far
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_LINE_CUTTER_H_
