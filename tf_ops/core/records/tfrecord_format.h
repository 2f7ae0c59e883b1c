// TFRecord files. Each record is framed as
//   uint64 length | uint32 CRC of the length | the record | uint32 CRC of it
// little-endian, with CRCs masked as in TensorFlow.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_TFRECORD_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_TFRECORD_FORMAT_H_

#include <cstdint>
#include <string_view>

#include "tf_ops/core/records/record_format.h"

namespace lodestar {

// An empty file is valid and has no records.
class TfrecordCutter : public RecordCutter {
 public:
  // Starts at a record, given by its index in the file and its first byte.
  TfrecordCutter(int64_t record, int64_t offset)
      : num_cut_(record), offset_(offset) {}

  // Returns kDataLoss if the file ends within a record, including its header,
  // or if the CRC of a length is wrong.
  Status Next(const char* begin, const char* end, bool at_end,
              RecordCut* cut) override;

 private:
  int64_t num_cut_;
  int64_t offset_;  // of the bytes not yet cut
};

// Reads the record framed at `begin` and sets *end to the end of its frame.
// Returns kDataLoss if its CRC is wrong. Requires: TfrecordCutter cut it.
Status ReadTfrecord(const char* begin, std::string_view* record,
                    const char** end);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_TFRECORD_FORMAT_H_
