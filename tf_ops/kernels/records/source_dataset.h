// Bases of the datasets that have no input dataset, and of their iterators.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_SOURCE_DATASET_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_SOURCE_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tf_ops/core/base/mutex.h"
#include "tf_ops/kernels/base/kernel.h"

namespace lodestar {

using tensorflow::data::DatasetBase;
using tensorflow::data::DatasetIterator;
using tensorflow::data::IteratorBase;
using tensorflow::data::IteratorContext;
using tensorflow::data::IteratorStateReader;
using tensorflow::data::IteratorStateWriter;
using tensorflow::data::SerializationContext;

// The inputs of the op are one that the subclass adds, followed by int64
// scalars.
class SourceDataset : public DatasetBase {
 public:
  using GraphAttrs = std::vector<std::pair<std::string, tensorflow::AttrValue>>;

  SourceDataset(OpKernelContext* ctx, tensorflow::DataTypeVector output_types,
                std::vector<tensorflow::PartialTensorShape> output_shapes,
                GraphAttrs graph_attributes = {},
                std::vector<int64_t> scalars = {})
      : DatasetBase(tensorflow::data::DatasetContext(ctx)),
        output_types_(std::move(output_types)),
        output_shapes_(std::move(output_shapes)),
        graph_attributes_(std::move(graph_attributes)),
        scalars_(std::move(scalars)) {}

  const tensorflow::DataTypeVector& output_dtypes() const override {
    return output_types_;
  }
  const std::vector<tensorflow::PartialTensorShape>& output_shapes()
      const override {
    return output_shapes_;
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
  const tensorflow::DataTypeVector output_types_;
  const std::vector<tensorflow::PartialTensorShape> output_shapes_;
  const GraphAttrs graph_attributes_;
  const std::vector<int64_t> scalars_;
};

// Ends after an error, since the position is unknown then.
template <typename Dataset>
class SourceIterator : public DatasetIterator<Dataset> {
 public:
  using DatasetIterator<Dataset>::DatasetIterator;

 protected:
  virtual absl::Status Next(IteratorContext* ctx, std::vector<Tensor>* tensors,
                            bool* end_of_sequence)
      LODESTAR_REQUIRES(mutex_) = 0;

  absl::Status GetNextInternal(IteratorContext* ctx,
                               std::vector<Tensor>* tensors,
                               bool* end_of_sequence) override {
    MutexLock lock(&mutex_);
    *end_of_sequence = ended_;
    if (ended_) return absl::OkStatus();
    const absl::Status status = WithoutBadAlloc([&] {
      mutex_.AssertHeld();
      return Next(ctx, tensors, end_of_sequence);
    });
    ended_ = *end_of_sequence || !status.ok();
    return status;
  }

  std::shared_ptr<tensorflow::data::model::Node> CreateNode(
      IteratorContext* ctx,
      tensorflow::data::model::Node::Args args) const override {
    return tensorflow::data::model::MakeSourceNode(std::move(args));
  }

  Mutex mutex_;
  bool ended_ LODESTAR_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_SOURCE_DATASET_H_
