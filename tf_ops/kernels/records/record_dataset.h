// The dataset kernel behind every op that reads files of records. Threads:
// record_source.h.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_DATASET_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/records/record_format.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {

// A subclass reads the attributes of its format in its constructor.
class RecordDatasetOp : public tensorflow::data::DatasetOpKernel {
 public:
  // `leading`: the format's columns before the slots.
  explicit RecordDatasetOp(tensorflow::OpKernelConstruction* ctx,
                           std::vector<ColumnSpec> leading = {});

  // What all formats have in common.
  struct Attributes {
    SlotAttributes slots;
    bool drop_remainder = false;
    bool deterministic = true;
    bool whole_files = false;
    bool skip_errors = false;
    std::string skip_log;
    std::vector<std::string> open_command;
    // What files go through; empty in a format that has no such attribute.
    std::vector<std::string> pipe_command;
    // Every attribute, for the graph that the dataset serializes to.
    std::vector<std::pair<std::string, tensorflow::AttrValue>> all;
  };

 protected:
  // Makes the format of files whose records hold `specs`.
  virtual absl::Status MakeFormat(
      std::vector<ColumnSpec> specs,
      std::unique_ptr<RecordFormat>* format) const = 0;

  void MakeDataset(tensorflow::OpKernelContext* ctx,
                   tensorflow::data::DatasetBase** output) override;

 private:
  Attributes attributes_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_DATASET_H_
