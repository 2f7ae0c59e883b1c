#include "tf_ops/ops/records/slot_attrs.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

// `memory`, a scalar, is the name that the samples have in this process. Every
// op but Create and Forget: NOT_FOUND if there is none of this name.
//
// What is in memory is a sequence of samples. A dataset's iterator reads what
// was there when it was made; ops that change it do not disturb one under way.
// The slots are given as to Lodestar>MultiSlotDataset.

REGISTER_OP("Lodestar>RecordMemoryCreate")
    .Input("memory: string")
    .LODESTAR_SLOT_ATTRS
    .Attr("line_fields: list({'ins_id', 'content', 'logkey'}) = []")
    .Attr("drop_zeros: bool = true")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Makes an empty memory of samples. INVALID_ARGUMENT if the name is in use.

drop_zeros: Whether sparse values of 0, or below 1e-6 in magnitude, are dropped,
  an id and its weight together, and a slot without values gets one 0.
)doc");

REGISTER_OP("Lodestar>RecordMemoryForget")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Lets go of the samples; datasets that were made on them keep them.
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
Reads MultiSlot files and adds their samples, in order, behind those there.

Errors are those of Lodestar>MultiSlotDataset; none of the samples is added then.

open_command: As that of Lodestar>MultiSlotDataset.
pipe_command: As that of Lodestar>MultiSlotDataset.
preload: Whether only to begin, on a thread; the samples are added when they are
  waited for. FAILED_PRECONDITION if another preload was not waited for.
)doc");

REGISTER_OP("Lodestar>RecordMemoryWaitPreload")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Waits until the preload is done and adds its samples, or fails as it has failed.

FAILED_PRECONDITION if none was begun.
)doc");

REGISTER_OP("Lodestar>RecordMemoryRelease")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Drops the samples, but not those of a preload.
)doc");

REGISTER_OP("Lodestar>RecordMemorySize")
    .Input("memory: string")
    .Output("num_samples: int64")
    .Output("bytes: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
The number of samples and the bytes that they take.
)doc");

REGISTER_OP("Lodestar>RecordMemoryGlobalShuffle")
    .Input("memory: string")
    .Input("seed: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Puts the samples in an order that depends on their number and the seed.
)doc");

REGISTER_OP("Lodestar>RecordMemorySlotsShuffle")
    .Input("memory: string")
    .Input("slots: string")
    .Input("seed: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Gives each sample the values that another one has in some slots.

slots: Names of sparse slots; ids take their weights along. All slots of a
  sample come from the same one.
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
Makes one sample of all samples with one ins_id, where they are min_size or more.

FAILED_PRECONDITION if the lines have no ins_id.

min_size: At least 2.
keep_unmerged: Whether samples whose ins_id fewer have stay, or are dropped.
erase_duplicates: Whether a value stays only once in a sparse slot, and samples
  are dropped whose dense slots disagree.
merged: Samples that were made of several.
too_few: Samples dropped for min_size.
conflicting: Samples dropped since they disagree.
)doc");

REGISTER_OP("Lodestar>RecordMemoryEncode")
    .Input("memory: string")
    .Input("samples: int64")
    .Output("piece: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Some of the samples as bytes, for Lodestar>RecordMemoryReceive.

samples: Their numbers. INVALID_ARGUMENT if there is none of a number.
)doc");

REGISTER_OP("Lodestar>RecordMemoryReceive")
    .Input("memory: string")
    .Input("pieces: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Takes samples of other memories, which wait until they are committed.

pieces: What Lodestar>RecordMemoryEncode has given. INVALID_ARGUMENT if the slots
  are others, DATA_LOSS if bytes are.
)doc");

REGISTER_OP("Lodestar>RecordMemoryArrange")
    .Input("memory: string")
    .Input("order: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Puts the samples that wait in an order, and makes all ready to commit them.

order: Which of those that were received is sample 0, 1, ... INVALID_ARGUMENT
  unless it has each of them once.
)doc");

REGISTER_OP("Lodestar>RecordMemoryCommit")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Puts the arranged samples in the place of those in memory.

FAILED_PRECONDITION if there are none.
)doc");

REGISTER_OP("Lodestar>RecordMemoryDiscard")
    .Input("memory: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Drops the samples that wait.
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
A stretch of the order in which Lodestar>RecordMemoryGlobalShuffle puts samples.

count: Samples.
numbers: [end - begin], those that stand at the places from `begin` on.
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
The samples as a dataset of batches, of the tensors of Lodestar>MultiSlotDataset.

FAILED_PRECONDITION if an iterator is restored over other samples than those it
was saved over. INVALID_ARGUMENT if slots are not those in memory.

num_queues, queue: Only samples whose number is `queue` modulo `num_queues`.
seed: Of the order, where `shuffle` is true.
)doc");

}  // namespace lodestar
