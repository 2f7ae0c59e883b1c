// Binary files of Paddle's FileInstantDataset: samples without a header. A
// sample has for each feature slot in the declared order, little-endian,
//
//   uint16 count | uint64 batch size | values of 8 bytes, or floats of 4
//
// where `count` is the number of values and batch sizes. Only some slots have a
// batch size, which is ignored: in Paddle the dense ones that are used.
//
// Source: Paddle's MultiSlotFileInstantDataFeed in framework/data_feed.cc.

#ifndef LODESTAR_TF_OPS_CORE_RECORDS_INSTANT_FORMAT_H_
#define LODESTAR_TF_OPS_CORE_RECORDS_INSTANT_FORMAT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/records/record_format.h"

namespace lodestar {

class InstantFormat : public RecordFormat {
 public:
  // `batch_sizes` tells for each column whether it has a batch size. Requires:
  // as many as columns, none of which is text.
  InstantFormat(std::vector<ColumnSpec> specs, std::vector<bool> batch_sizes);

  // The cutter checks that the file has records and is not truncated.
  std::unique_ptr<RecordCutter> NewCutter() const override;

  // Returns kInvalidArgument with the feature slot and the byte of the record
  // if
  //   a count is 0 or not the slot's size, or the file is truncated, after
  //   which no record can be found;
  //   a value is not below the limit.
  Status Parse(int64_t variant, const char* begin, const char* end,
               SlotRows* rows, BadRecord* bad) const override;

 private:
  const std::vector<bool> batch_sizes_;
  bool checks_lengths_ = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_CORE_RECORDS_INSTANT_FORMAT_H_
