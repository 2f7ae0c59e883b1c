// Ops of level-of-detail offsets.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Levels in, levels of the same number of offsets out.
absl::Status LevelsShape(InferenceContext* c, int outputs) {
  for (int k = 0; k < outputs; ++k) {
    ShapeHandle level;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(k), 1, &level));
    c->set_output(k, level);
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Lodestar>LodValidate")
    .Input("num_rows: int64")
    .Input("levels: num_levels * int64")
    .Output("validated: num_levels * int64")
    .Attr("num_levels: int >= 1")
    // A check, which no graph optimizer may drop.
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle level;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &level));
      for (int k = 1; k < c->num_inputs(); ++k) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(k), 1, &level));
        c->set_output(k - 1, level);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Passes offset levels on, if they nest.

num_rows: N, the rows that the last level covers.
levels: Offsets, outermost level first; level k indexes level k + 1.
validated: The same buffers.
INVALID_ARGUMENT, naming level and index, if a level does not start at 0,
descends, or does not end at the next level's units (the last one at N).
)doc");

REGISTER_OP("Lodestar>LodFromLengths")
    .Input("lengths: num_levels * int64")
    .Output("levels: num_levels * int64")
    .Attr("num_levels: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      for (int k = 0; k < c->num_inputs(); ++k) {
        ShapeHandle lengths;
        TF_RETURN_IF_ERROR(c->WithRank(c->input(k), 1, &lengths));
        tensorflow::shape_inference::DimensionHandle offsets;
        TF_RETURN_IF_ERROR(c->Add(c->Dim(lengths, 0), 1, &offsets));
        c->set_output(k, c->Vector(offsets));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Offsets from the lengths of units.

lengths: A vector a level.
levels: A vector a level, one number longer.
INVALID_ARGUMENT, naming level and index, if a length is negative or a sum
passes int64.
)doc");

REGISTER_OP("Lodestar>LodToAbsolute")
    .Input("levels: num_levels * int64")
    .Output("absolute: num_levels * int64")
    .Attr("num_levels: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      return LevelsShape(c, c->num_inputs());
    })
    .Doc(R"doc(
Every level in row offsets.

levels: Offsets, outermost level first; level k indexes level k + 1. The last
  one may end anywhere.
absolute: The same levels, each indexing rows.
INVALID_ARGUMENT, naming level and index, if the levels do not nest.
)doc");

REGISTER_OP("Lodestar>LodFromAbsolute")
    .Input("absolute: num_levels * int64")
    .Output("levels: num_levels * int64")
    .Attr("num_levels: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      return LevelsShape(c, c->num_inputs());
    })
    .Doc(R"doc(
Levels that index the next one, from levels that all index rows.

absolute: Row offsets, outermost level first.
levels: The same levels; level k indexes level k + 1. Empty units of a level
  belong to the unit that follows them above, at the end to the last one.
INVALID_ARGUMENT, naming level and index, if a level does not start at 0,
descends, ends elsewhere than the last one, or has an offset that is not one of
the next level's.
)doc");

}  // namespace lodestar
