// The dataset kernel of every op that reads record files. For its threads see
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
#include "tf_ops/kernels/records/record_source.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {

// Subclasses read the attributes of their format in the constructor.
class RecordDatasetOp : public tensorflow::data::DatasetOpKernel {
 public:
  // `leading`: columns of the format before the slots.
  explicit RecordDatasetOp(tensorflow::OpKernelConstruction* ctx,
                           std::vector<ColumnSpec> leading = {});

  // The attributes of all formats.
  struct Attributes {
    SlotAttributes slots;
    bool drop_remainder = false;
    bool skip_errors = false;
    std::string skip_log;
    RecordSource::Options source;
    // All attributes, for the graph that the dataset serializes to.
    std::vector<std::pair<std::string, tensorflow::AttrValue>> all;
  };

 protected:
  // Creates the format of files whose records have `specs`.
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
