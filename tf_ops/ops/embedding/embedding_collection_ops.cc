#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// The lengths of the lists of inputs and outputs.
struct Counts {
  int tables = 0;
  int features = 0;
  int ragged = 0;
};

absl::Status CheckDtypes(InferenceContext* c, int num_tables,
                         int num_features) {
  std::vector<tensorflow::DataType> tables, features;
  TF_RETURN_IF_ERROR(c->GetAttr("table_dtypes", &tables));
  TF_RETURN_IF_ERROR(c->GetAttr("feature_dtypes", &features));
  if (static_cast<int>(tables.size()) == num_tables &&
      static_cast<int>(features.size()) == num_features) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "`table_dtypes` must have one item per table, `feature_dtypes` one per "
      "feature.");
}

absl::Status GetCounts(InferenceContext* c, Counts* counts) {
  TF_RETURN_IF_ERROR(c->GetAttr("T", &counts->tables));
  TF_RETURN_IF_ERROR(c->GetAttr("F", &counts->features));
  TF_RETURN_IF_ERROR(c->GetAttr("R", &counts->ragged));
  return CheckDtypes(c, counts->tables, counts->features);
}

// The shape of the rows of a feature: one row per bag if pooled, else per id.
absl::Status RowsShape(InferenceContext* c, const ShapeHandle& ids, bool pooled,
                       bool ragged, const ShapeHandle& splits,
                       const DimensionHandle& dim, ShapeHandle* rows) {
  ShapeHandle lead = ids;
  if (pooled && ragged) {
    ShapeHandle vector;
    TF_RETURN_IF_ERROR(c->WithRank(splits, 1, &vector));
    DimensionHandle bags;
    TF_RETURN_IF_ERROR(c->Subtract(c->Dim(vector, 0), 1, &bags));
    lead = c->Vector(bags);
  } else if (pooled) {
    TF_RETURN_IF_ERROR(c->WithRankAtLeast(ids, 1, &lead));
    TF_RETURN_IF_ERROR(c->Subshape(lead, 0, -1, &lead));
  }
  return c->Concatenate(lead, c->Vector(dim), rows);
}

// Sets the first outputs to the rows of all features and the last M to their
// winners. The hooks begin at input `first_hook`, the ids at `first_ids`.
absl::Status FeaturesShape(InferenceContext* c, const Counts& counts,
                           int first_hook, int first_ids) {
  int max = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("M", &max));
  std::vector<int64_t> tables;
  std::vector<std::string> combiners;
  std::vector<bool> ragged;
  TF_RETURN_IF_ERROR(c->GetAttr("tables", &tables));
  TF_RETURN_IF_ERROR(c->GetAttr("combiners", &combiners));
  TF_RETURN_IF_ERROR(c->GetAttr("ragged", &ragged));
  const size_t features = counts.features;
  if (tables.size() != features || combiners.size() != features ||
      ragged.size() != features) {
    return absl::InvalidArgumentError(
        "`tables`, `combiners` and `ragged` must have one item per feature.");
  }
  int splits = first_ids + counts.features;
  const int first_weights = splits + counts.ragged;
  for (size_t f = 0; f < features; ++f) {
    if (tables[f] < 0 || tables[f] >= counts.tables) {
      return absl::InvalidArgumentError(
          "`tables` must contain indices of tables.");
    }
    ShapeHandle hook;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(first_hook + tables[f]), 2, &hook));
    if (ragged[f] && splits == first_weights) {
      return absl::InvalidArgumentError(
          "`ragged` must be true for exactly R features.");
    }
    ShapeHandle rows;
    TF_RETURN_IF_ERROR(
        RowsShape(c, c->input(first_ids + f), !combiners[f].empty(), ragged[f],
                  ragged[f] ? c->input(splits++) : c->UnknownShape(),
                  c->Dim(hook, 1), &rows));
    c->set_output(f, rows);
  }
  for (int i = 0; i < max; ++i) {
    c->set_output(c->num_outputs() - 1 - i, c->UnknownShape());
  }
  return absl::OkStatus();
}

// Sets outputs [first, first + 2 num_tables) to unique ids and positions.
void SetUniqueOfTables(InferenceContext* c, int num_tables, int first) {
  for (int i = 0; i < 2 * num_tables; ++i) {
    c->set_output(first + i, c->UnknownShapeOfRank(1));
  }
}

absl::Status LookupShape(InferenceContext* c) {
  Counts counts;
  TF_RETURN_IF_ERROR(GetCounts(c, &counts));
  TF_RETURN_IF_ERROR(CheckRanks(c, std::vector<int>(counts.tables, 0)));
  SetUniqueOfTables(c, counts.tables, counts.features);
  return FeaturesShape(c, counts, counts.tables, 3 * counts.tables);
}

absl::Status CollectionUniqueShape(InferenceContext* c) {
  SetUniqueOfTables(c, c->num_outputs() / 2, 0);
  return absl::OkStatus();
}

absl::Status PoolShape(InferenceContext* c) {
  Counts counts;
  TF_RETURN_IF_ERROR(GetCounts(c, &counts));
  return FeaturesShape(c, counts, 0, 4 * counts.tables);
}

absl::Status CollectionGradientShape(InferenceContext* c) {
  Counts counts;
  TF_RETURN_IF_ERROR(GetCounts(c, &counts));
  const int num_tables = counts.tables;
  std::vector<int64_t> dims;
  TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
  if (static_cast<int>(dims.size()) != num_tables) {
    return absl::InvalidArgumentError("`dims` must have one item per table.");
  }
  for (int t = 0; t < num_tables; ++t) {
    const DimensionHandle unique = c->UnknownDim();
    c->set_output(t, c->Vector(unique));
    c->set_output(num_tables + t, c->Matrix(unique, dims[t]));
  }
  return absl::OkStatus();
}

absl::Status PartitionBagsShape(InferenceContext* c) {
  int features = 0;
  int parts = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("F", &features));
  TF_RETURN_IF_ERROR(c->GetAttr("num_parts", &parts));
  std::vector<bool> ragged;
  TF_RETURN_IF_ERROR(c->GetAttr("ragged", &ragged));
  int splits = features;
  for (int f = 0; f < features; ++f) {
    ShapeHandle offsets = c->Vector(c->UnknownDim());
    if (f < static_cast<int>(ragged.size()) && ragged[f] &&
        splits < c->num_inputs()) {
      offsets = c->input(splits++);
    }
    for (int p = 0; p < parts; ++p) {
      const int output = f * parts + p;
      const ShapeHandle ids = c->Vector(c->UnknownDim());
      c->set_output(output, ids);
      c->set_output(features * parts + output, offsets);
      c->set_output(2 * features * parts + output, ids);
    }
    c->set_output(3 * features * parts + f, c->Vector(c->UnknownDim()));
  }
  return absl::OkStatus();
}

}  // namespace

#define LIST_OF_DTYPES "list({float, half, bfloat16})"

// The inputs and attributes of a batch of features.
#define BATCH_INPUTS \
  "ids: F * int64", "row_splits: R * int64", "weights: W * float"
#define FEATURE_ATTRS                                                \
  "T: int >= 1", "F: int >= 1", "R: int >= 0", "W: int >= 0",        \
      "names: list(string) >= 1", "tables: list(int) >= 1",          \
      "combiners: list(string) >= 1", "ragged: list(bool) >= 1",     \
      "weighted: list(bool) >= 1", "salted: list(bool) >= 1",        \
      "salts: list(int) >= 1", "use_padding: list(bool) >= 1",       \
      "padding_ids: list(int) >= 1", "use_default: list(bool) >= 1", \
      "default_ids: list(int) >= 1", "max_lengths: list(int) >= 1"

// The attributes of ops with rows of features.
#define FEATURE_AND_DTYPE_ATTRS                           \
  FEATURE_ATTRS, "table_dtypes: " LIST_OF_DTYPES " >= 1", \
      "feature_dtypes: " LIST_OF_DTYPES " >= 1"

LODESTAR_OP("EmbeddingCollectionLookup")
    .Inputs("handles: T * resource", "hooks: table_dtypes",
            "missing_rows: table_dtypes", BATCH_INPUTS,
            "counters: C * resource")
    .Outputs("rows: feature_dtypes", "unique_ids: T * int64",
             "positions: T * int64", "winners: M * int64")
    .Attrs(FEATURE_AND_DTYPE_ATTRS, "M: int >= 0", "C: int >= 0",
           "missing: list({'zeros', 'initial', 'vector', 'shared'}) >= 1",
           "insert: bool = true", "count: bool = true",
           "admit: {'policy', 'all', 'none'} = 'policy'")
    .Stateful(LookupShape)
    .Doc(R"doc(
Looks up F features in T tables.

A feature is an item of names, tables (the index of its table), combiners ('':
one row per id; else sum, mean, sqrtn, max, first or last over bags of ids),
ragged (whether it has row_splits; a pooled feature without them pools the last
axis of its ids), weighted (whether it has weights), and:
salts: The table's key of an id is mix64(id xor salt), if salted.
padding_ids: An id that reads zeros and is not part of a bag, if use_padding.
  Before salting.
default_ids: The id that an empty bag reads, if use_default. Before salting.
max_lengths: Ids per bag; the rest is dropped. 0: no limit.

handles: Different tables, of table_dtypes.
hooks: Per table, [0, D]. Carry the gradient.
missing_rows: Per table, [D] if missing is 'vector', else not read.
ids: Per feature, [N] if ragged, else any shape, of rank 1 or more if pooled.
row_splits: Per ragged feature, [B + 1].
weights: Per weighted feature, with the shape of its ids; for sum, mean and
  sqrtn.
counters: None, or an EmbeddingCollectionCounters that counts the lookups if
  insert or count is true.
rows: Per feature, [B, D] if ragged; else the shape of its ids, without the last
  axis if pooled, + [D].
unique_ids: Per table, the unique ids of its features in order of first
  occurrence, without padding; [0] if neither insert nor count is true.
positions: Per table, the index in unique_ids of each id of its features, after
  salting and truncation, -1 for padding; [0] like unique_ids.
winners: Per feature with combiner max, with the shape of its rows: the index
  among its ids, after truncation, of each maximum, or -1.
insert: Whether to insert missing rows.
count: Whether to count occurrences of ids.
admit: Which missing ids get a row: those that admission admits, all, or none.
  Their occurrences are counted in any case.
INVALID_ARGUMENT, with the feature's name if given, if the splits do not start
at 0, decrease or do not end at N, or weights do not have the shape of ids.
RESOURCE_EXHAUSTED if out of memory; no table is changed then.
)doc");

LODESTAR_OP("EmbeddingCollectionUnique")
    .Inputs(BATCH_INPUTS)
    .Outputs("unique_ids: T * int64", "positions: T * int64")
    .Attrs(FEATURE_ATTRS)
    .Stateless(CollectionUniqueShape)
    .Doc(R"doc(
Returns the unique ids of T tables in F features.

The first step of an EmbeddingCollectionLookup in tables on other devices;
EmbeddingCollectionPool is the last one. Has the attributes and inputs of
EmbeddingCollectionLookup. Weights do not affect the result.

unique_ids: Per table, the unique ids of its features in order of first
  occurrence, salted, without padding.
positions: Per table, the index in unique_ids of each id of its features, after
  salting and truncation, -1 for padding.
INVALID_ARGUMENT as EmbeddingCollectionLookup.
)doc");

LODESTAR_OP("EmbeddingCollectionPartitionBags")
    .Inputs(BATCH_INPUTS)
    .Outputs("part_ids: N * int64", "part_row_splits: N * int64",
             "part_factors: N * float", "places: F * int64")
    .Attrs(FEATURE_ATTRS, "num_parts: int >= 1", "N: int >= 1")
    .Stateless(PartitionBagsShape)
    .Doc(R"doc(
Partitions bags of F features over the parts of their tables.

Each part pools its ids with combiner sum and the factors as weights. The sums
over all parts are the rows of EmbeddingCollectionLookup, whose attributes and
inputs this op has. The combiner of features must not be max, and they must not
have a default id.

num_parts: Per table. N is F * num_parts, with the parts of feature 0 first.
part_ids: Per feature and part, its ids, salted, in order. Padding is in part 0.
part_row_splits: Per feature and part, [B + 1].
part_factors: Per feature and part, the factor of each row; 0 for padding.
places: Per feature, the index of each id in the concatenated ids of all parts;
  -1 for ids that max_length drops.
INVALID_ARGUMENT as EmbeddingCollectionLookup.
)doc");

LODESTAR_OP("EmbeddingCollectionPool")
    .Inputs("hooks: table_dtypes", "rows: table_dtypes",
            "unique_ids: T * int64", "positions: T * int64", BATCH_INPUTS,
            "default_rows: default_dtypes")
    .Outputs("pooled: feature_dtypes", "winners: M * int64")
    .Attrs(FEATURE_AND_DTYPE_ATTRS, "M: int >= 0",
           "default_dtypes: " LIST_OF_DTYPES " >= 0")
    .Stateless(PoolShape)
    .Doc(R"doc(
Pools rows of F features from the rows of the unique ids of T tables.

The last step of an EmbeddingCollectionLookup in tables on other devices. Has
its attributes and inputs, and the same results, bitwise.

hooks: Per table, [0, D]. Carry the gradient.
rows: Per table, [U, D], the row of each of unique_ids.
unique_ids: Per table, [U]. Used by the gradient.
positions: Output of EmbeddingCollectionUnique.
default_rows: Per feature with use_default, [D], the row of its empty bags.
pooled: As `rows` of EmbeddingCollectionLookup.
winners: As for EmbeddingCollectionLookup.
INVALID_ARGUMENT as EmbeddingCollectionLookup, and if a position is not in [-1,
U) or a shape does not match.
)doc");

LODESTAR_OP("EmbeddingCollectionGradient")
    .Inputs("gradients: feature_dtypes", BATCH_INPUTS, "unique_ids: T * int64",
            "positions: T * int64", "winners: M * int64")
    .Outputs("summed_ids: T * int64", "sums: table_dtypes")
    .Attrs(FEATURE_AND_DTYPE_ATTRS, "M: int >= 0", "dims: list(int) >= 1",
           "deduplicated: bool")
    .Stateless(CollectionGradientShape)
    .Doc(R"doc(
Sums the gradients of equal ids of a table over all its features.

Sums features in order, each in batch order. The attributes and ids, row_splits
and weights are the same as in EmbeddingCollectionLookup.

gradients: Per feature, with the shape of its rows.
unique_ids, positions, winners: Outputs of EmbeddingCollectionLookup.
summed_ids: Per table, its unique ids, [U].
sums: Per table, [U, D].
dims: D of each table.
deduplicated: If false, unique_ids and positions are not read but computed.
INVALID_ARGUMENT if a position is not in [-1, U) or a shape does not match.
)doc");

LODESTAR_OP("EmbeddingCollectionCounters")
    .Outputs("handle: resource")
    .Attrs("container: string = ''", "shared_name: string = ''",
           "num_features: int >= 1")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Creates lookup counters of a collection, or finds those with this name.

handle: Handle of the counters.
)doc");

LODESTAR_OP("EmbeddingCollectionCount")
    .Inputs("counters: resource", "positions: T * int64", "resident: T * bool",
            BATCH_INPUTS)
    .Attrs(FEATURE_ATTRS)
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Counts lookups in tables on other devices.

The attributes and ids, row_splits and weights are the same as in
EmbeddingCollectionUnique.

counters: As for EmbeddingCollectionLookup.
positions: Output of EmbeddingCollectionUnique.
resident: Per table, [U], whether each of its unique ids already had a row.
)doc");

LODESTAR_OP("EmbeddingCollectionStats")
    .Inputs("handle: resource")
    .Outputs("counts: int64")
    .Attrs("reset: bool = false")
    .Stateful(Shapes("[] -> [?, 4]"))
    .Doc(R"doc(
Returns the lookups in training, by feature.

counts: [F, 4]: ids (including padding, without ids that max_length drops),
  padding, unique ids (summed over lookups), and ids that already had a row.
reset: Whether to reset the counts to 0.
)doc");

}  // namespace lodestar
