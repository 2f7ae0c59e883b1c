#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

REGISTER_OP("Lodestar>SequenceScatterPlaces")
    .Input("index: int64")
    .Input("index_lod: N * int64")
    .Input("updates_lod: N * int64")
    .Input("updates_shape: int64")
    .Input("x_shape: int64")
    .Output("places: int64")
    .Attr("N: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle index;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &index));
      ShapeHandle unused;
      for (int k = 1; k < c->num_inputs(); ++k) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(k), 1, &unused));
      }
      c->set_output(0, index);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Where updates of sequences go in a matrix of one row a sequence.

index: [P], the column of each update.
index_lod: Levels of offsets over the index, outermost first. The last one has
  B + 1 offsets.
updates_lod: Those over the updates, which must be the same.
updates_shape: [P, ...], of the updates.
x_shape: [B, width, ...], of the matrix, with the same numbers at the end.
  Updates of [B, width] may also have [P, 1].
places: [P], row * width + column of each update.
INVALID_ARGUMENT if the levels do not nest or differ, there are not P updates
and B sequences, the shapes do not fit, or an index is not in [0, width).
)doc");

}  // namespace lodestar
