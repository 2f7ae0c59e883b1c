// Ops that add sequences into the rows of a matrix.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace lodestar {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Lodestar>SequenceScatterPlaces")
    .Input("index: int64")
    .Input("index_lod: N * int64")
    .Input("updates_lod: N * int64")
    .Input("num_updates: int64")
    .Input("num_rows: int64")
    .Input("width: int64")
    .Output("places: int64")
    .Attr("N: int >= 1")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle index;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &index));
      ShapeHandle unused;
      for (int k = 1; k < c->num_inputs(); ++k) {
        const int rank = k < c->num_inputs() - 3 ? 1 : 0;
        TF_RETURN_IF_ERROR(c->WithRank(c->input(k), rank, &unused));
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
num_updates: The number of updates, P.
num_rows: The rows of the matrix, B.
width: Its columns.
places: [P], row * width + column of each update.
INVALID_ARGUMENT if the levels do not nest or differ, there are not P updates
and B sequences, or an index is not in [0, width).
)doc");

}  // namespace lodestar
