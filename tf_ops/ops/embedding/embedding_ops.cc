#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// The update rules of tf_ops/core/rows/sparse_optimizer.h.
#define LODESTAR_OPTIMIZERS                                      \
  "{'sgd', 'sgd_momentum', 'adagrad', 'row_wise_adagrad', "      \
  "'adam', 'adam_amsgrad', 'rmsprop', 'rmsprop_momentum', "      \
  "'rmsprop_centered', "                                         \
  "'rmsprop_momentum_centered', 'adadelta', 'adamax', 'nadam', " \
  "'lion', 'ftrl'}"

}  // namespace

LODESTAR_OP("EmbeddingVariable")
    .Outputs("handle: resource")
    .Attrs("container: string = ''", "shared_name: string = ''",
           "dim: int >= 1", kRowDtype,
           "initializer: {'zeros', 'ones', 'constant', 'uniform', 'normal', "
           "'truncated_normal'} = 'uniform'",
           "initializer_a: float = -0.05", "initializer_b: float = 0.05",
           "seed: int = 0", "init_salt: int = 0", "num_shards: int = 0",
           "admission: {'all', 'min_count', 'counting_bloom'} = 'all'",
           "min_count: int = 1", "count_occurrences: bool = false",
           "num_counters: int = 0", "num_hashes: int = 0", "max_rows: int = 0",
           "max_rows_policy: {'lru', 'lfu'} = 'lru'",
           "when_full: {'evict', 'raise'} = 'evict'", "max_age: int = -1",
           "min_norm: float = 0.0", "min_norm_every: int = 1000",
           "min_frequency: int >= 0 = 0", "min_frequency_every: int = 1000",
           "shared_rows: int = 0",
           "rounding: {'nearest', 'stochastic'} = 'nearest'",
           "stored_as: {'same', 'float16', 'bfloat16', 'int8'} = 'same'",
           "table_name: string = ''")
    .Stateful(ScalarOutputs({}))
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
when_full: Whether a call with new ids beyond max_rows evicts rows, or fails
  with FAILED_PRECONDITION and changes nothing.
max_age: When the step moves, rows and pending ids last seen more steps ago are
  removed; -1: none.
min_norm: When the step reaches or passes a multiple of min_norm_every, rows with
  a smaller Euclidean norm are removed; 0: none.
min_frequency: When the step reaches or passes a multiple of
  min_frequency_every, rows with a smaller frequency are removed; 0: none.
shared_rows: Number of trained rows shared by ids without a row, for lookups
  with missing='shared'.
rounding: How updates round rows of 16 bits.
stored_as: How rows other than shared rows are stored in host memory. Rows that
  are not stored the same are rounded when they are written, and cannot be
  trained: lookups that insert and updates fail with FAILED_PRECONDITION. int8
  has a float32 scale per row.
table_name: Name in errors of updates and of when_full.
INVALID_ARGUMENT if a variable with this name has another dim or dtype, or a
value is out of range.
)doc");

LODESTAR_OP("EmbeddingFind")
    .Inputs("handle: resource", "hook: dtype", "ids: int64",
            "missing_row: dtype")
    .Outputs("rows: dtype", "found: bool")
    .Attrs(kRowDtype,
           "missing: {'zeros', 'initial', 'vector', 'shared'} = 'zeros'",
           "use_padding: bool = false", "padding_id: int = 0")
    .Stateful(Shapes("[], [?, d], [...i] -> [...i, d], [...i]"))
    .Doc(R"doc(
Reads rows, without writing.

hook: [0, D]. Carries the gradient.
ids: Any shape.
missing_row: [D] if missing is 'vector', else not read.
rows: ids.shape + [D].
found: ids.shape.
padding_id: Reads zeros and counts as not found, if use_padding.
)doc");

// Reads a table but is not stateful, so that a graph can prune it if the
// gradient of the weights is not used.
LODESTAR_OP("EmbeddingFindForGradient")
    .Inputs("handle: resource", "hook: dtype", "ids: int64",
            "missing_row: dtype", "gradient: dtype")
    .Outputs("rows: dtype")
    .Attrs(kRowDtype, "missing: {'zeros', 'initial', 'vector', 'shared'}",
           "use_padding: bool = false", "padding_id: int = 0")
    .Stateless(Shapes("[], [?, d], [...i] -> [...i, d]"))
    .Doc(R"doc(
Reads the rows that the gradient of bag weights needs. Does not count reads.

hook, ids, missing_row, rows, padding_id: As for EmbeddingFind.
gradient: Not read. Makes the ops of different backward passes differ, so that
  rows are read again after an update.
)doc");

LODESTAR_OP("EmbeddingFindOrInsert")
    .Inputs("handle: resource", "hook: dtype", "ids: int64",
            "missing_row: dtype")
    .Outputs("rows: dtype", "unique_ids: int64", "positions: int64")
    .Attrs(kRowDtype, "insert: bool = true", "count: bool = true",
           "admit: {'policy', 'all', 'none'} = 'policy'",
           "missing: {'zeros', 'initial', 'vector', 'shared'} = 'zeros'",
           "use_padding: bool = false", "padding_id: int = 0")
    .Stateful(Shapes("[], [?, d], [...i] -> [...i, d], [?], [?]"))
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

LODESTAR_OP("EmbeddingFindOrInsertUnique")
    .Inputs("handle: resource", "ids: int64", "occurrences: int64",
            "missing_row: dtype")
    .Outputs("rows: dtype", "resident: bool")
    .Attrs(kRowDtype, "insert: bool = true", "count: bool = true",
           "admit: {'policy', 'all', 'none'} = 'policy'",
           "missing: {'zeros', 'initial', 'vector', 'shared'} = 'zeros'")
    .Stateful(Shapes("[], [n], [?], [?] -> [n, ?], [n]"))
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

LODESTAR_OP("EmbeddingUnique")
    .Inputs("ids: int64")
    .Outputs("unique_ids: int64", "positions: int64")
    .Attrs("use_padding: bool = false", "padding_id: int = 0")
    .Stateless(Shapes("* -> [?], [?]"))
    .Doc(R"doc(
Returns the unique ids, in order of first occurrence.

ids: Any shape, with N elements.
unique_ids: [U], without padding.
positions: [N], the index of each id in unique_ids, -1 for padding.
)doc");

LODESTAR_OP("EmbeddingGradient")
    .Inputs("gradient: dtype", "positions: int64", "unique_ids: int64")
    .Outputs("sums: dtype")
    .Attrs(kRowDtype)
    .Stateless(Shapes("[?, d], *, [u] -> [u, d]"))
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
  std::vector<int> ranks;
  for (int rank : {0, 1, 2, 1, 0}) ranks.insert(ranks.end(), num_tables, rank);
  return CheckRanks(c, ranks);
}

LODESTAR_OP("EmbeddingCheckApply")
    .Inputs("handle: resource", "ids: int64", "gradients: float")
    .Attrs("optimizer: string", "slot_names: list(string) = []",
           "additions: int >= 0 = 0")
    .Stateful(ScalarOutputs({0, 1, 2}))
    .Doc(R"doc(
Performs the checks of an update with nonfinite = 'raise', and writes nothing.

Runs for every variable of a step before any of them is updated.

ids: [N].
gradients: [N, D].
optimizer: As for EmbeddingApply or EmbeddingGatherForUpdate.
slot_names: As for EmbeddingGatherForUpdate.
additions: If positive, the rows, of float, are sums to which this many such updates are added before they are reset to zero. If 0, the gradients
  are applied directly.
INVALID_ARGUMENT if a gradient, summed over equal ids and over ids with the same
shared row, contains NaN or infinity, or if rows of sums would exceed half of
their range.
FAILED_PRECONDITION if the rows have another optimizer's slots.
)doc");

LODESTAR_OP("EmbeddingApply")
    .Inputs("handle: resource", "ids: int64", "gradients: float",
            "hyperparameters: float", "next_step: int64")
    .Attrs("optimizer: " LODESTAR_OPTIMIZERS, "slot_inits: list(float) >= 0",
           "create_missing: bool = false",
           "nonfinite: {'raise', 'skip', 'pass'} = 'raise'",
           "inside_step: bool = false")
    .Stateful(ScalarOutputs({0, 1, 2, 1, 0}))
    .Doc(R"doc(
Updates rows and their optimizer slots by their gradients.

ids: [N]; the gradients of equal ids are summed, in batch order.
gradients: [N, D].
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
FAILED_PRECONDITION if the rows have another optimizer's slots, or if new rows
do not fit into a table that raises when full.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
)doc");

LODESTAR_OP("EmbeddingApplyAll")
    .Inputs("handles: num_tables * resource", "ids: num_tables * int64",
            "gradients: num_tables * float",
            "hyperparameters: num_tables * float",
            "next_steps: num_tables * int64")
    .Attrs("num_tables: int >= 1", "optimizers: list(" LODESTAR_OPTIMIZERS ")",
           "slot_inits: list(float) >= 0", "create_missing: list(bool)",
           "nonfinite: {'raise', 'skip', 'pass'} = 'raise'",
           "inside_step: bool = false")
    .Stateful(ApplyAllShape)
    .Doc(R"doc(
Applies EmbeddingApply to several different variables, atomically.

ids, gradients, hyperparameters, next_steps, optimizers, create_missing: One per
  variable, as for EmbeddingApply.
slot_inits: Those of all optimizers, concatenated.
nonfinite, inside_step: As for EmbeddingApply.
INVALID_ARGUMENT if a variable is repeated.
INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED as EmbeddingApply,
with the name of the variable. After an error no variable has changed.
)doc");

LODESTAR_OP("EmbeddingStage")
    .Inputs("handle: resource", "ids: int64", "gradients: float",
            "hyperparameters: float", "next_step: int64", "log: resource",
            "attempt: int64", "attempt_name: int64")
    .Attrs("optimizer: " LODESTAR_OPTIMIZERS, "slot_inits: list(float) >= 0",
           "create_missing: bool = false",
           "nonfinite: {'raise', 'skip', 'pass'} = 'raise'")
    .Stateful(ScalarOutputs({0, 1, 2, 1, 0, 0, 1, 0}))
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
