// Shape functions and attributes shared by the op registrations. Includes
// TensorFlow's op.h and shape_inference.h.

#ifndef LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_
#define LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"

namespace lodestar {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The dtypes of ops that compute with floats, that compute with any number, and
// that move rows unchanged.
constexpr char kFloatAttr[] = "T: {half, bfloat16, float, double}";
constexpr char kNumberAttr[] =
    "T: {half, bfloat16, float, double, int32, int64}";
constexpr char kMovedAttr[] =
    "T: {half, bfloat16, float, double, int8, int16, int32, int64, uint8, "
    "uint16, uint32, uint64, bool, string}";

// The dtypes of table rows, and of their updates: double for double, else
// float.
constexpr char kRowDtype[] =
    "dtype: {float, double, half, bfloat16} = DT_FLOAT";
constexpr char kSlotDtype[] = "slot_dtype: {float, double} = DT_FLOAT";

// Checks that inputs 0, 1, ... have these ranks. kAnyRank, and inputs after the
// last one, are not checked.
constexpr int kAnyRank = -1;
inline absl::Status CheckRanks(InferenceContext* c,
                               const std::vector<int>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    ShapeHandle unused;
    if (ranks[i] == kAnyRank) continue;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), ranks[i], &unused));
  }
  return absl::OkStatus();
}

// Shape function for inputs of these ranks (0 for handles) and scalar outputs.
inline tensorflow::OpShapeInferenceFn ScalarOutputs(std::vector<int> ranks) {
  return [ranks = std::move(ranks)](InferenceContext* c) {
    TF_RETURN_IF_ERROR(CheckRanks(c, ranks));
    for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
    return absl::OkStatus();
  };
}

// Sets the shapes of outputs to the attribute `output_shapes`.
inline absl::Status OutputsOfAttribute(InferenceContext* c) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("output_shapes", &shapes));
  if (static_cast<int>(shapes.size()) != c->num_outputs()) {
    return tensorflow::errors::InvalidArgument(
        "`output_shapes` must have ", c->num_outputs(),
        " shapes, one for each output, got ", shapes.size(), ".");
  }
  for (int i = 0; i < c->num_outputs(); ++i) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    c->set_output(i, shape);
  }
  return absl::OkStatus();
}

// Sets the output to [count] + the shape of `rows` without its first dimension.
inline absl::Status ReplaceFirst(InferenceContext* c, ShapeHandle rows,
                                 DimensionHandle count, int output) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(rows, 1, &rows));
  TF_RETURN_IF_ERROR(c->ReplaceDim(rows, 0, count, &shape));
  c->set_output(output, shape);
  return absl::OkStatus();
}

// Shape function for inputs of these ranks. Output 0 has any number of rows of
// input 0.
inline tensorflow::OpShapeInferenceFn OtherRows(std::vector<int> ranks) {
  return [ranks = std::move(ranks)](InferenceContext* c) {
    TF_RETURN_IF_ERROR(CheckRanks(c, ranks));
    return ReplaceFirst(c, c->input(0), c->UnknownDim(), 0);
  };
}

// Output 0 has the shape of input 0, [N, ...], with int64 splits [B + 1].
inline absl::Status LikeSequences(InferenceContext* c, int splits = 1) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(splits), 1, &shape));
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &shape));
  c->set_output(0, shape);
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_
