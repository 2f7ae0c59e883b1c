// Ops of the embedding variable.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

using absl::Status;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The update rules of tf_ops/core/sparse_optimizer.h.
constexpr char kOptimizers[] =
    "optimizer: {'sgd', 'sgd_momentum', 'adagrad', 'adam', 'adam_amsgrad', "
    "'rmsprop', 'rmsprop_momentum', 'rmsprop_centered', "
    "'rmsprop_momentum_centered', 'adadelta', 'adamax', 'nadam', 'lion', "
    "'ftrl'}";

// The dtypes that rows may have, and those that they are updated as: double for
// double, else float.
constexpr char kDtype[] = "dtype: {float, double, half, bfloat16} = DT_FLOAT";
constexpr char kSlotDtype[] = "slot_dtype: {float, double} = DT_FLOAT";

// D, from the hook [0, D].
Status HookDim(InferenceContext* c, int input, DimensionHandle* dim) {
  ShapeHandle hook;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(input), 2, &hook));
  *dim = c->Dim(hook, 1);
  return absl::OkStatus();
}

// Outputs ids.shape + [D] at `output`.
Status RowsOfIds(InferenceContext* c, int ids, DimensionHandle dim,
                 int output) {
  ShapeHandle rows;
  TF_RETURN_IF_ERROR(c->Concatenate(c->input(ids), c->Vector(dim), &rows));
  c->set_output(output, rows);
  return absl::OkStatus();
}

Status VectorOfUnknown(InferenceContext* c, int output) {
  c->set_output(output, c->UnknownShapeOfRank(1));
  return absl::OkStatus();
}

Status FindShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHandle(c));
  DimensionHandle dim;
  TF_RETURN_IF_ERROR(HookDim(c, 1, &dim));
  TF_RETURN_IF_ERROR(RowsOfIds(c, 2, dim, 0));
  c->set_output(1, c->input(2));
  return absl::OkStatus();
}

Status FindOrInsertShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHandle(c));
  DimensionHandle dim;
  TF_RETURN_IF_ERROR(HookDim(c, 1, &dim));
  TF_RETURN_IF_ERROR(RowsOfIds(c, 2, dim, 0));
  TF_RETURN_IF_ERROR(VectorOfUnknown(c, 1));
  return VectorOfUnknown(c, 2);
}

Status PooledLookupShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHandle(c));
  DimensionHandle dim;
  TF_RETURN_IF_ERROR(HookDim(c, 1, &dim));
  ShapeHandle ids;
  ShapeHandle splits;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &ids));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 1, &splits));
  DimensionHandle bags;
  TF_RETURN_IF_ERROR(c->Subtract(c->Dim(splits, 0), 1, &bags));
  c->set_output(0, c->Matrix(bags, dim));
  TF_RETURN_IF_ERROR(VectorOfUnknown(c, 1));
  TF_RETURN_IF_ERROR(VectorOfUnknown(c, 2));
  c->set_output(3, c->UnknownShapeOfRank(2));
  return absl::OkStatus();
}

Status UniqueShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(VectorOfUnknown(c, 0));
  return VectorOfUnknown(c, 1);
}

// [U, D] from unique_ids at `unique_ids` and the gradient [.., D] at 0.
Status GradientShape(InferenceContext* c) {
  ShapeHandle gradient;
  ShapeHandle unique_ids;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &gradient));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &unique_ids));
  c->set_output(0, c->Matrix(c->Dim(unique_ids, 0), c->Dim(gradient, 1)));
  return absl::OkStatus();
}

Status NoOutputs(InferenceContext* c) { return CheckHandle(c); }

Status ScalarOutput(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHandle(c));
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

Status ExportShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHandle(c));
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
  TF_RETURN_IF_ERROR(VectorOfUnknown(c, 12));
  const DimensionHandle shared = c->UnknownDim();
  c->set_output(13, c->Matrix(shared, dim));
  c->set_output(14, c->MakeShape({slots, shared, dim}));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Lodestar>EmbeddingVariable")
    .Output("handle: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("dim: int >= 1")
    .Attr(kDtype)
    .Attr(
        "initializer: {'zeros', 'ones', 'constant', 'uniform', 'normal', "
        "'truncated_normal'} = 'uniform'")
    .Attr("initializer_a: float = -0.05")
    .Attr("initializer_b: float = 0.05")
    .Attr("seed: int = 0")
    .Attr("init_salt: int = 0")
    .Attr("num_shards: int = 0")
    .Attr("admission: {'all', 'min_count', 'counting_bloom'} = 'all'")
    .Attr("min_count: int = 1")
    .Attr("count_occurrences: bool = false")
    .Attr("num_counters: int = 0")
    .Attr("num_hashes: int = 0")
    .Attr("max_rows: int = 0")
    .Attr("max_rows_policy: {'lru', 'lfu'} = 'lru'")
    .Attr("max_age: int = -1")
    .Attr("min_norm: float = 0.0")
    .Attr("shared_rows: int = 0")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Creates an embedding variable, or finds the one of this name.

handle: Handle of the variable.
dim: D, the numbers of a row.
dtype: Of rows and what they are looked up as.
initializer_a: The constant, the lowest value, or the mean.
initializer_b: The bound above all values, or the standard deviation.
seed: With init_salt, id and column it decides a row's first value.
num_shards: 0 leaves it to the op; never shows in a result.
admission: What gives an unseen id a row: its first sighting, or its
  min_count-th, counted exactly or in a counting Bloom filter.
count_occurrences: Each occurrence of an id in a look-up is a sighting, also in
  the frequency of rows; else an id has one a step.
num_counters, num_hashes: Of the filter.
max_rows: Never more rows than this; 0 is no cap.
max_rows_policy: Which rows make room: those seen longest ago, or least often.
max_age: EmbeddingEvict removes rows last seen more steps ago; -1: none.
min_norm: EmbeddingEvict removes rows of a smaller Euclidean norm; 0: none.
shared_rows: Trained rows that ids without a row share, where a look-up says
  missing='shared'.
INVALID_ARGUMENT if a variable of this name has another dim or dtype, or a number is out
of range.
)doc");

REGISTER_OP("Lodestar>EmbeddingFind")
    .Input("handle: resource")
    .Input("hook: dtype")
    .Input("ids: int64")
    .Input("missing_row: dtype")
    .Output("rows: dtype")
    .Output("found: bool")
    .Attr(kDtype)
    .Attr("missing: {'zeros', 'initial', 'vector', 'shared'} = 'zeros'")
    .Attr("use_padding: bool = false")
    .Attr("padding_id: int = 0")
    .SetIsStateful()
    .SetShapeFn(FindShape)
    .Doc(R"doc(
Reads rows; never writes.

hook: [0, D], carries the gradient.
ids: Any shape.
missing_row: [D] where missing is 'vector', else not read.
rows: ids.shape + [D].
found: ids.shape.
padding_id: Reads zeros and counts as not found, if use_padding.
)doc");

REGISTER_OP("Lodestar>EmbeddingFindOrInsert")
    .Input("handle: resource")
    .Input("hook: dtype")
    .Input("ids: int64")
    .Input("missing_row: dtype")
    .Output("rows: dtype")
    .Output("unique_ids: int64")
    .Output("positions: int64")
    .Attr(kDtype)
    .Attr("insert: bool = true")
    .Attr("count: bool = true")
    .Attr("admit: {'policy', 'all', 'none'} = 'policy'")
    .Attr("missing: {'zeros', 'initial', 'vector', 'shared'} = 'zeros'")
    .Attr("use_padding: bool = false")
    .Attr("padding_id: int = 0")
    .SetIsStateful()
    .SetShapeFn(FindOrInsertShape)
    .Doc(R"doc(
Reads rows, and first makes those that are not there.

hook: [0, D], carries the gradient.
ids: Any shape, N in all.
missing_row: [D] where missing is 'vector', else not read.
rows: ids.shape + [D].
unique_ids: [U], in order of first occurrence, without padding.
positions: [N], the place of each id in unique_ids, -1 for padding.
insert: False makes no rows.
count: Counts the sightings of ids.
admit: Which ids without a row get one: those that the admission lets in, all,
  or none, whose sightings are counted all the same.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingPooledLookup")
    .Input("handle: resource")
    .Input("hook: dtype")
    .Input("ids: int64")
    .Input("row_splits: int64")
    .Input("weights: float")
    .Input("missing_row: dtype")
    .Output("pooled: dtype")
    .Output("unique_ids: int64")
    .Output("positions: int64")
    .Output("winners: int64")
    .Attr(kDtype)
    .Attr("combiner: {'sum', 'mean', 'sqrtn', 'max', 'first', 'last'} = 'mean'")
    .Attr("insert: bool = true")
    .Attr("count: bool = true")
    .Attr("admit: {'policy', 'all', 'none'} = 'policy'")
    .Attr("missing: {'zeros', 'initial', 'vector', 'shared'} = 'zeros'")
    .Attr("use_padding: bool = false")
    .Attr("padding_id: int = 0")
    .Attr("use_default: bool = false")
    .Attr("default_id: int = 0")
    .SetIsStateful()
    .SetShapeFn(PooledLookupShape)
    .Doc(R"doc(
Reads the rows of B bags of ids and pools each bag to one row.

hook: [0, D], carries the gradient.
ids: [N].
row_splits: [B + 1], bag b holds ids [row_splits[b], row_splits[b + 1]).
weights: [N], or [0] for all 1; with sum, mean and sqrtn only.
missing_row: [D] where missing is 'vector', else not read.
pooled: [B, D]; an empty bag is zeros, or default_id's row if use_default.
unique_ids: [U], in order of first occurrence, without padding.
positions: [N], the place of each id in unique_ids, -1 for padding. With
  neither insert nor count both are [0]: the gradient finds them.
winners: For max [B, D], the place in ids of each largest number or -1; else
  [0, 0].
insert: False makes no rows.
count: Counts the sightings of ids.
admit: Which ids without a row get one: those that the admission lets in, all,
  or none, whose sightings are counted all the same.
INVALID_ARGUMENT if the splits do not start at 0, descend or do not end at N.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingUnique")
    .Input("ids: int64")
    .Output("unique_ids: int64")
    .Output("positions: int64")
    .Attr("use_padding: bool = false")
    .Attr("padding_id: int = 0")
    .SetShapeFn(UniqueShape)
    .Doc(R"doc(
The distinct ids, in order of first occurrence.

ids: Any shape, N in all.
unique_ids: [U], without padding.
positions: [N], the place of each id in unique_ids, -1 for padding.
)doc");

REGISTER_OP("Lodestar>EmbeddingGradient")
    .Input("gradient: dtype")
    .Input("positions: int64")
    .Input("unique_ids: int64")
    .Output("sums: dtype")
    .Attr(kDtype)
    .SetShapeFn(GradientShape)
    .Doc(R"doc(
Sums the gradients of equal ids, in batch order.

gradient: [N, D].
positions: [N], as EmbeddingFindOrInsert gave them.
unique_ids: [U].
sums: [U, D]; of 16 bits, summed as float and rounded once.
INVALID_ARGUMENT if a position is not in [-1, U).
)doc");

REGISTER_OP("Lodestar>EmbeddingPooledGradient")
    .Input("gradient: dtype")
    .Input("positions: int64")
    .Input("unique_ids: int64")
    .Input("row_splits: int64")
    .Input("weights: float")
    .Input("winners: int64")
    .Output("sums: dtype")
    .Attr(kDtype)
    .Attr("combiner: {'sum', 'mean', 'sqrtn', 'max', 'first', 'last'}")
    .SetShapeFn(GradientShape)
    .Doc(R"doc(
Sums the gradients of equal ids through a pooled look-up, in batch order.

gradient: [B, D].
positions: [N], as EmbeddingPooledLookup gave them.
unique_ids: [U].
row_splits: [B + 1].
weights: [N], or [0] for all 1.
winners: As EmbeddingPooledLookup gave them.
sums: [U, D]; of 16 bits, summed as float and rounded once.
INVALID_ARGUMENT if a position is not in [-1, U) or the splits are bad.
)doc");

REGISTER_OP("Lodestar>EmbeddingCheckApply")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("gradients: slot_dtype")
    .Attr(kSlotDtype)
    .Attr("optimizer: string")
    .Attr("slot_names: list(string) = []")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckHandle(c));
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
      return c->WithRank(c->input(2), 2, &unused);
    })
    .Doc(R"doc(
Fails as an update would with nonfinite = 'raise', and writes nothing.

Run for every variable of a step before any of them is updated.

ids: [N].
gradients: [N, D], double for rows of double, else float.
optimizer: As of EmbeddingApply, or of EmbeddingGatherForUpdate.
slot_names: As of EmbeddingGatherForUpdate, where it is that.
INVALID_ARGUMENT if a gradient has a NaN or infinity.
FAILED_PRECONDITION if the rows hold another optimizer's slots.
)doc");

REGISTER_OP("Lodestar>EmbeddingApply")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("gradients: slot_dtype")
    .Input("hyperparameters: float")
    .Input("next_step: int64")
    .Attr(kSlotDtype)
    .Attr(kOptimizers)
    .Attr("slot_inits: list(float) >= 0")
    .Attr("create_missing: bool = false")
    .Attr("nonfinite: {'raise', 'skip', 'pass'} = 'raise'")
    .Attr("inside_step: bool = false")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckHandle(c));
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 2, &unused));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 1, &unused));
      return c->WithRank(c->input(4), 0, &unused);
    })
    .Doc(R"doc(
Updates rows and their optimizer slots by their gradients.

ids: [N]; the gradients of equal ids are summed, in batch order.
gradients: [N, D], double for rows of double, else float.
hyperparameters: Learning rate, weight decay, then what the optimizer takes, in
  the order of tf_ops/core/sparse_optimizer.h.
next_step: The variable's step after this; -1 advances it by one. Not read if
  EmbeddingSetStep drives the step.
slot_inits: What each optimizer slot of a new row holds.
create_missing: Makes rows of ids that have none, instead of dropping (and
  counting) their gradients.
nonfinite: What a NaN or infinity does: 'raise' INVALID_ARGUMENT and change
  nothing, 'skip' the update of its id, or 'pass' it on.
inside_step: It runs between BeginStep and EndStep; else it is a step of its own.
FAILED_PRECONDITION if the rows hold another optimizer's slots.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingInsertOrAssign")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("rows: dtype")
    .Attr(kDtype)
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
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
    .SetShapeFn(ScalarOutput)
    .Doc(R"doc(
Removes the rows of ids.

ids: Any shape; ids without a row are passed over.
count: The rows removed.
)doc");

REGISTER_OP("Lodestar>EmbeddingSize")
    .Input("handle: resource")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc(R"doc(
The number of rows.
)doc");

REGISTER_OP("Lodestar>EmbeddingClear")
    .Input("handle: resource")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Removes all rows; their memory is kept for the next ones.
)doc");

REGISTER_OP("Lodestar>EmbeddingCompact")
    .Input("handle: resource")
    .Output("bytes: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
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
      TF_RETURN_IF_ERROR(CheckHandle(c));
      c->set_output(0, c->input(1));
      return absl::OkStatus();
    })
    .Doc(R"doc(
How many steps have seen each id; 0 without a row.

ids: Any shape.
frequencies: ids.shape.
)doc");

REGISTER_OP("Lodestar>EmbeddingStep")
    .Input("handle: resource")
    .Output("step: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc(R"doc(
The variable's step.
)doc");

REGISTER_OP("Lodestar>EmbeddingSetStep")
    .Input("handle: resource")
    .Input("step: int64")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Sets the variable's step. From then on EmbeddingApply leaves it alone.
)doc");

REGISTER_OP("Lodestar>EmbeddingReleaseStep")
    .Input("handle: resource")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
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
      TF_RETURN_IF_ERROR(CheckHandle(c));
      c->set_output(0, c->Vector(20));
      c->set_output(1, c->Matrix(c->UnknownDim(), 2));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Counters of the variable.

stats: rows, index_bytes, row_bytes (values and metadata), slot_bytes,
  policy_bytes (of admission and eviction), capacity (rows that fit the memory
  there is), max_rows (0: no cap), pending; then events: ids, unique_ids and
  padding of training look-ups; hits, misses, inserts, admitted, refused,
  evicted, removed, gradients_dropped, nonfinite_gradients.
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
    .Attr(kDtype)
    .Attr(kSlotDtype)
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckHandle(c));
      ShapeHandle ids;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &ids));
      const DimensionHandle n = c->Dim(ids, 0);
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
    .SetShapeFn(ScalarOutput)
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
    .SetShapeFn(NoOutputs)
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
    .Attr(kDtype)
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
    .Attr(kDtype)
    .Attr(kSlotDtype)
    .Attr("mode: {'replace', 'merge'} = 'replace'")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Takes what EmbeddingExport gave, in any order of ids.

ids: [N], all different.
rows: [N, D].
slots: [S, N, D].
frequencies: [N].
last_seen: [N].
optimizer: The optimizer whose slots these are, or ''.
slot_names: [S].
slot_inits: [S].
counters: step, seed, init_salt, whether the step is driven; or none to keep
  the variable's own. This and what follows is read by 'replace' only, and
  nothing that follows by a variable without admission.
pending_ids: [P], all different, none of them in ids.
pending_sightings: [P].
pending_last_seen: [P].
sketch: [C] or [0].
shared_rows: [R, D], or [0, 0] to leave them as they are.
shared_slots: [S, R, D], or none.
mode: 'replace' makes this all that the variable holds; 'merge' adds rows, or
  overwrites those of their ids. Rows without slots start with those of a new
  row.
INVALID_ARGUMENT if an id is there twice, a shape or dtype does not fit, or ids
are pending for another admission.
FAILED_PRECONDITION if the variable holds another optimizer's slots, or would
hold more rows than max_rows.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

}  // namespace lodestar
