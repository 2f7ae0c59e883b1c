// Shape functions and attributes shared by the op registrations.

#ifndef LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_
#define LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace lodestar {

// The dtypes of rows: of ops that compute with floats, with any number, and
// that move rows as they are.
constexpr char kFloatAttr[] = "T: {half, bfloat16, float, double}";
constexpr char kNumberAttr[] =
    "T: {half, bfloat16, float, double, int32, int64}";
constexpr char kMovedAttr[] =
    "T: {half, bfloat16, float, double, int8, int16, int32, int64, uint8, "
    "uint16, uint32, uint64, bool, string}";

// The dtypes that rows of tables may have, and those that they are updated as:
// double for double, else float.
constexpr char kRowDtype[] =
    "dtype: {float, double, half, bfloat16} = DT_FLOAT";
constexpr char kSlotDtype[] = "slot_dtype: {float, double} = DT_FLOAT";

// The handle of a resource: a scalar.
inline absl::Status CheckHandle(
    tensorflow::shape_inference::InferenceContext* c, int input = 0) {
  tensorflow::shape_inference::ShapeHandle unused;
  return c->WithRank(c->input(input), 0, &unused);
}

// Sets output to [count] + the shape of `rows` without its first dimension.
inline absl::Status ReplaceFirst(
    tensorflow::shape_inference::InferenceContext* c,
    tensorflow::shape_inference::ShapeHandle rows,
    tensorflow::shape_inference::DimensionHandle count, int output) {
  tensorflow::shape_inference::ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(rows, 1, &rows));
  TF_RETURN_IF_ERROR(c->ReplaceDim(rows, 0, count, &shape));
  c->set_output(output, shape);
  return absl::OkStatus();
}

// Output 0 is as input 0, [N, ...], whose sequences are int64 splits [B + 1].
inline absl::Status LikeSequences(
    tensorflow::shape_inference::InferenceContext* c, int splits = 1) {
  tensorflow::shape_inference::ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(splits), 1, &shape));
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &shape));
  c->set_output(0, shape);
  return absl::OkStatus();
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_
