#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// The update rules of tf_ops/core/rows/sparse_optimizer.h.
#define LODESTAR_OPTIMIZERS                                      \
  "{'sgd', 'sgd_momentum', 'adagrad', 'adam', 'adam_amsgrad', "  \
  "'rmsprop', 'rmsprop_momentum', 'rmsprop_centered', "          \
  "'rmsprop_momentum_centered', 'adadelta', 'adamax', 'nadam', " \
  "'lion', 'ftrl'}"

// Distinct ids and positions at outputs `first` and first + 1.
void SetUnique(InferenceContext* c, int first) {
  c->set_output(first, c->UnknownShapeOfRank(1));
  c->set_output(first + 1, c->UnknownShapeOfRank(1));
}

// Input 1 is the hook [0, D], input 2 ids; rows, ids.shape + [D], are output 0.
absl::Status RowsOfIds(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {0, 2}));
  ShapeHandle rows;
  TF_RETURN_IF_ERROR(
      c->Concatenate(c->input(2), c->Vector(c->Dim(c->input(1), 1)), &rows));
  c->set_output(0, rows);
  return absl::OkStatus();
}

absl::Status FindShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(RowsOfIds(c));
  c->set_output(1, c->input(2));
  return absl::OkStatus();
}

absl::Status FindOrInsertShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(RowsOfIds(c));
  SetUnique(c, 1);
  return absl::OkStatus();
}

absl::Status FindOrInsertUniqueShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {0, 1, 1, 1}));
  const DimensionHandle count = c->Dim(c->input(1), 0);
  c->set_output(0, c->Matrix(count, c->UnknownDim()));
  c->set_output(1, c->Vector(count));
  return absl::OkStatus();
}

absl::Status UniqueShape(InferenceContext* c) {
  SetUnique(c, 0);
  return absl::OkStatus();
}

// [U, D] from the gradient [.., D], input 0, and unique_ids, input 2.
absl::Status GradientShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {2, kAnyRank, 1}));
  c->set_output(0, c->Matrix(c->Dim(c->input(2), 0), c->Dim(c->input(0), 1)));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Lodestar>EmbeddingVariable")
    .Output("handle: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("dim: int >= 1")
    .Attr(kRowDtype)
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
    .Attr("table_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
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
count_occurrences: Each occurrence of an id in a lookup is a sighting, also in
  the frequency of rows; else an id has one a step.
num_counters, num_hashes: Of the filter.
max_rows: Never more rows than this; 0 is no cap.
max_rows_policy: Which rows make room: those seen longest ago, or least often.
max_age: EmbeddingEvict removes rows last seen more steps ago; -1: none.
min_norm: EmbeddingEvict removes rows of a smaller Euclidean norm; 0: none.
shared_rows: Trained rows that ids without a row share, where a lookup says
  missing='shared'.
table_name: What errors of updates call it.
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
    .Attr(kRowDtype)
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
    .Attr(kRowDtype)
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
positions: [N], the index of each id in unique_ids, -1 for padding.
insert: False makes no rows.
count: Counts the sightings of ids.
admit: Which ids without a row get one: those that the admission lets in, all,
  or none, whose sightings are counted all the same.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingFindOrInsertUnique")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("occurrences: int64")
    .Input("missing_row: dtype")
    .Output("rows: dtype")
    .Output("resident: bool")
    .Attr(kRowDtype)
    .Attr("insert: bool = true")
    .Attr("count: bool = true")
    .Attr("admit: {'policy', 'all', 'none'} = 'policy'")
    .Attr("missing: {'zeros', 'initial', 'vector', 'shared'} = 'zeros'")
    .SetIsStateful()
    .SetShapeFn(FindOrInsertUniqueShape)
    .Doc(R"doc(
As EmbeddingFindOrInsert, of ids that are distinct already.

For a table that is elsewhere than the ids: no gradient goes through it.

ids: [N], distinct.
occurrences: [N], how often each id is in the batch, 1 to 2^32 - 1; or [0]: each
  is there once.
missing_row, insert, count, admit, missing: As of EmbeddingFindOrInsert.
rows: [N, D].
resident: [N], whether an id had a row before.
INVALID_ARGUMENT if an id comes twice.
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
positions: [N], the index of each id in unique_ids, -1 for padding.
)doc");

REGISTER_OP("Lodestar>EmbeddingGradient")
    .Input("gradient: dtype")
    .Input("positions: int64")
    .Input("unique_ids: int64")
    .Output("sums: dtype")
    .Attr(kRowDtype)
    .SetShapeFn(GradientShape)
    .Doc(R"doc(
Sums the gradients of equal ids, in batch order.

gradient: [N, D].
positions: [N], as EmbeddingFindOrInsert gave them.
unique_ids: [U].
sums: [U, D]; of 16 bits, summed as float and rounded once.
INVALID_ARGUMENT if a position is not in [-1, U).
)doc");

// Handles, ids, gradients, hyperparameters and next steps, so many of each.
absl::Status ApplyAllShape(InferenceContext* c) {
  int num_tables = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
  std::vector<tensorflow::DataType> dtypes;
  TF_RETURN_IF_ERROR(c->GetAttr("slot_dtypes", &dtypes));
  if (static_cast<int>(dtypes.size()) != num_tables) {
    return absl::InvalidArgumentError(
        "`slot_dtypes` must have one item a variable");
  }
  std::vector<int> ranks;
  for (int rank : {0, 1, 2, 1, 0}) ranks.insert(ranks.end(), num_tables, rank);
  return CheckRanks(c, ranks);
}

REGISTER_OP("Lodestar>EmbeddingCheckApply")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("gradients: slot_dtype")
    .Attr(kSlotDtype)
    .Attr("optimizer: string")
    .Attr("slot_names: list(string) = []")
    .Attr("additions: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 2}))
    .Doc(R"doc(
Fails as an update would with nonfinite = 'raise', and writes nothing.

Run for every variable of a step before any of them is updated.

ids: [N].
gradients: [N, D], double for rows of double, else float.
optimizer: As of EmbeddingApply, or of EmbeddingGatherForUpdate.
slot_names: As of EmbeddingGatherForUpdate, where it is that.
additions: Above 0: the rows, of float or double, are sums to which so many
  updates like this one are added before they start again from zeros; 0: the
  gradients are applied as they are.
INVALID_ARGUMENT if a gradient, summed over equal ids and over those that go to
one shared row, has a NaN or infinity; or if rows of sums would leave half of
their range.
FAILED_PRECONDITION if the rows hold another optimizer's slots.
)doc");

REGISTER_OP("Lodestar>EmbeddingApply")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("gradients: slot_dtype")
    .Input("hyperparameters: float")
    .Input("next_step: int64")
    .Attr(kSlotDtype)
    .Attr("optimizer: " LODESTAR_OPTIMIZERS)
    .Attr("slot_inits: list(float) >= 0")
    .Attr("create_missing: bool = false")
    .Attr("nonfinite: {'raise', 'skip', 'pass'} = 'raise'")
    .Attr("inside_step: bool = false")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 2, 1, 0}))
    .Doc(R"doc(
Updates rows and their optimizer slots by their gradients.

ids: [N]; the gradients of equal ids are summed, in batch order.
gradients: [N, D], double for rows of double, else float.
hyperparameters: Learning rate, weight decay, then what the optimizer takes, in
  the order of tf_ops/core/rows/optimizer_rules.h.
next_step: The variable's step after this, if that is higher than one more than
  before; else it advances by one. -2 leaves it as it is. Not read if
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

REGISTER_OP("Lodestar>EmbeddingApplyAll")
    .Input("handles: num_tables * resource")
    .Input("ids: num_tables * int64")
    .Input("gradients: slot_dtypes")
    .Input("hyperparameters: num_tables * float")
    .Input("next_steps: num_tables * int64")
    .Attr("num_tables: int >= 1")
    .Attr("slot_dtypes: list({float, double}) >= 1")
    .Attr("optimizers: list(" LODESTAR_OPTIMIZERS ")")
    .Attr("slot_inits: list(float) >= 0")
    .Attr("create_missing: list(bool)")
    .Attr("nonfinite: {'raise', 'skip', 'pass'} = 'raise'")
    .SetIsStateful()
    .SetShapeFn(ApplyAllShape)
    .Doc(R"doc(
EmbeddingApply of several variables, all of them or none, as one step.

ids, gradients, hyperparameters, next_steps, optimizers, create_missing: One for
  each variable, as of EmbeddingApply.
slot_inits: Those of all optimizers, one after another.
nonfinite: As of EmbeddingApply; no variable is changed where it raises.
INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED as EmbeddingApply, with
the name of the variable; no row has changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingStage")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("gradients: slot_dtype")
    .Input("hyperparameters: float")
    .Input("next_step: int64")
    .Input("log: resource")
    .Input("attempt: int64")
    .Input("attempt_name: int64")
    .Attr(kSlotDtype)
    .Attr("optimizer: " LODESTAR_OPTIMIZERS)
    .Attr("slot_inits: list(float) >= 0")
    .Attr("create_missing: bool = false")
    .Attr("nonfinite: {'raise', 'skip', 'pass'} = 'raise'")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 2, 1, 0, 0, 1, 0}))
    .Doc(R"doc(
Checks what EmbeddingApply would write, and keeps it for CommitUpdate.

All but log, attempt and name as in EmbeddingApply, with its errors.

log: That of UpdateLog.
attempt: As BeginUpdate gave it.
attempt_name: The same on all logs, above 0, and of no other attempt at the update.
CANCELLED if a later attempt has begun. FAILED_PRECONDITION if the update is
committed.
)doc");

}  // namespace lodestar
