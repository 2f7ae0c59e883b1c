#include "tf_ops/ops/records/slot_attrs.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {

// `memory`, a scalar, is the name of the samples in this process. Every op
// except Create and Forget returns NOT_FOUND if the name does not exist.
//
// The samples have an order. A dataset's iterator reads the samples as of its
// creation; later changes do not affect it. The slots are declared as for
// Lodestar>MultiSlotDataset.

LODESTAR_OP("RecordMemoryCreate")
    .Inputs("memory: string")
    .Attrs(LODESTAR_SLOT_ATTRS,
           "line_fields: list({'ins_id', 'content', 'logkey'}) = []",
           "drop_zeros: bool = true")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Creates an empty set of samples. INVALID_ARGUMENT if the name is in use.

drop_zeros: Whether to drop sparse values of 0, or below 1e-6 in magnitude. An
  id and its weight are dropped together, and a slot left without values gets
  one 0.
)doc");

LODESTAR_OP("RecordMemoryForget")
    .Inputs("memory: string")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Removes the name of the samples. Existing datasets keep the samples.
)doc");

LODESTAR_OP("RecordMemoryLoad")
    .Inputs("memory: string", "filenames: string", "num_parallel_files: int64",
            "num_shards: int64", "shard_index: int64")
    .Attrs("open_command: list(string) = []", "pipe_command: list(string) = []",
           "preload: bool = false", "skip_errors: bool = false",
           "skip_log: string = ''")
    .Stateful(ScalarOutputs({0, 1, 0, 0, 0}))
    .Doc(R"doc(
Reads MultiSlot files and appends their samples, in order.

Raises the errors of Lodestar>MultiSlotDataset; on error, appends no samples.

open_command: As for Lodestar>MultiSlotDataset.
pipe_command: As for Lodestar>MultiSlotDataset.
preload: Whether to only start reading on a thread; RecordMemoryWaitPreload then
  appends the samples. FAILED_PRECONDITION if there is another preload.
)doc");

LODESTAR_OP("RecordMemoryWaitPreload")
    .Inputs("memory: string")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Waits for the preload and appends its samples, or returns its error.

FAILED_PRECONDITION if no samples are arranged.
)doc");

LODESTAR_OP("RecordMemoryRelease")
    .Inputs("memory: string")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Drops the samples, except samples of a preload.
)doc");

LODESTAR_OP("RecordMemorySize")
    .Inputs("memory: string")
    .Outputs("num_samples: int64", "bytes: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the number of samples and their size in bytes.
)doc");

LODESTAR_OP("RecordMemoryGlobalShuffle")
    .Inputs("memory: string", "seed: int64")
    .Stateful(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Shuffles the samples. The order depends only on their number and the seed.
)doc");

LODESTAR_OP("RecordMemorySlotsShuffle")
    .Inputs("memory: string", "slots: string", "seed: int64")
    .Stateful(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Shuffles the values of some slots among the samples.

slots: Names of sparse slots, which include the weights of ids. All slots of a
  sample get their values from the same other sample.
)doc");

LODESTAR_OP("RecordMemoryMergeByInsId")
    .Inputs("memory: string", "min_size: int64")
    .Outputs("merged: int64", "too_few: int64", "conflicting: int64")
    .Attrs("keep_unmerged: bool", "erase_duplicates: bool")
    .Stateful(ScalarOutputs({0, 0}))
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

LODESTAR_OP("RecordMemoryEncode")
    .Inputs("memory: string", "samples: int64")
    .Outputs("piece: string")
    .Stateful(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Encodes some of the samples for Lodestar>RecordMemoryReceive.

samples: Indices of samples. INVALID_ARGUMENT if one is out of range.
)doc");

LODESTAR_OP("RecordMemoryReceive")
    .Inputs("memory: string", "pieces: string")
    .Stateful(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Receives encoded samples, which are held until they are committed.

pieces: Outputs of Lodestar>RecordMemoryEncode. INVALID_ARGUMENT if the slots
  differ, DATA_LOSS if bytes are damaged.
)doc");

LODESTAR_OP("RecordMemoryArrange")
    .Inputs("memory: string", "order: int64")
    .Stateful(ScalarOutputs({0, 1}))
    .Doc(R"doc(
Sets the order of the received samples, and prepares the commit.

order: The received index of sample 0, 1, ... INVALID_ARGUMENT unless it is a
  permutation.
)doc");

LODESTAR_OP("RecordMemoryCommit")
    .Inputs("memory: string")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Replaces the samples by the arranged ones.

FAILED_PRECONDITION if no samples are arranged.
)doc");

LODESTAR_OP("RecordMemoryDiscard")
    .Inputs("memory: string")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Drops the received samples.
)doc");

LODESTAR_OP("ShuffledNumbers")
    .Inputs("count: int64", "seed: int64", "begin: int64", "end: int64")
    .Outputs("numbers: int64")
    .Stateless(Shapes("[], [], [], [] -> [?]"))
    .Doc(R"doc(
Returns a range of the order of Lodestar>RecordMemoryGlobalShuffle.

count: Number of samples.
numbers: [end - begin], the samples at the positions from `begin` on.
)doc");

LODESTAR_OP("RecordMemoryDataset")
    .Inputs("memory: string", "batch_size: int64", "num_queues: int64",
            "queue: int64", "seed: int64")
    .Outputs("handle: variant")
    .Attrs(LODESTAR_SLOT_ATTRS,
           "line_fields: list({'ins_id', 'content', 'logkey'}) = []",
           "drop_remainder: bool = false", "shuffle: bool = false",
           "output_types: list(type) >= 1", "output_shapes: list(shape) >= 1")
    .Stateful(ScalarOutputs({0, 0, 0, 0, 0}))
    .Doc(R"doc(
Reads the samples as a dataset, with the tensors of Lodestar>MultiSlotDataset.

FAILED_PRECONDITION if an iterator is restored with other samples than when it
was saved. INVALID_ARGUMENT if the slots differ from the samples' slots.

num_queues, queue: Selects the samples whose index is `queue` modulo
  `num_queues`.
seed: Seed of the order, if `shuffle` is true.
)doc");

}  // namespace lodestar
