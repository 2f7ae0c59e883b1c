// HugeCTR's Norm files, with and without checksums: a header of 64 bytes,
//
//   int64 error_check | number_of_records | label_dim | dense_dim | slot_num |
//   3 x reserved
//
// and then number_of_records samples (sample_fields.h) of float32 numbers
// and counted keys. Where error_check is 1 the header and every sample stand in
// a frame, where it is 0 they do not:
//
//   int32 length of the payload | payload | int8 sum of its bytes
//
// Facts from HugeCTR's include/common.hpp, include/data_readers/check_sum.hpp
// and include/data_generator.hpp.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_NORM_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_NORM_FORMAT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/records/record_format.h"
#include "tf_ops/core/records/sample_fields.h"

namespace lodestar {

// What error_check says; the variant of a file's cuts.
enum class NormCheck : int64_t { kNone = 0, kSum = 1 };

struct NormOptions {
  std::vector<FieldKind> kinds;  // of each column
  // kUint32 or kInt64: how wide keys are is not in the file.
  KeyType key = KeyType::kUint32;
  // Whether files must be as `check` says; else each file says what it is.
  bool wants_check = false;
  NormCheck check = NormCheck::kNone;
};

class NormFormat : public RecordFormat {
 public:
  // kInvalidArgument naming what a Norm file cannot hold.
  static Status Check(const std::vector<ColumnSpec>& specs,
                      const NormOptions& options);

  // REQUIRES: Check(specs, options).
  NormFormat(std::vector<ColumnSpec> specs, const NormOptions& options);

  // Checks the header, that the file has as many records as it says, and that
  // nothing follows them.
  std::unique_ptr<RecordCutter> NewCutter() const override;

  // kInvalidArgument naming the feature slot, if there is one, if
  //   a length is not that of the record's slots, or its checksum differs;
  //   an nnz is negative, more than the bytes left hold, or not the slot's
  //   size; a number that must be whole is not, or a value is beyond the limit.
  // Behind a bad nnz without a frame, or a bad length, nothing can be found.
  Status Parse(int64_t variant, const char* begin, const char* end,
               SlotRows* rows, BadRecord* bad) const override;

 private:
  const SampleFields fields_;
  const NormOptions options_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_NORM_FORMAT_H_
