#include "tf_ops/ops/records/slot_attrs.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

// `memory`, a scalar, is the name of the samples in this process. Every op
// except Create and Forget returns NOT_FOUND if the name does not exist.
//
// The samples have an order. A dataset's iterator reads the samples as of its
// creation; later changes do not affect it. The slots are declared as for
// Lodestar>MultiSlotDataset.

REGISTER_OP("Lodestar>RecordMemoryCreate")
    .Input("memory: string")
    .LODESTAR_SLOT_ATTRS
    .Attr("line_fields: list({'ins_id', 'content', 'logkey'}) = []")
    .Attr("drop_zeros: bool = true")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Creates an empty set of samples. INVALID_ARGUMENT if the name is in use.

drop_zeros: Whether to drop sparse values of 0, or below 1e-6 in magnitude. An
  id and its weight are dropped together, and a slot left without values gets
  one 0.
)doc");

REGISTER_OP("Lodestar>RecordMemoryForget")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Removes the name of the samples. Existing datasets keep the samples.
)doc");

REGISTER_OP("Lodestar>RecordMemoryLoad")
    .Input("memory: string")
    .Input("filenames: string")
    .Input("num_parallel_files: int64")
    .Input("num_shards: int64")
    .Input("shard_index: int64")
    .Attr("open_command: list(string) = []")
    .Attr("pipe_command: list(string) = []")
    .Attr("preload: bool = false")
    .Attr("skip_errors: bool = false")
    .Attr("skip_log: string = ''")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 0, 0, 0}))
    .Doc(R"doc(
Reads MultiSlot files and appends their samples, in order.

Raises the errors of Lodestar>MultiSlotDataset; on error, appends no samples.

open_command: As for Lodestar>MultiSlotDataset.
pipe_command: As for Lodestar>MultiSlotDataset.
preload: Whether to only start reading on a thread; RecordMemoryWaitPreload then
  appends the samples. FAILED_PRECONDITION if there is another preload.
)doc");

REGISTER_OP("Lodestar>RecordMemoryWaitPreload")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Waits for the preload and appends its samples, or returns its error.

FAILED_PRECONDITION if no samples are arranged.
)doc");

REGISTER_OP("Lodestar>RecordMemoryRelease")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Drops the samples, except samples of a preload.
)doc");

REGISTER_OP("Lodestar>RecordMemorySize")
    .Input("memory: string")
    .Output("num_samples: int64")
    .Output("bytes: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the number of samples and their size in bytes.
)doc");

REGISTER_OP("Lodestar>RecordMemoryGlobalShuffle")
    .Input("memory: string")
    .Input("seed: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Shuffles the samples. The order depends only on their number and the seed.
)doc");

REGISTER_OP("Lodestar>RecordMemorySlotsShuffle")
    .Input("memory: string")
    .Input("slots: string")
    .Input("seed: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Shuffles the values of some slots among the samples.

slots: Names of sparse slots, which include the weights of ids. All slots of a
  sample get their values from the same other sample.
)doc");

REGISTER_OP("Lodestar>RecordMemoryMergeByInsId")
    .Input("memory: string")
    .Input("min_size: int64")
    .Output("merged: int64")
    .Output("too_few: int64")
    .Output("conflicting: int64")
    .Attr("keep_unmerged: bool")
    .Attr("erase_duplicates: bool")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Merges all samples with the same ins_id, if there are at least min_size.

FAILED_PRECONDITION if the lines have no ins_id.

min_size: At least 2.
keep_unmerged: Whether to keep samples with rarer ins_ids; otherwise they are
  dropped.
erase_duplicates: Whether to remove repeated values of a sparse slot, and to
  drop samples whose dense slots disagree.
merged: Number of samples made from several.
too_few: Number of samples dropped because of min_size.
conflicting: Number of samples dropped because they disagree.
)doc");

REGISTER_OP("Lodestar>RecordMemoryEncode")
    .Input("memory: string")
    .Input("samples: int64")
    .Output("piece: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Encodes some of the samples for Lodestar>RecordMemoryReceive.

samples: Indices of samples. INVALID_ARGUMENT if one is out of range.
)doc");

REGISTER_OP("Lodestar>RecordMemoryReceive")
    .Input("memory: string")
    .Input("pieces: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Receives encoded samples, which are held until they are committed.

pieces: Outputs of Lodestar>RecordMemoryEncode. INVALID_ARGUMENT if the slots
  differ, DATA_LOSS if bytes are damaged.
)doc");

REGISTER_OP("Lodestar>RecordMemoryArrange")
    .Input("memory: string")
    .Input("order: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Sets the order of the received samples, and prepares the commit.

order: The received index of sample 0, 1, ... INVALID_ARGUMENT unless it is a
  permutation.
)doc");

REGISTER_OP("Lodestar>RecordMemoryCommit")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Replaces the samples by the arranged ones.

FAILED_PRECONDITION if no samples are arranged.
)doc");

REGISTER_OP("Lodestar>RecordMemoryDiscard")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Drops the received samples.
)doc");

REGISTER_OP("Lodestar>ShuffledNumbers")
    .Input("count: int64")
    .Input("seed: int64")
    .Input("begin: int64")
    .Input("end: int64")
    .Output("numbers: int64")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0, 0, 0, 0}));
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns a range of the order of Lodestar>RecordMemoryGlobalShuffle.

count: Number of samples.
numbers: [end - begin], the samples at the positions from `begin` on.
)doc");

REGISTER_OP("Lodestar>RecordMemoryDataset")
    .Input("memory: string")
    .Input("batch_size: int64")
    .Input("num_queues: int64")
    .Input("queue: int64")
    .Input("seed: int64")
    .Output("handle: variant")
    .LODESTAR_SLOT_ATTRS
    .Attr("line_fields: list({'ins_id', 'content', 'logkey'}) = []")
    .Attr("drop_remainder: bool = false")
    .Attr("shuffle: bool = false")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .SetDoNotOptimize()
    .SetShapeFn(ScalarOutputs({0, 0, 0, 0, 0}))
    .Doc(R"doc(
Reads the samples as a dataset, with the tensors of Lodestar>MultiSlotDataset.

FAILED_PRECONDITION if an iterator is restored with other samples than when it
was saved. INVALID_ARGUMENT if the slots differ from the samples' slots.

num_queues, queue: Selects the samples whose index is `queue` modulo
  `num_queues`.
seed: Seed of the order, if `shuffle` is true.
)doc");

}  // namespace lodestar
