#include "tf_ops/ops/records/slot_attrs.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

// The common part of the dataset ops. A batch has, for each used feature slot
// in order, one tensor [B, *shape] if its shape has a rank, else two: the
// values of all samples [N] and int64 row_splits [B + 1]. Batches may span
// files.
//
// filenames: [F], of any scheme of TensorFlow's file systems; a name
//   that ends in ".gz" is decompressed.
// batch_size: Samples per batch, at least 1.
// num_parallel_files: Parser threads, at least 1.
// shuffle_rows: 0, or the size of the shuffle window in samples.
// seed: Seed of the shuffle.
// open_command: Unless empty, a command and its arguments, run without a
//   shell for each file, with "{path}" replaced by the path. Its stdout is
//   the file's contents.
// num_shards, shard_index: Selects the records whose index in their file
//   is shard_index modulo num_shards.
// drop_remainder: Whether to drop a last batch with fewer samples.
// deterministic: Whether samples have the order of files and records. If
//   not, each thread reads its own file, and pieces are returned in the order
//   in which they are read.
// whole_files: Whether to return a file's samples only after all of it is
//   parsed, so that its errors come first.
// skip_errors: Whether to skip and log bad records instead of failing.
// skip_log: The name of the log of skipped records.
// output_types: The dtypes of a batch's tensors.
// output_shapes: Their shapes.
//
// A file that is modified while it is read, or whose size has changed since an
// iterator was saved within it, is FAILED_PRECONDITION, regardless of
// skip_errors.
//
// A stateful op, so that common subexpression elimination does not merge two
// datasets, which may be iterated independently.
#define LODESTAR_RECORD_DATASET(op)                                            \
  op.Inputs("filenames: string", "batch_size: int64",                          \
            "num_parallel_files: int64", "shuffle_rows: int64", "seed: int64", \
            "num_shards: int64", "shard_index: int64")                         \
      .Outputs("handle: variant")                                              \
      .Attrs(LODESTAR_SLOT_ATTRS, "drop_remainder: bool = false",              \
             "deterministic: bool = true", "open_command: list(string) = []",  \
             "whole_files: bool = false", "skip_errors: bool = false",         \
             "skip_log: string = ''", "output_types: list(type) >= 1",         \
             "output_shapes: list(shape) >= 1")

LODESTAR_RECORD_DATASET(LODESTAR_OP("InstantDataset"))
    .Attrs("batch_sizes: list(bool) >= 1")
    .Stateful(ScalarOutputs({1, 0, 0, 0, 0, 0, 0}))
    .Doc(R"doc(
Reads binary files of Paddle's FileInstantDataset as a dataset of batches.

Each feature slot has 1 to 65535 values and batch sizes.

batch_sizes: Whether the values of a slot follow a batch size, which is ignored.

INVALID_ARGUMENT "path: record r at byte b: ..." if a record does not match the
slots or is truncated; INVALID_ARGUMENT if a file is empty; NOT_FOUND if it is
missing. Samples before a bad record are returned first, in full batches; then
the dataset ends.
)doc");

LODESTAR_RECORD_DATASET(LODESTAR_OP("MultiSlotDataset"))
    .Attrs("pipe_command: list(string) = []",
           "line_fields: list({'ins_id', 'content', 'logkey'}) = []")
    .Stateful(ScalarOutputs({1, 0, 0, 0, 0, 0, 0}))
    .Doc(R"doc(
Reads MultiSlot text files as a dataset of batches.

Each line is one sample. For each feature slot in order it has the number of
values and the values. Integers have 64 bits, signed or unsigned.

pipe_command: Unless empty, a command and its arguments, run without a shell for
  each file. Its stdin is the file's contents, its stdout the text.

INVALID_ARGUMENT "path:line: ..." if a line does not match the slots or the last
one has no newline; INVALID_ARGUMENT if a file is empty; NOT_FOUND if it is
missing; FAILED_PRECONDITION, regardless of skip_errors, if a command cannot be
run or fails. Samples before the bad line are returned first, in full batches;
then the dataset ends.

line_fields: The fields that precede the slots of each line, in this order, as
  `1 <string>`. They are tensors [B] before the slots' tensors. `ins_id` and
  `content` are strings; `logkey` is three int64 tensors: search_id, cmatch and
  rank.
)doc");

// The common part of Norm and Raw: labels, dense values and keys, as 64-bit
// columns, each kind in the declared order.
//
// slot_kinds: Per feature slot. A slot of keys has shape [] or unknown rank.
// key_type: The type in the file; uint32 and int32 are converted to int64.
LODESTAR_RECORD_DATASET(LODESTAR_OP("NormDataset"))
    .Attrs("slot_kinds: list({'label', 'dense', 'keys'}) >= 1",
           "key_type: {'uint32', 'int64'} = 'uint32'",
           "check: {'auto', 'none', 'sum'} = 'auto'")
    .Stateful(ScalarOutputs({1, 0, 0, 0, 0, 0, 0}))
    .Doc(R"doc(
Reads HugeCTR Norm files as a dataset of batches.

check: Requires files without checksums ('none') or with checksums ('sum');
  'auto' accepts both.

INVALID_ARGUMENT "path: record r at byte b: ..." if a record does not match the
slots or its checksum is wrong; INVALID_ARGUMENT "path: ..." if the header does
not match the slots, records are missing or bytes follow the last one; NOT_FOUND
if a file is missing. Samples before a bad record are returned first, in full
batches; then the dataset ends.
)doc");

LODESTAR_RECORD_DATASET(LODESTAR_OP("RawDataset"))
    .Attrs("slot_kinds: list({'label', 'dense', 'keys'}) >= 1",
           "key_type: {'uint32', 'int32', 'int64'} = 'uint32'",
           "label_type: {'float', 'int'} = 'float'",
           "dense_type: {'float', 'int'} = 'float'", "nnz_per_slot: list(int)",
           "key_offsets: list(int) = []", "num_samples: int = 0")
    .Stateful(ScalarOutputs({1, 0, 0, 0, 0, 0, 0}))
    .Doc(R"doc(
Reads HugeCTR Raw files as a dataset of batches.

label_type: float32 or int32.
dense_type: float32; or an int32 x, which float slots return as log(x + 1).
nnz_per_slot: The number of keys of every sample, per slot of keys in order.
key_offsets: Added to the keys of each slot after the limit is checked; may be
  empty.
num_samples: Samples per file if positive, else all.

INVALID_ARGUMENT "path: record r at byte b: ..." if a value does not match its
slot, or is negative where its logarithm is taken; INVALID_ARGUMENT "path: ..."
if the file's size is not a multiple of a sample's, or it has too few samples;
NOT_FOUND if a file is missing. Samples before a bad record are returned first,
in full batches; then the dataset ends.
)doc");

}  // namespace lodestar
