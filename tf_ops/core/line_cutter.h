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
    if (!at_end) {
      while (last > begin && last[-1] != '\n') --last;
      if (last == begin && end - begin > kMaxLineBytes) {
        return InvalidArgument("not text: no newline within ", kMaxLineBytes,
                               " bytes");
      }
    } else if (begin == end && is_empty_) {
      return InvalidArgument("the file has no records");
    }
    *cut = RecordCut();
    cut->bytes = last - begin;
    cut->records = std::count(begin, last, '\n');
    if (last > begin && last[-1] != '\n') ++cut->records;
    is_empty_ = is_empty_ && last == begin;
    return Status();
  }

 private:
  bool is_empty_ = true;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_LINE_CUTTER_H_
