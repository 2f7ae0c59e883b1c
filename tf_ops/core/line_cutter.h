// LineCutter: the records of a text file are its lines.

#ifndef LODESTAR_TF_OPS_CORE_LINE_CUTTER_H_
#define LODESTAR_TF_OPS_CORE_LINE_CUTTER_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/record_format.h"

namespace lodestar {

// Every line of a cut ends in a newline, but the file's last one may lack it.
class LineCutter : public RecordCutter {
 public:
  // kInvalidArgument if a line is longer than 64 MiB or the file has no bytes.
  Status Next(const char* begin, const char* end, bool at_end,
              RecordCut* cut) override {
    constexpr int64_t kMaxLineBytes = 64 << 20;
    const char* last = end;
    while (last > begin && last[-1] != '\n') --last;
    if (end - last > kMaxLineBytes) {
      return InvalidArgument(
          "line ", num_lines_ + std::count(begin, last, '\n') + 1,
          ": not text: no newline within ", kMaxLineBytes, " bytes");
    }
    *cut = RecordCut();
    cut->records = std::count(begin, last, '\n');
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

#endif  // LODESTAR_TF_OPS_CORE_LINE_CUTTER_H_
