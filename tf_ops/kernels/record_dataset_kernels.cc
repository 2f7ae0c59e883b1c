// One dataset op for each file format. Contract: ops/record_dataset_ops.cc.

#include <memory>
#include <utility>
#include <vector>

#include "tf_ops/core/multislot_format.h"
#include "tf_ops/kernels/record_dataset.h"

namespace lodestar {
namespace {

class MultiSlotDatasetOp : public RecordDatasetOp {
 public:
  using RecordDatasetOp::RecordDatasetOp;

 protected:
  absl::Status MakeFormat(
      std::vector<ColumnSpec> specs,
      std::unique_ptr<RecordFormat>* format) const override {
    *format = std::make_unique<MultiSlotFormat>(std::move(specs));
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(
    Name("Lodestar>MultiSlotDataset").Device(tensorflow::DEVICE_CPU),
    MultiSlotDatasetOp);

}  // namespace
}  // namespace lodestar
