// SlotDataset: base of the datasets of batches of feature slots.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_SLOT_DATASET_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_SLOT_DATASET_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tf_ops/kernels/base/kernel.h"
#include "tf_ops/kernels/records/slot_attributes.h"

namespace lodestar {

using tensorflow::data::DatasetBase;
using tensorflow::data::DatasetIterator;
using tensorflow::data::IteratorBase;
using tensorflow::data::IteratorContext;
using tensorflow::data::IteratorStateReader;
using tensorflow::data::IteratorStateWriter;
using tensorflow::data::SerializationContext;

// A dataset without an input dataset. The inputs of its op are one that the
// subclass adds, followed by int64 scalars.
class SlotDataset : public DatasetBase {
 public:
  using GraphAttrs = std::vector<std::pair<std::string, tensorflow::AttrValue>>;

  SlotDataset(tensorflow::OpKernelContext* ctx, SlotAttributes slots,
              GraphAttrs graph_attributes, std::vector<int64_t> scalars)
      : DatasetBase(tensorflow::data::DatasetContext(ctx)),
        slots_(std::move(slots)),
        graph_attributes_(std::move(graph_attributes)),
        scalars_(std::move(scalars)) {}

  const SlotAttributes& slots() const { return slots_; }

  const tensorflow::DataTypeVector& output_dtypes() const override {
    return slots_.output_types();
  }
  const std::vector<tensorflow::PartialTensorShape>& output_shapes()
      const override {
    return slots_.output_shapes();
  }
  std::string DebugString() const override { return type_string(); }
  absl::Status InputDatasets(
      std::vector<const DatasetBase*>* inputs) const override {
    inputs->clear();
    return absl::OkStatus();
  }
  absl::Status CheckExternalState() const override { return absl::OkStatus(); }

 protected:
  // Sets *node to the op's first input.
  virtual absl::Status AddFirstInput(DatasetGraphDefBuilder* builder,
                                     tensorflow::Node** node) const = 0;

  absl::Status AsGraphDefInternal(SerializationContext* ctx,
                                  DatasetGraphDefBuilder* builder,
                                  tensorflow::Node** output) const override {
    std::vector<std::pair<size_t, tensorflow::Node*>> inputs(1);
    LODESTAR_TRY(AddFirstInput(builder, &inputs[0].second));
    for (const int64_t scalar : scalars_) {
      inputs.emplace_back(inputs.size(), nullptr);
      LODESTAR_TRY(builder->AddScalar(scalar, &inputs.back().second));
    }
    const std::vector<std::pair<absl::string_view, tensorflow::AttrValue>>
        attributes(graph_attributes_.begin(), graph_attributes_.end());
    return builder->AddDataset(this, inputs, {}, attributes, output);
  }

 private:
  const SlotAttributes slots_;
  const GraphAttrs graph_attributes_;
  const std::vector<int64_t> scalars_;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_SLOT_DATASET_H_
