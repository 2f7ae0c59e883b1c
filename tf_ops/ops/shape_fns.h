// Shape functions shared by the op registrations.

#ifndef LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_
#define LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace lodestar {

// The handle of a resource: a scalar.
inline absl::Status CheckHandle(
    tensorflow::shape_inference::InferenceContext* c, int input = 0) {
  tensorflow::shape_inference::ShapeHandle unused;
  return c->WithRank(c->input(input), 0, &unused);
}

}  // namespace lodestar

#endif  // LODESTAR_TF_OPS_OPS_SHAPE_FNS_H_
