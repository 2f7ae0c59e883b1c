// HugeCTR's Raw files: samples (sample_fields.h) of one size, with a fixed
// number of keys in each slot, and nothing else.
//
// Facts from HugeCTR's data_reader_worker_raw.cpp and, for RawAsync,
// split_label_dense_sparse.cu and multi_hot/split_batch.cu.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_RAW_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_RAW_FORMAT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/records/record_format.h"
#include "tf_ops/core/records/sample_fields.h"

namespace lodestar {

struct RawOptions {
  // Its `counted` is taken as false.
  SampleLayout layout;
  // Of each file; what follows them is not read. <= 0: all there are.
  int64_t num_samples = 0;
};

class RawFormat : public RecordFormat {
 public:
  // kInvalidArgument naming what a Raw file cannot hold.
  static Status Check(const std::vector<ColumnSpec>& specs,
                      const RawOptions& options);

  // REQUIRES: Check(specs, options).
  RawFormat(std::vector<ColumnSpec> specs, const RawOptions& options);

  // Bytes of a sample.
  int64_t stride() const { return fields_.min_bytes(); }

  // Checks that the file's size is a multiple of stride(), and that it has
  // num_samples.
  std::unique_ptr<RecordCutter> NewCutter() const override;

  // kInvalidArgument naming the feature slot if a value is beyond the limit, a
  // number that must be whole is not, or one of which the logarithm is taken is
  // negative.
  Status Parse(int64_t variant, const char* begin, const char* end,
               SlotRows* rows, BadRecord* bad) const override;

 private:
  const SampleFields fields_;
  const int64_t num_samples_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_RAW_FORMAT_H_
