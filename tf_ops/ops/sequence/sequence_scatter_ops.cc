#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

LODESTAR_OP("SequenceScatterPlaces")
    .Inputs("index: int64", "index_lod: N * int64", "updates_lod: N * int64",
            "updates_shape: int64", "x_shape: int64")
    .Outputs("places: int64")
    .Attrs("N: int >= 1")
    .Stateless([](InferenceContext* c) {
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
Returns the positions of updates of sequences in a matrix with one row per
sequence.

index: [P], the column of each update.
index_lod: Offset levels of the index, outermost first. The last one has B + 1
  offsets.
updates_lod: Offset levels of the updates, which must be the same.
updates_shape: [P, ...], of the updates.
x_shape: [B, width, ...], of the matrix, with the same trailing dimensions. For
  [B, width], updates may also have shape [P, 1].
places: [P], row * width + column of each update.
INVALID_ARGUMENT if the levels are invalid or differ, there are not P updates
and B sequences, the shapes do not match, or an index is not in [0, width).
)doc");

}  // namespace lodestar
