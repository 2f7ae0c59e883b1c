// Contracts of the ops that read files of records as datasets.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace lodestar {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status RecordDatasetShape(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &unused));
  for (int i = 1; i < c->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &unused));
  }
  return tensorflow::shape_inference::ScalarShape(c);
}

}  // namespace

// What the ops of all formats have in common. A batch holds, for each feature
// slot that is used, in order, one tensor [B, *shape] if its shape has a rank,
// else two: the values of all samples [N] and int64 row_splits [B + 1]. Batches
// straddle files.
//
// filenames: [F], of any scheme that TensorFlow's file systems know; a name
//   that ends in ".gz" is decompressed.
// batch_size: Samples a batch, at least 1.
// num_parallel_files: Threads that parse, at least 1.
// shuffle_rows: 0, or the number of samples among which the next is drawn.
// seed: Of the draws.
// num_shards, shard_index: Only records whose number in their file is
//   shard_index modulo num_shards.
// slot_names: What errors call the feature slots.
// slot_types: int64 or float32.
// slot_shapes: Of one sample; of unknown rank for any number of values; with
//   one unknown dimension for one that all samples of a batch agree on.
// slot_limits: Where positive, values must be whole numbers in [0, limit).
// slot_weighs: -1, or the slot of ids that this one holds a weight each of.
// slot_used: Whether the slot is in the batch; it is checked anyway.
// drop_remainder: Whether a last batch with fewer samples is dropped.
// deterministic: Whether samples come in the order of files and records. If
//   not, each thread reads a file of its own and pieces come as they are ready.
// skip_errors: Whether bad records are left out, and noted, instead of failing.
// skip_log: The name of the log that they are noted in.
// output_types: The dtypes of a batch's tensors.
// output_shapes: Their shapes.
//
// A dataset made twice must not be merged into one by common subexpression
// elimination: each may be iterated on its own.
#define LODESTAR_REGISTER_RECORD_DATASET(name)       \
  REGISTER_OP(name)                                  \
      .Input("filenames: string")                    \
      .Input("batch_size: int64")                    \
      .Input("num_parallel_files: int64")            \
      .Input("shuffle_rows: int64")                  \
      .Input("seed: int64")                          \
      .Input("num_shards: int64")                    \
      .Input("shard_index: int64")                   \
      .Output("handle: variant")                     \
      .Attr("slot_names: list(string) >= 1")         \
      .Attr("slot_types: list({int64, float}) >= 1") \
      .Attr("slot_shapes: list(shape) >= 1")         \
      .Attr("slot_limits: list(int) >= 1")           \
      .Attr("slot_weighs: list(int) >= 1")           \
      .Attr("slot_used: list(bool) >= 1")            \
      .Attr("drop_remainder: bool = false")          \
      .Attr("deterministic: bool = true")            \
      .Attr("skip_errors: bool = false")             \
      .Attr("skip_log: string = ''")                 \
      .Attr("output_types: list(type) >= 1")         \
      .Attr("output_shapes: list(shape) >= 1")       \
      .SetDoNotOptimize()                            \
      .SetShapeFn(RecordDatasetShape)

LODESTAR_REGISTER_RECORD_DATASET("Lodestar>MultiSlotDataset").Doc(R"doc(
Reads MultiSlot text files as a dataset of batches.

Each line is one sample: for each feature slot in order a count and as many
values; integers are text of 64 bits, signed or not.

INVALID_ARGUMENT "path:line: ..." if a line is not as declared or the last one
has no newline; INVALID_ARGUMENT if a file is empty; NOT_FOUND if it is missing.
Samples before the bad line come first, as whole batches; then the dataset ends.
)doc");

}  // namespace lodestar
