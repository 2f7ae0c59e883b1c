// HugeCTR's Raw files: samples (sample_fields.h) of one size, with a fixed
// number of keys per slot, and nothing else.
//
// Source: HugeCTR's data_reader_worker_raw.cpp and, for RawAsync,
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
  // `counted` is ignored and taken as false.
  SampleLayout layout;
  // Samples per file; the rest is not read. <= 0: all samples.
  int64_t num_samples = 0;
};

class RawFormat : public RecordFormat {
 public:
  // Returns kInvalidArgument with the reason if Raw files cannot hold `specs`.
  static Status Check(const std::vector<ColumnSpec>& specs,
                      const RawOptions& options);

  // Requires: Check(specs, options).
  RawFormat(std::vector<ColumnSpec> specs, const RawOptions& options);

  // Size of a sample in bytes.
  int64_t stride() const { return fields_.min_bytes(); }

  // The cutter checks that the file's size is a multiple of stride() and that
  // it has num_samples samples.
  std::unique_ptr<RecordCutter> NewCutter() const override;

  // Returns kInvalidArgument with the feature slot if a value is not below the
  // limit, is not an integer where required, or is negative where its logarithm
  // is taken.
  Status Parse(int64_t variant, const char* begin, const char* end,
               SlotRows* rows, BadRecord* bad) const override;

 private:
  const SampleFields fields_;
  const int64_t num_samples_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_RAW_FORMAT_H_
