#include "tf_ops/ops/records/slot_attrs.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

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
// open_command: If not empty, a command and its arguments, run without a shell
//   for each file, with its path in the place of each "{path}": its stdout is
//   the file's bytes.
// num_shards, shard_index: Only records whose number in their file is
//   shard_index modulo num_shards.
// drop_remainder: Whether a last batch with fewer samples is dropped.
// deterministic: Whether samples come in the order of files and records. If
//   not, each thread reads a file of its own and pieces come as they are ready.
// whole_files: Whether a file's samples come only once all of it is parsed, so
//   that an error in it comes before them.
// skip_errors: Whether bad records are left out, and noted, instead of failing.
// skip_log: The name of the log that they are noted in.
// output_types: The dtypes of a batch's tensors.
// output_shapes: Their shapes.
//
// A file that is written to while it is read, or that has another size than
// when an iterator was saved within it, is FAILED_PRECONDITION, skip_errors or
// not.
//
// A dataset made twice must not be merged into one by common subexpression
// elimination: each may be iterated on its own.
#define LODESTAR_RECORD_DATASET(register_op)                    \
  register_op.Input("filenames: string")                        \
      .Input("batch_size: int64")                               \
      .Input("num_parallel_files: int64")                       \
      .Input("shuffle_rows: int64")                             \
      .Input("seed: int64")                                     \
      .Input("num_shards: int64")                               \
      .Input("shard_index: int64")                              \
      .Output("handle: variant")                                \
      .LODESTAR_SLOT_ATTRS.Attr("drop_remainder: bool = false") \
      .Attr("deterministic: bool = true")                       \
      .Attr("open_command: list(string) = []")                  \
      .Attr("whole_files: bool = false")                        \
      .Attr("skip_errors: bool = false")                        \
      .Attr("skip_log: string = ''")                            \
      .Attr("output_types: list(type) >= 1")                    \
      .Attr("output_shapes: list(shape) >= 1")                  \
      .SetDoNotOptimize()

LODESTAR_RECORD_DATASET(REGISTER_OP("Lodestar>MultiSlotDataset"))
    .SetShapeFn(ScalarOutputs({1, 0, 0, 0, 0, 0, 0}))
    .Attr("pipe_command: list(string) = []")
    .Attr("line_fields: list({'ins_id', 'content', 'logkey'}) = []")
    .Doc(R"doc(
Reads MultiSlot text files as a dataset of batches.

Each line is one sample: for each feature slot in order a count and as many
values; integers are text of 64 bits, signed or not.

pipe_command: If not empty, a command and its arguments, run without a shell for
  each file: its stdin is the file's bytes, its stdout the text.

INVALID_ARGUMENT "path:line: ..." if a line is not as declared or the last one
has no newline; INVALID_ARGUMENT if a file is empty; NOT_FOUND if it is missing;
FAILED_PRECONDITION, skip_errors or not, if a command cannot be run or fails.
Samples before the bad line come first, as whole batches; then the dataset ends.

line_fields: What each line begins with, in this order, as `1 <string>`: tensors
  [B] before those of the slots. `ins_id` and `content` are strings; `logkey` is
  three int64: search_id, cmatch and rank.
)doc");

// What Norm and Raw have in common: labels, dense numbers and keys of 64 bits,
// each in the declared order.
//
// slot_kinds: Of each feature slot. A slot of keys has the shape [] or any.
// key_type: As the file has them; uint32 and int32 become int64.
LODESTAR_RECORD_DATASET(REGISTER_OP("Lodestar>NormDataset"))
    .SetShapeFn(ScalarOutputs({1, 0, 0, 0, 0, 0, 0}))
    .Attr("slot_kinds: list({'label', 'dense', 'keys'}) >= 1")
    .Attr("key_type: {'uint32', 'int64'} = 'uint32'")
    .Attr("check: {'auto', 'none', 'sum'} = 'auto'")
    .Doc(R"doc(
Reads HugeCTR Norm files as a dataset of batches.

check: What files have to be: without ('none') or with checksums ('sum'). 'auto'
  takes what each file says it is.

INVALID_ARGUMENT "path: record r at byte b: ..." if a record is not as declared
or its checksum differs; INVALID_ARGUMENT "path: ..." if the header is not as
declared, records are missing or bytes follow the last; NOT_FOUND if a file is
missing. Samples before a bad record come first, as whole batches; then the
dataset ends.
)doc");

LODESTAR_RECORD_DATASET(REGISTER_OP("Lodestar>RawDataset"))
    .SetShapeFn(ScalarOutputs({1, 0, 0, 0, 0, 0, 0}))
    .Attr("slot_kinds: list({'label', 'dense', 'keys'}) >= 1")
    .Attr("key_type: {'uint32', 'int32', 'int64'} = 'uint32'")
    .Attr("label_type: {'float', 'int'} = 'float'")
    .Attr("dense_type: {'float', 'int'} = 'float'")
    .Attr("nnz_per_slot: list(int)")
    .Attr("key_offsets: list(int) = []")
    .Attr("num_samples: int = 0")
    .Doc(R"doc(
Reads HugeCTR Raw files as a dataset of batches.

label_type: float32 or int32.
dense_type: float32; or an int32 x, of which float slots hold log(x + 1).
nnz_per_slot: Keys of every sample in each slot of keys, in order.
key_offsets: What is added to the keys of each, after the limit was checked; may
  be empty.
num_samples: Of each file, where positive; else all there are.

INVALID_ARGUMENT "path: record r at byte b: ..." if a value is not as declared,
or negative where its logarithm is taken; INVALID_ARGUMENT "path: ..." if the
file's size is not a multiple of a sample's, or it has too few; NOT_FOUND if a
file is missing. Samples before a bad record come first, as whole batches; then
the dataset ends.
)doc");

}  // namespace lodestar
