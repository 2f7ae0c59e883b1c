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

class RecordDatasetOp : public tensorflow::data::DatasetOpKernel {
 public:
  // Reads the attributes of a format, and creates it for records of `specs`.
  using MakeFormat = absl::Status (*)(
      tensorflow::OpKernelConstruction* ctx, std::vector<ColumnSpec> specs,
      std::shared_ptr<const RecordFormat>* format);

  // `leading`: columns of the format before the slots.
  RecordDatasetOp(tensorflow::OpKernelConstruction* ctx, MakeFormat make_format,
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
  void MakeDataset(tensorflow::OpKernelContext* ctx,
                   tensorflow::data::DatasetBase** output) override;

 private:
  Attributes attributes_;
  std::shared_ptr<const RecordFormat> format_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_RECORD_DATASET_H_
