// Ops on an embedding variable's rows other than lookups and updates.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

absl::Status ExportShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
  bool with_rows = true;
  TF_RETURN_IF_ERROR(c->GetAttr("with_rows", &with_rows));
  const DimensionHandle n = with_rows ? c->UnknownDim() : c->MakeDim(0);
  const DimensionHandle dim = c->UnknownDim();
  const DimensionHandle slots = c->UnknownDim();
  c->set_output(0, c->Vector(with_rows ? n : c->UnknownDim()));
  c->set_output(1, c->Matrix(n, dim));
  const DimensionHandle width = c->UnknownDim();
  c->set_output(2, c->MakeShape({slots, n, width}));
  c->set_output(3, c->Vector(n));
  c->set_output(4, c->Vector(n));
  c->set_output(5, c->Scalar());
  c->set_output(6, c->Vector(slots));
  c->set_output(7, c->Vector(slots));
  c->set_output(8, c->Vector(4));
  const DimensionHandle pending = c->UnknownDim();
  for (int i = 9; i < 12; ++i) c->set_output(i, c->Vector(pending));
  c->set_output(12, c->UnknownShapeOfRank(1));
  const DimensionHandle shared = c->UnknownDim();
  c->set_output(13, c->Matrix(shared, dim));
  c->set_output(14, c->MakeShape({slots, shared, width}));
  return absl::OkStatus();
}

}  // namespace

LODESTAR_OP("EmbeddingInsertOrAssign")
    .Inputs("handle: resource", "ids: int64", "rows: dtype")
    .Attrs(kRowDtype)
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Sets the rows of ids, inserting missing ones.

ids: [N]; the last of equal ids wins.
rows: [N, D], of the variable's dtype.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
)doc");

LODESTAR_OP("EmbeddingRemove")
    .Inputs("handle: resource", "ids: int64")
    .Outputs("count: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Removes the rows of ids.

ids: Any shape; ids without a row are ignored.
count: The number of removed rows.
)doc");

LODESTAR_OP("EmbeddingSize")
    .Inputs("handle: resource")
    .Outputs("size: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the number of rows.
)doc");

LODESTAR_OP("EmbeddingClear")
    .Inputs("handle: resource")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Removes all rows and keeps their memory for later rows. Pending ids and the
filter that counts them are cleared, and shared rows reset to their initial
values. The step and the events of EmbeddingStats are kept. Waits for the end of
a snapshot.
)doc");

LODESTAR_OP("EmbeddingRestartSlots")
    .Inputs("handle: resource")
    .Outputs("former: string", "fits: bool")
    .Attrs("optimizer: string", "slot_names: list(string) = []",
           "slot_inits: list(float) >= 0",
           "keep: {'none', 'equal', 'all'} = 'none'")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Replaces the optimizer slots by initial ones for a new optimizer.

A variable without slots is not changed: its first update creates them. Slots
are replaced between two steps, after the end of a running snapshot, and the
next snapshot is full. From then on updates by the former optimizer fail, unless
it is of the same kind.

optimizer: As for EmbeddingApply or EmbeddingGatherForUpdate.
slot_names: As for EmbeddingGatherForUpdate.
slot_inits: As for either op.
keep: Which slots are kept: none, the same optimizer's, or all.
former: The optimizer whose slots were dropped; empty if there were no slots, or
  no rows with slots.
fits: Whether the variable now has slots of `optimizer`, or none.
FAILED_PRECONDITION if steps overlap for a minute without a gap.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
)doc");

LODESTAR_OP("EmbeddingRemoveAll")
    .Inputs("handle: resource")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Removes all rows, and nothing else, at the end of a step. Works row by row, so
unlike EmbeddingClear it does not wait for the end of a snapshot.
)doc");

LODESTAR_OP("EmbeddingCompact")
    .Inputs("handle: resource")
    .Outputs("bytes: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the memory of removed rows to the system.

bytes: The decrease of the bytes in EmbeddingStats.
RESOURCE_EXHAUSTED if out of memory; rows and counters are not changed then.
)doc");

LODESTAR_OP("EmbeddingFrequency")
    .Inputs("handle: resource", "ids: int64")
    .Outputs("frequencies: int64")
    .Stateful(Shapes("[], [...i] -> [...i]"))
    .Doc(R"doc(
Returns the frequency of each id: its number of steps or occurrences, after
decay; 0 without a row.

ids: Any shape.
frequencies: ids.shape.
)doc");

LODESTAR_OP("EmbeddingStep")
    .Inputs("handle: resource")
    .Outputs("step: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the variable's step.
)doc");

LODESTAR_OP("EmbeddingSetStep")
    .Inputs("handle: resource", "step: int64")
    .Attrs("evicts: bool = true")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Sets the variable's step. From then on EmbeddingApply does not change it.

evicts: Whether to remove the rows that the variable's policy selects at this
  step.
)doc");

LODESTAR_OP("EmbeddingReleaseStep")
    .Inputs("handle: resource")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Lets EmbeddingApply advance the step again, after EmbeddingSetStep.
)doc");

LODESTAR_OP("EmbeddingStats")
    .Inputs("handle: resource")
    .Outputs("stats: int64", "shards: int64")
    .Attrs("reset: bool = false")
    .Stateful(Shapes("[] -> [22], [?, 2]"))
    .Doc(R"doc(
Returns counters of the variable.

stats: rows, index_bytes, row_bytes (values and metadata), slot_bytes,
  policy_bytes (of admission and eviction), capacity (rows that fit the
  allocated memory), max_rows (0: no cap), pending; then events: ids, unique_ids
  and padding of training lookups; hits, misses, inserts, admitted, refused,
  evicted, removed, gradients_dropped, nonfinite_gradients; read_hits and
  read_misses: ids, without padding, found and not found by lookups that do not
  count.
shards: [S, 2], rows and bytes of each shard.
reset: Whether to reset the events to 0.
)doc");

LODESTAR_OP("EmbeddingInspect")
    .Inputs("handle: resource", "ids: int64")
    .Outputs("rows: dtype", "slots: float", "slot_names: string",
             "frequencies: int64", "last_seen: int64", "shards: int64",
             "states: int64")
    .Attrs(kRowDtype)
    .Stateful(Shapes("[], [n] -> [n, d], [s, n, w], [s], [n], [n], [n], [n]"))
    .Doc(R"doc(
Returns the state of some ids, without changing it.

ids: [N].
rows: [N, D], zeros without a row.
slots: [S, N, W]; W is D, or 1 for a row-wise optimizer.
slot_names: [S].
frequencies: [N], also for pending ids.
last_seen: [N], -1 if unknown.
shards: [N].
states: [N], 0 missing, 1 pending, 2 resident.
RESOURCE_EXHAUSTED if out of memory.
)doc");

LODESTAR_OP("EmbeddingEvict")
    .Inputs("handle: resource")
    .Outputs("count: int64", "ids: int64", "rows: dtype")
    .Attrs("own_policy: bool = true", "max_rows: int = 0",
           "max_rows_policy: {'lru', 'lfu'} = 'lru'", "max_age: int = -1",
           "min_norm: float = 0.0", "min_frequency: int >= 0 = 0",
           "return_rows: bool = false", kRowDtype)
    .Stateful(Shapes("[] -> [], [n], [n, d]"))
    .Doc(R"doc(
Removes rows by a policy, except those seen in this step.

count: The number of removed rows.
ids: [N], their ids in any order; empty unless return_rows.
rows: [N, D].
own_policy: Whether to use the variable's own policy instead of the attributes.
max_rows: Maximum number of remaining rows; 0: no limit.
max_rows_policy: Which rows are removed first: least recently or least
  frequently used.
max_age: Removes rows, and pending ids, last seen more steps ago; -1: none.
min_norm: Removes rows with a smaller Euclidean norm; 0: none.
min_frequency: Removes rows with a smaller frequency; 0: none.
return_rows: Whether to return the removed rows.
dtype: The dtype of rows. Not checked unless return_rows.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
)doc");

LODESTAR_OP("EmbeddingDecayFrequencies")
    .Inputs("handle: resource", "rate: double")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Multiplies frequencies by a rate, rounding down. Those of ids seen in this step
stay positive.

rate: Scalar, in [0, 1].
INVALID_ARGUMENT if the rate is out of range.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
)doc");

LODESTAR_OP("EmbeddingExport")
    .Inputs("handle: resource")
    .Outputs("ids: int64", "rows: dtype", "slots: float", "frequencies: int64",
             "last_seen: int64", "optimizer: string", "slot_names: string",
             "slot_inits: float", "counters: int64", "pending_ids: int64",
             "pending_sightings: int64", "pending_last_seen: int64",
             "sketch: uint8", "shared_rows: dtype", "shared_slots: float")
    .Attrs(kRowDtype, "optimizer_slots: bool = true", "with_rows: bool = true")
    .Stateful(ExportShape)
    .Doc(R"doc(
Returns the complete state of a variable; of its rows only the ids unless
with_rows.

ids: [N], ascending.
rows: [N, D].
slots: [S, N, W]; S is 0 without an optimizer or without optimizer_slots. W is D,
  or 1 for a row-wise optimizer.
frequencies: [N].
last_seen: [N], the step of the last occurrence.
optimizer: The optimizer of the slots, or ''.
slot_names: [S].
slot_inits: [S], initial values of the slots.
counters: step, seed, init_salt, and 1 if EmbeddingSetStep sets the step.
pending_ids: [P], ascending: ids that wait for admission; with a filter, only
  ids of this step.
pending_sightings: [P], their occurrences.
pending_last_seen: [P].
sketch: [C], the filter's counters, or [0].
shared_rows: [R, D].
shared_slots: [S, R, W].
)doc");

LODESTAR_OP("EmbeddingImport")
    .Inputs("handle: resource", "ids: int64", "rows: dtype", "slots: float",
            "frequencies: int64", "last_seen: int64", "optimizer: string",
            "slot_names: string", "slot_inits: float", "counters: int64",
            "pending_ids: int64", "pending_sightings: int64",
            "pending_last_seen: int64", "sketch: uint8", "shared_rows: dtype",
            "shared_slots: float")
    .Attrs(kRowDtype, "mode: {'replace', 'merge'} = 'replace'")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Imports the outputs of EmbeddingExport, in any order of ids.

The inputs are its outputs of the same names, with these additions:

ids: Unique.
counters: Empty keeps the variable's own. Only 'replace' uses them.
pending_ids: Unique, and not in ids. 'merge' only checks them; a variable
  without admission ignores them.
pending_sightings: As pending_ids.
pending_last_seen: As pending_ids.
sketch: As pending_ids.
shared_rows: [0, 0] keeps the variable's own values. 'merge' only checks them; a
  variable without shared rows ignores them.
shared_slots: As shared_rows; empty resets them to their initial values.
mode: 'replace' replaces the variable's contents, using memory for both; 'merge'
  inserts or overwrites rows. Rows without slots get initial slots.
INVALID_ARGUMENT if an id occurs twice, a shape or dtype does not match, or ids
are pending for another kind of admission.
FAILED_PRECONDITION if the variable has another optimizer's slots or would
exceed max_rows, if another 'replace' or a restore has replaced its contents in
the meantime, or if steps overlap for a minute without a gap.
RESOURCE_EXHAUSTED if out of memory. Nothing is changed after an error.
)doc");

}  // namespace lodestar
