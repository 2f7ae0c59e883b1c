// SlotAttributes: the attributes that describe feature slots, and the batches
// they produce. Contract: tf_ops/ops/records/record_dataset_ops.cc.

#ifndef LODESTAR_TF_OPS_KERNELS_RECORDS_SLOT_ATTRIBUTES_H_
#define LODESTAR_TF_OPS_KERNELS_RECORDS_SLOT_ATTRIBUTES_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tf_ops/core/records/multislot_format.h"
#include "tf_ops/core/records/slot_batch.h"
#include "tf_ops/core/records/slot_rows.h"

namespace lodestar {

class SlotAttributes {
 public:
  // Reads the attributes called slot_*. `leading` are columns before the slots,
  // which the op describes otherwise: strings, or of one value.
  absl::Status Init(tensorflow::OpKernelConstruction* ctx,
                    std::vector<ColumnSpec> leading);
  // Reads output_types and output_shapes. Call after Init(). Returns
  // InvalidArgument if the types do not match the batches.
  absl::Status InitOutputs(tensorflow::OpKernelConstruction* ctx);

  // One per column.
  const std::vector<ColumnSpec>& specs() const { return specs_; }
  // Whether samples may have different numbers of values.
  bool IsSparse(size_t column) const {
    return slot_shapes_[column].unknown_rank();
  }
  const tensorflow::DataTypeVector& output_types() const {
    return output_types_;
  }
  const std::vector<tensorflow::PartialTensorShape>& output_shapes() const {
    return output_shapes_;
  }

  // Returns InvalidArgument unless output_shapes match batches of `num_rows`
  // samples; -1: any number.
  absl::Status CheckOutputShapes(int64_t num_rows) const;
  // Returns InvalidArgument unless all samples of `batch` have the same shape
  // in slots whose shape has a -1.
  absl::Status CheckInferred(const SlotBatch& batch) const;
  // Appends the tensors of a batch that has passed CheckInferred(). Throws
  // std::bad_alloc.
  void AppendTensors(const SlotBatch& batch,
                     std::vector<tensorflow::Tensor>* tensors) const;

 private:
  bool IsInferred(size_t column) const {
    return !IsSparse(column) && !slot_shapes_[column].IsFullyDefined();
  }

  std::vector<ColumnSpec> specs_;
  tensorflow::DataTypeVector slot_types_;
  std::vector<tensorflow::PartialTensorShape> slot_shapes_;
  tensorflow::DataTypeVector output_types_;
  std::vector<tensorflow::PartialTensorShape> output_shapes_;
};

// Returns the attribute line_fields, the fields before the slots of MultiSlot
// lines. Reports errors to `ctx`.
LineFields LineFieldsOf(tensorflow::OpKernelConstruction* ctx);

// Returns all attributes of a dataset op, for the graph that the dataset
// serializes to.
std::vector<std::pair<std::string, tensorflow::AttrValue>> GraphAttributes(
    tensorflow::OpKernelConstruction* ctx);

// Returns a tensor of `shape`. Throws std::bad_alloc, where TensorFlow's
// constructor would return an uninitialized tensor.
tensorflow::Tensor NewTensor(tensorflow::DataType dtype,
                             const tensorflow::TensorShape& shape);

// Checks that the input `name` of an op is a scalar from `lowest` to `highest`
// and sets *value to it.
constexpr int64_t kMinScalar = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxScalar = std::numeric_limits<int64_t>::max();
absl::Status ReadScalar(const tensorflow::Tensor& tensor, const char* name,
                        int64_t* value, int64_t lowest = kMinScalar,
                        int64_t highest = kMaxScalar);
// Checks that the input `name` of an op is a string that is not empty.
absl::Status ReadName(const tensorflow::Tensor& tensor, const char* name,
                      std::string* text);
// Checks that `filenames` is a vector and sets *paths to it.
absl::Status ReadPaths(const tensorflow::Tensor& filenames,
                       std::vector<std::string>* paths);

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_KERNELS_RECORDS_SLOT_ATTRIBUTES_H_
