// HugeCTR's Norm files, with and without checksums. A header of 64 bytes,
//
//   int64 error_check | number_of_records | label_dim | dense_dim | slot_num |
//   3 x reserved
//
// is followed by number_of_records samples (sample_fields.h) of float32 values
// and counted keys. If error_check is 1, the header and every sample are
// framed:
//
//   int32 length of the payload | payload | int8 sum of its bytes
//
// Source: HugeCTR's include/common.hpp, include/data_readers/check_sum.hpp and
// include/data_generator.hpp.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_NORM_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_NORM_FORMAT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/records/record_format.h"
#include "tf_ops/core/records/sample_fields.h"

namespace lodestar {

// The values of error_check, and the variants of a file's cuts.
enum class NormCheck : int64_t { kNone = 0, kSum = 1 };

struct NormOptions {
  // Only `kinds` and `key` may be set. The file does not record the width of
  // its keys.
  SampleLayout layout;
  // If true, files must match `check`. Otherwise each file's header decides.
  bool wants_check = false;
  NormCheck check = NormCheck::kNone;
};

class NormFormat : public RecordFormat {
 public:
  // Returns kInvalidArgument with the reason if Norm files cannot hold `specs`.
  static Status Check(const std::vector<ColumnSpec>& specs,
                      const NormOptions& options);

  // Requires: Check(specs, options).
  NormFormat(std::vector<ColumnSpec> specs, const NormOptions& options);

  // The cutter checks the header, and that the file has exactly as many records
  // as the header declares.
  std::unique_ptr<RecordCutter> NewCutter() const override;

  // Returns kInvalidArgument, with the feature slot if known, if
  //   a length does not match the record's slots, or its checksum differs;
  //   an nnz is negative, larger than the remaining bytes allow, or not the
  //   slot's size; a value is not an integer where required, or not below the
  //   limit.
  // No record can be found after a bad nnz without a frame, or a bad length.
  Status Parse(int64_t variant, const char* begin, const char* end,
               SlotRows* rows, BadRecord* bad) const override;

 private:
  const SampleFields fields_;
  const NormOptions options_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_NORM_FORMAT_H_
