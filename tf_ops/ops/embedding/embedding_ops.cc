#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// The update rules of tf_ops/core/rows/sparse_optimizer.h.
#define LODESTAR_OPTIMIZERS                                      \
  "{'sgd', 'sgd_momentum', 'adagrad', 'adam', 'adam_amsgrad', "  \
  "'rmsprop', 'rmsprop_momentum', 'rmsprop_centered', "          \
  "'rmsprop_momentum_centered', 'adadelta', 'adamax', 'nadam', " \
  "'lion', 'ftrl'}"

// Sets outputs `first` and first + 1 to the shapes of unique ids and positions.
void SetUnique(InferenceContext* c, int first) {
  c->set_output(first, c->UnknownShapeOfRank(1));
  c->set_output(first + 1, c->UnknownShapeOfRank(1));
}

// Input 1 is the hook [0, D], input 2 ids. Output 0 has shape ids.shape + [D].
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

// Sets output 0 to [U, D], from the gradient [.., D], input 0, and unique_ids,
// input 2.
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
Creates an embedding variable, or finds the one with this name.

handle: Handle of the variable.
dim: D, the embedding dimension.
dtype: The dtype of rows and lookups.
initializer_a: The constant, the lower bound, or the mean.
initializer_b: The upper bound (exclusive), or the standard deviation.
seed: With init_salt, id and column, determines a row's initial value.
num_shards: 0 lets the op choose; does not affect results.
admission: When an id gets a row: at its first occurrence, or at its
  min_count-th, counted exactly or in a counting Bloom filter.
count_occurrences: Whether each occurrence of an id in a lookup counts, also in
  the frequency of rows. Otherwise an id counts once per step.
num_counters, num_hashes: Size of the filter.
max_rows: Maximum number of rows; 0: no cap.
max_rows_policy: Which rows are evicted at the cap: least recently or least
  frequently used.
max_age: EmbeddingEvict removes rows last seen more steps ago; -1: none.
min_norm: EmbeddingEvict removes rows with a smaller Euclidean norm; 0: none.
shared_rows: Number of trained rows shared by ids without a row, for lookups
  with missing='shared'.
table_name: Name in errors of updates.
INVALID_ARGUMENT if a variable with this name has another dim or dtype, or a
value is out of range.
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
Reads rows, without writing.

hook: [0, D]. Carries the gradient.
ids: Any shape.
missing_row: [D] if missing is 'vector', else not read.
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
Reads rows, and inserts missing ones first.

hook: [0, D]. Carries the gradient.
ids: Any shape, with N elements.
missing_row: [D] if missing is 'vector', else not read.
rows: ids.shape + [D].
unique_ids: [U], in order of first occurrence, without padding.
positions: [N], the index of each id in unique_ids, -1 for padding.
insert: Whether to insert missing rows.
count: Whether to count occurrences of ids.
admit: Which missing ids get a row: those that admission admits, all, or none.
  Their occurrences are counted in any case.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
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
Implements EmbeddingFindOrInsert for unique ids.

For a table on another device than the ids. Not differentiable.

ids: [N], unique.
occurrences: [N], the number of occurrences of each id in the batch, 1 to 2^32 -
  1; or [0] if each id occurs once.
missing_row, insert, count, admit, missing: As for EmbeddingFindOrInsert.
rows: [N, D].
resident: [N], whether an id already had a row.
INVALID_ARGUMENT if an id occurs twice.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingUnique")
    .Input("ids: int64")
    .Output("unique_ids: int64")
    .Output("positions: int64")
    .Attr("use_padding: bool = false")
    .Attr("padding_id: int = 0")
    .SetShapeFn(UniqueShape)
    .Doc(R"doc(
Returns the unique ids, in order of first occurrence.

ids: Any shape, with N elements.
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
positions: [N], output of EmbeddingFindOrInsert.
unique_ids: [U].
sums: [U, D]. 16-bit gradients are summed as float and rounded once.
INVALID_ARGUMENT if a position is not in [-1, U).
)doc");

// The inputs are num_tables each of handles, ids, gradients, hyperparameters
// and next steps.
absl::Status ApplyAllShape(InferenceContext* c) {
  int num_tables = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
  std::vector<tensorflow::DataType> dtypes;
  TF_RETURN_IF_ERROR(c->GetAttr("slot_dtypes", &dtypes));
  if (static_cast<int>(dtypes.size()) != num_tables) {
    return absl::InvalidArgumentError(
        "`slot_dtypes` must have one item per variable.");
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
Performs the checks of an update with nonfinite = 'raise', and writes nothing.

Runs for every variable of a step before any of them is updated.

ids: [N].
gradients: [N, D], double for rows of double, else float.
optimizer: As for EmbeddingApply or EmbeddingGatherForUpdate.
slot_names: As for EmbeddingGatherForUpdate.
additions: If positive, the rows, of float or double, are sums to which this
  many such updates are added before they are reset to zero. If 0, the gradients
  are applied directly.
INVALID_ARGUMENT if a gradient, summed over equal ids and over ids with the same
shared row, contains NaN or infinity, or if rows of sums would exceed half of
their range.
FAILED_PRECONDITION if the rows have another optimizer's slots.
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
hyperparameters: Learning rate, weight decay, and the optimizer's own, in the
  order of tf_ops/core/rows/optimizer_rules.h.
next_step: The variable's step after this op, if it is greater than the step
  plus one; otherwise the step increases by one. -2 leaves the step unchanged.
  Not read if EmbeddingSetStep sets the step.
slot_inits: Initial values of the optimizer slots.
create_missing: Whether to insert missing rows instead of dropping (and
  counting) their gradients.
nonfinite: The effect of NaN or infinity: 'raise' returns INVALID_ARGUMENT and
  changes nothing, 'skip' skips the update of the id, 'pass' applies it.
inside_step: Whether the op runs between BeginStep and EndStep. Otherwise it is
  a separate step.
FAILED_PRECONDITION if the rows have another optimizer's slots.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
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
Applies EmbeddingApply to several variables, atomically and as one step.

ids, gradients, hyperparameters, next_steps, optimizers, create_missing: One per
  variable, as for EmbeddingApply.
slot_inits: Those of all optimizers, concatenated.
nonfinite: As for EmbeddingApply; no variable is changed on an error.
INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED as EmbeddingApply,
with the name of the variable; no row is changed then.
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
Checks the update of an EmbeddingApply, and stages it for CommitUpdate.

Has the inputs of EmbeddingApply, and log, attempt and attempt_name.
Returns its errors.

log: Output of UpdateLog.
attempt: Output of BeginUpdate.
attempt_name: A positive name that is the same on all logs, and different from
  the names of other attempts at the update.
CANCELLED if a later attempt has begun.
FAILED_PRECONDITION if the update is committed.
)doc");

}  // namespace lodestar
