// Ops that write, read and describe an embedding variable's rows beside
// lookups and updates.

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
  c->set_output(2, c->MakeShape({slots, n, dim}));
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
  c->set_output(14, c->MakeShape({slots, shared, dim}));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Lodestar>EmbeddingInsertOrAssign")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("rows: dtype")
    .Attr(kRowDtype)
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Sets the rows of ids, making those that are not there.

ids: [N]; the last of equal ids wins.
rows: [N, D], of the variable's dtype.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingRemove")
    .Input("handle: resource")
    .Input("ids: int64")
    .Output("count: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Removes the rows of ids.

ids: Any shape; ids without a row are passed over.
count: The rows removed.
)doc");

REGISTER_OP("Lodestar>EmbeddingSize")
    .Input("handle: resource")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
The number of rows.
)doc");

REGISTER_OP("Lodestar>EmbeddingClear")
    .Input("handle: resource")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Removes all rows; their memory is kept for the next ones. Pending ids and the
filter that counts them are forgotten, shared rows begin anew; the step and the
events that EmbeddingStats counts stay. Waits for the end of a snapshot.
)doc");

REGISTER_OP("Lodestar>EmbeddingRestartSlots")
    .Input("handle: resource")
    .Output("former: string")
    .Output("fits: bool")
    .Attr("optimizer: string")
    .Attr("slot_names: list(string) = []")
    .Attr("slot_inits: list(float) >= 0")
    .Attr("keep: {'none', 'equal', 'all'} = 'none'")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Gives an optimizer that takes a variable over fresh slots beside all rows.

A variable without slots stays as it is: its first update makes them. Slots are
dropped between two steps, after the end of a snapshot that is running, and the
next snapshot is a whole one. From then on updates by the former optimizer fail,
unless it is of the same kind.

optimizer: As of EmbeddingApply, or of EmbeddingGatherForUpdate.
slot_names: As of EmbeddingGatherForUpdate, where it is that.
slot_inits: As of either.
keep: Which slots stay as they are: none, those of the same optimizer, or all.
former: The optimizer whose slots were dropped; empty if there were none, or no
  rows to have them.
fits: Whether the variable has slots of `optimizer` now, or none.
FAILED_PRECONDITION if some step is running at every moment of a minute.
RESOURCE_EXHAUSTED if memory runs out; nothing has changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingRemoveAll")
    .Input("handle: resource")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Removes all rows, and nothing else, at the end of a step. Where EmbeddingClear
waits for the end of a snapshot, this goes row by row.
)doc");

REGISTER_OP("Lodestar>EmbeddingCompact")
    .Input("handle: resource")
    .Output("bytes: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Gives the memory of removed rows back to the system.

bytes: By how much that lowers what EmbeddingStats tells.
RESOURCE_EXHAUSTED if memory runs out; rows and counters are as before then.
)doc");

REGISTER_OP("Lodestar>EmbeddingFrequency")
    .Input("handle: resource")
    .Input("ids: int64")
    .Output("frequencies: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      c->set_output(0, c->input(1));
      return absl::OkStatus();
    })
    .Doc(R"doc(
The frequency of each id: its sightings, of steps or of occurrences, as they have
decayed; 0 without a row.

ids: Any shape.
frequencies: ids.shape.
)doc");

REGISTER_OP("Lodestar>EmbeddingStep")
    .Input("handle: resource")
    .Output("step: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
The variable's step.
)doc");

REGISTER_OP("Lodestar>EmbeddingSetStep")
    .Input("handle: resource")
    .Input("step: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Sets the variable's step. From then on EmbeddingApply leaves it alone.
)doc");

REGISTER_OP("Lodestar>EmbeddingReleaseStep")
    .Input("handle: resource")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Lets EmbeddingApply move the step again, after EmbeddingSetStep.
)doc");

REGISTER_OP("Lodestar>EmbeddingStats")
    .Input("handle: resource")
    .Output("stats: int64")
    .Output("shards: int64")
    .Attr("reset: bool = false")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      c->set_output(0, c->Vector(22));
      c->set_output(1, c->Matrix(c->UnknownDim(), 2));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Counters of the variable.

stats: rows, index_bytes, row_bytes (values and metadata), slot_bytes,
  policy_bytes (of admission and eviction), capacity (rows that fit the memory
  there is), max_rows (0: no cap), pending; then events: ids, unique_ids and
  padding of training lookups; hits, misses, inserts, admitted, refused,
  evicted, removed, gradients_dropped, nonfinite_gradients; read_hits and
  read_misses: ids, all but padding, that lookups without sightings found or
  did not find.
shards: [S, 2], rows and bytes of each shard.
reset: Events count from 0 again.
)doc");

REGISTER_OP("Lodestar>EmbeddingInspect")
    .Input("handle: resource")
    .Input("ids: int64")
    .Output("rows: dtype")
    .Output("slots: slot_dtype")
    .Output("slot_names: string")
    .Output("frequencies: int64")
    .Output("last_seen: int64")
    .Output("shards: int64")
    .Output("states: int64")
    .Attr(kRowDtype)
    .Attr(kSlotDtype)
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0, 1}));
      const DimensionHandle n = c->Dim(c->input(1), 0);
      const DimensionHandle dim = c->UnknownDim();
      const DimensionHandle slots = c->UnknownDim();
      c->set_output(0, c->Matrix(n, dim));
      c->set_output(1, c->MakeShape({slots, n, dim}));
      c->set_output(2, c->Vector(slots));
      for (int i = 3; i < 7; ++i) c->set_output(i, c->Vector(n));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Everything about some ids; changes nothing.

ids: [N].
rows: [N, D], zeros without a row.
slots: [S, N, D].
slot_names: [S].
frequencies: [N], sightings; of pending ids too.
last_seen: [N], -1 if it is not known.
shards: [N].
states: [N], 0 missing, 1 pending, 2 resident.
RESOURCE_EXHAUSTED if memory runs out.
)doc");

REGISTER_OP("Lodestar>EmbeddingEvict")
    .Input("handle: resource")
    .Output("count: int64")
    .Attr("own_policy: bool = true")
    .Attr("max_rows: int = 0")
    .Attr("max_rows_policy: {'lru', 'lfu'} = 'lru'")
    .Attr("max_age: int = -1")
    .Attr("min_norm: float = 0.0")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Removes the rows that a policy names, but none that was seen in this step.

count: The rows removed.
own_policy: By the variable's own policy, whatever the attributes say.
max_rows: So many rows are to be left at most; 0: any number.
max_rows_policy: Which go first: those seen longest ago, or least often.
max_age: Rows last seen more steps ago go, and pending ids; -1: none.
min_norm: Rows of a smaller Euclidean norm go; 0: none.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingDecayFrequencies")
    .Input("handle: resource")
    .Input("rate: double")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Multiplies frequencies with a rate, rounding down; those of ids seen in this
step stay above 0.

rate: Scalar, 0 to 1.
INVALID_ARGUMENT if it is not.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingExport")
    .Input("handle: resource")
    .Output("ids: int64")
    .Output("rows: dtype")
    .Output("slots: slot_dtype")
    .Output("frequencies: int64")
    .Output("last_seen: int64")
    .Output("optimizer: string")
    .Output("slot_names: string")
    .Output("slot_inits: float")
    .Output("counters: int64")
    .Output("pending_ids: int64")
    .Output("pending_sightings: int64")
    .Output("pending_last_seen: int64")
    .Output("sketch: uint8")
    .Output("shared_rows: dtype")
    .Output("shared_slots: slot_dtype")
    .Attr(kRowDtype)
    .Attr(kSlotDtype)
    .Attr("optimizer_slots: bool = true")
    .Attr("with_rows: bool = true")
    .SetIsStateful()
    .SetShapeFn(ExportShape)
    .Doc(R"doc(
Everything of a variable; of its rows only the ids if not with_rows.

ids: [N], ascending.
rows: [N, D].
slots: [S, N, D]; S is 0 without an optimizer or without optimizer_slots.
frequencies: [N].
last_seen: [N], the step of the last sighting.
optimizer: The optimizer whose slots these are, or ''.
slot_names: [S].
slot_inits: [S], what the slots of a new row hold.
counters: step, seed, init_salt, and 1 if EmbeddingSetStep drives the step.
pending_ids: [P], ascending: ids that admission holds back; with a filter those
  of this step.
pending_sightings: [P].
pending_last_seen: [P].
sketch: [C], the filter's counters, or [0].
shared_rows: [R, D].
shared_slots: [S, R, D].
)doc");

REGISTER_OP("Lodestar>EmbeddingImport")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("rows: dtype")
    .Input("slots: slot_dtype")
    .Input("frequencies: int64")
    .Input("last_seen: int64")
    .Input("optimizer: string")
    .Input("slot_names: string")
    .Input("slot_inits: float")
    .Input("counters: int64")
    .Input("pending_ids: int64")
    .Input("pending_sightings: int64")
    .Input("pending_last_seen: int64")
    .Input("sketch: uint8")
    .Input("shared_rows: dtype")
    .Input("shared_slots: slot_dtype")
    .Attr(kRowDtype)
    .Attr(kSlotDtype)
    .Attr("mode: {'replace', 'merge'} = 'replace'")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Takes what EmbeddingExport gave, in any order of ids.

Inputs are as its outputs of the same names, and:

ids: All different.
counters: Or none to keep the variable's own. Only 'replace' takes them.
pending_ids: All different, none of them in ids. 'merge' checks them and takes
  none; a variable without admission leaves them out.
pending_sightings: As pending_ids.
pending_last_seen: As pending_ids.
sketch: As pending_ids.
shared_rows: Or [0, 0] to keep the values of the variable's own. 'merge' checks
  them and takes none; a variable without shared rows leaves them out.
shared_slots: As shared_rows; or none, which then begin anew.
mode: 'replace' makes this all that the variable holds, built beside the old
  rows; 'merge' adds rows, or overwrites those of their ids. Rows without slots
  start with those of a new row.
INVALID_ARGUMENT if an id is there twice, a shape or dtype does not fit, or ids
are pending for another admission.
FAILED_PRECONDITION if the variable holds another optimizer's slots, or would
hold more rows than max_rows; if another 'replace', or a restore, has replaced
what it holds meanwhile, or steps leave no moment between them.
RESOURCE_EXHAUSTED if memory runs out. After an error nothing is changed.
)doc");

}  // namespace lodestar
