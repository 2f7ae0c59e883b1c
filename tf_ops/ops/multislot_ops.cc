// Contract of the MultiSlot dataset op.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace lodestar {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("Lodestar>MultiSlotDataset")
    .Input("filenames: string")
    .Input("batch_size: int64")
    .Input("num_parallel_files: int64")
    .Input("shuffle_rows: int64")
    .Input("seed: int64")
    .Output("handle: variant")
    .Attr("slot_names: list(string) >= 1")
    .Attr("slot_types: list({int64, float}) >= 1")
    .Attr("slot_shapes: list(shape) >= 1")
    .Attr("slot_limits: list(int) >= 1")
    .Attr("drop_remainder: bool = false")
    .Attr("deterministic: bool = true")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    // A dataset made twice must not be merged into one by common
    // subexpression elimination: each may be iterated on its own.
    .SetDoNotOptimize()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &unused));
      for (int i = 1; i < 5; ++i) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &unused));
      }
      return tensorflow::shape_inference::ScalarShape(c);
    })
    .Doc(R"doc(
Reads MultiSlot text files as a dataset of batches.

Each line is one sample: for each feature slot in order a count and as many
values. A batch holds, for each feature slot in order, one tensor [B, *shape] if
its shape is known, else two: the values of all samples [N] and int64 row_splits
[B + 1]. Batches straddle files.

filenames: [F], of any scheme that TensorFlow's file systems know; a name that
  ends in ".gz" is decompressed.
batch_size: Samples a batch, at least 1.
num_parallel_files: Threads that parse, at least 1.
shuffle_rows: 0, or the number of samples among which the next is drawn.
seed: Of the draws.
slot_names: What errors call the feature slots.
slot_types: int64 (text of 64 bits, signed or not) or float32.
slot_shapes: Fully defined, or of unknown rank for any number of values.
slot_limits: Where positive, values must be whole numbers in [0, limit).
drop_remainder: Whether a last batch with fewer samples is dropped.
deterministic: Whether samples come in the order of files and lines. If not,
  each thread reads a file of its own and pieces come as they are ready.
output_types: The dtypes of a batch's tensors, as described above.
output_shapes: Their shapes.
INVALID_ARGUMENT "path:line: ..." if a line is not as declared or the last one
has no newline; INVALID_ARGUMENT if a file is empty; NOT_FOUND if it is missing.
Samples before the bad line come first, as whole batches; then the dataset ends.
)doc");

}  // namespace lodestar
