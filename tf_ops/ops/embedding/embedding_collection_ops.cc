#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// How many items each list of inputs or outputs has.
struct Counts {
  int tables = 0;
  int features = 0;
  int ragged = 0;
  int weighted = 0;
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
      "`table_dtypes` must have one item a table, `feature_dtypes` one a "
      "feature");
}

absl::Status GetCounts(InferenceContext* c, Counts* counts) {
  TF_RETURN_IF_ERROR(c->GetAttr("T", &counts->tables));
  TF_RETURN_IF_ERROR(c->GetAttr("F", &counts->features));
  TF_RETURN_IF_ERROR(c->GetAttr("R", &counts->ragged));
  TF_RETURN_IF_ERROR(c->GetAttr("W", &counts->weighted));
  return CheckDtypes(c, counts->tables, counts->features);
}

// What `feature` gives: a bag's row for pooled ids, an id's row for others.
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
// winners. Of lists of inputs the hooks begin at `first_hook`, the ids at
// `first_ids`.
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
        "`tables`, `combiners` and `ragged` must have one item a feature");
  }
  int splits = first_ids + counts.features;
  const int first_weights = splits + counts.ragged;
  for (size_t f = 0; f < features; ++f) {
    if (tables[f] < 0 || tables[f] >= counts.tables) {
      return absl::InvalidArgumentError("`tables` names a table that is none");
    }
    ShapeHandle hook;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(first_hook + tables[f]), 2, &hook));
    if (ragged[f] && splits == first_weights) {
      return absl::InvalidArgumentError("`ragged` names more than R features");
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
    return absl::InvalidArgumentError("`dims` must have one item a table");
  }
  for (int t = 0; t < num_tables; ++t) {
    const DimensionHandle unique = c->UnknownDim();
    c->set_output(t, c->Vector(unique));
    c->set_output(num_tables + t, c->Matrix(unique, dims[t]));
  }
  return absl::OkStatus();
}

// The weights are the last inputs.
absl::Status WeightsGradientShape(InferenceContext* c) {
  Counts counts;
  TF_RETURN_IF_ERROR(GetCounts(c, &counts));
  for (int i = 0; i < counts.weighted; ++i) {
    c->set_output(i, c->input(c->num_inputs() - counts.weighted + i));
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

absl::Status StatsShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
  c->set_output(0, c->Matrix(c->UnknownDim(), 4));
  return absl::OkStatus();
}

}  // namespace

#define LIST_OF_DTYPES "list({float, double, half, bfloat16}) >= 1"

// What the features are, in each op that has some.
#define FEATURE_ATTRS                       \
  Attr("T: int >= 1")                       \
      .Attr("F: int >= 1")                  \
      .Attr("R: int >= 0")                  \
      .Attr("W: int >= 0")                  \
      .Attr("names: list(string) >= 1")     \
      .Attr("tables: list(int) >= 1")       \
      .Attr("combiners: list(string) >= 1") \
      .Attr("ragged: list(bool) >= 1")      \
      .Attr("weighted: list(bool) >= 1")    \
      .Attr("salted: list(bool) >= 1")      \
      .Attr("salts: list(int) >= 1")        \
      .Attr("use_padding: list(bool) >= 1") \
      .Attr("padding_ids: list(int) >= 1")  \
      .Attr("use_default: list(bool) >= 1") \
      .Attr("default_ids: list(int) >= 1")  \
      .Attr("max_lengths: list(int) >= 1")

// Likewise, in each op that has rows.
#define FEATURE_AND_DTYPE_ATTRS                       \
  FEATURE_ATTRS.Attr("table_dtypes: " LIST_OF_DTYPES) \
      .Attr("feature_dtypes: " LIST_OF_DTYPES)

REGISTER_OP("Lodestar>EmbeddingCollectionLookup")
    .Input("handles: T * resource")
    .Input("hooks: table_dtypes")
    .Input("missing_rows: table_dtypes")
    .Input("ids: F * int64")
    .Input("row_splits: R * int64")
    .Input("weights: W * float")
    .Input("counters: C * resource")
    .Output("rows: feature_dtypes")
    .Output("unique_ids: T * int64")
    .Output("positions: T * int64")
    .Output("winners: M * int64")
    .FEATURE_AND_DTYPE_ATTRS.Attr("M: int >= 0")
    .Attr("C: int >= 0")
    .Attr("missing: list({'zeros', 'initial', 'vector', 'shared'}) >= 1")
    .Attr("insert: bool = true")
    .Attr("count: bool = true")
    .Attr("admit: {'policy', 'all', 'none'} = 'policy'")
    .SetIsStateful()
    .SetShapeFn(LookupShape)
    .Doc(R"doc(
Looks up F features in T tables.

A feature is an item of names, tables (the index of its table), combiners ('':
a row for each id; else sum, mean, sqrtn, max, first or last over bags of ids),
ragged (whether it has row_splits; a pooled feature without pools the last axis
of its ids), weighted (whether it has weights), and:
salts: The table knows id as mix64(id xor salt), if salted.
padding_ids: No id, if use_padding: reads zeros, no part of a bag. Unsalted.
default_ids: Whose row an empty bag reads, if use_default. Unsalted.
max_lengths: Ids of a bag after these are left out; 0: none.

handles: The tables, all different, of table_dtypes.
hooks: [0, D] of each table, carry the gradient.
missing_rows: [D] of each table where missing is 'vector', else not read.
ids: Of each feature, [N] if ragged, else any shape, of rank 1 or more if
  pooled.
row_splits: [B + 1] of each ragged feature.
weights: Of each weighted feature, shaped as its ids; for sum, mean and sqrtn.
counters: None, or an EmbeddingCollectionCounters that counts what was looked
  up, if insert or count.
rows: Of each feature, [B, D] if ragged; else the shape of its ids, without the
  last axis if pooled, + [D].
unique_ids: Of each table, the distinct ids of its features in order of first
  occurrence, without padding; [0] with neither insert nor count.
positions: Of each table, the index in unique_ids of each id of its features,
  after salting and truncation, -1 for padding; [0] as unique_ids.
winners: Of each feature with combiner max, shaped as its rows: the index among
  its ids, truncated, of each largest number, or -1.
insert: False makes no rows.
count: Counts the sightings of ids.
admit: Which ids without a row get one: those that the admission lets in, all,
  or none, whose sightings are counted all the same.
INVALID_ARGUMENT, naming the feature if names does, if the splits do not start
at 0, descend or do not end at N, or weights are not shaped as ids.
RESOURCE_EXHAUSTED if memory runs out; no table is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingCollectionUnique")
    .Input("ids: F * int64")
    .Input("row_splits: R * int64")
    .Input("weights: W * float")
    .Output("unique_ids: T * int64")
    .Output("positions: T * int64")
    .FEATURE_ATTRS.SetShapeFn(CollectionUniqueShape)
    .Doc(R"doc(
The distinct ids of T tables in F features.

The first step of EmbeddingCollectionLookup, whose attributes and inputs it has,
for tables that are elsewhere; EmbeddingCollectionPool is the last one. What
weights there are changes nothing.

unique_ids: Of each table, the distinct ids of its features in order of first
  occurrence, salted, without padding.
positions: Of each table, the index in unique_ids of each id of its features,
  after salting and truncation, -1 for padding.
INVALID_ARGUMENT as the lookup.
)doc");

REGISTER_OP("Lodestar>EmbeddingCollectionPartitionBags")
    .Input("ids: F * int64")
    .Input("row_splits: R * int64")
    .Input("weights: W * float")
    .Output("part_ids: N * int64")
    .Output("part_row_splits: N * int64")
    .Output("part_factors: N * float")
    .Output("places: F * int64")
    .FEATURE_ATTRS.Attr("num_parts: int >= 1")
    .Attr("N: int >= 1")
    .SetShapeFn(PartitionBagsShape)
    .Doc(R"doc(
Shares bags of F features out to the parts of their tables.

Each part pools its share, as sum with the factors as weights; the sums over all
parts are what EmbeddingCollectionLookup gives, whose attributes and inputs it
has. Features have a combiner other than max, and no default id.

num_parts: Of each table. N is F * num_parts: the parts of feature 0 come first.
part_ids: Of each feature and part, the ids there, salted, in their order.
  Padding is in part 0.
part_row_splits: Likewise, [B + 1].
part_factors: Likewise, what a row counts; 0 for padding.
places: Of each feature, of each of its ids the index among those of its parts,
  one part after another; -1 for what max_length leaves out.
INVALID_ARGUMENT as the lookup.
)doc");

REGISTER_OP("Lodestar>EmbeddingCollectionPool")
    .Input("hooks: table_dtypes")
    .Input("rows: table_dtypes")
    .Input("unique_ids: T * int64")
    .Input("positions: T * int64")
    .Input("ids: F * int64")
    .Input("row_splits: R * int64")
    .Input("weights: W * float")
    .Input("default_rows: default_dtypes")
    .Output("pooled: feature_dtypes")
    .Output("winners: M * int64")
    .FEATURE_AND_DTYPE_ATTRS.Attr("M: int >= 0")
    .Attr("default_dtypes: list({float, double, half, bfloat16}) >= 0")
    .SetShapeFn(PoolShape)
    .Doc(R"doc(
Rows of F features from those of the distinct ids of T tables.

The last step of EmbeddingCollectionLookup, whose attributes and inputs it has,
for rows that were fetched from elsewhere: the same to the bit.

hooks: [0, D] of each table, carry the gradient.
rows: Of each table, [U, D], the row of each of unique_ids.
unique_ids: Of each table, [U]; what the gradient is for.
positions: As EmbeddingCollectionUnique gave them.
default_rows: [D], of each feature with use_default, what its empty bags read.
pooled: As rows of the lookup.
winners: As of the lookup.
INVALID_ARGUMENT as the lookup, and if a position is not in [-1, U) or a shape
does not fit.
)doc");

REGISTER_OP("Lodestar>EmbeddingCollectionPoolWeightsGradient")
    .Input("hooks: table_dtypes")
    .Input("rows: table_dtypes")
    .Input("unique_ids: T * int64")
    .Input("positions: T * int64")
    .Input("gradients: feature_dtypes")
    .Input("ids: F * int64")
    .Input("row_splits: R * int64")
    .Input("weights: W * float")
    .Output("weight_gradients: W * float")
    .FEATURE_AND_DTYPE_ATTRS.SetShapeFn(WeightsGradientShape)
    .Doc(R"doc(
The gradient of EmbeddingCollectionPool with respect to its weights.

The attributes and inputs are those of EmbeddingCollectionPool.

hooks: Not read, as unique_ids: what a gradient of this op goes to.
gradients: Of each feature, shaped as its rows.
weight_gradients: As of EmbeddingCollectionWeightsGradient.
)doc");

REGISTER_OP("Lodestar>EmbeddingCollectionGradient")
    .Input("gradients: feature_dtypes")
    .Input("ids: F * int64")
    .Input("row_splits: R * int64")
    .Input("weights: W * float")
    .Input("unique_ids: T * int64")
    .Input("positions: T * int64")
    .Input("winners: M * int64")
    .Output("summed_ids: T * int64")
    .Output("sums: table_dtypes")
    .FEATURE_AND_DTYPE_ATTRS.Attr("M: int >= 0")
    .Attr("dims: list(int) >= 1")
    .Attr("deduplicated: bool")
    .SetShapeFn(CollectionGradientShape)
    .Doc(R"doc(
Sums the gradients of the equal ids of a table over all its features.

Features in order, each in batch order. The attributes and ids, row_splits and
weights are those of the EmbeddingCollectionLookup.

gradients: Of each feature, shaped as its rows.
unique_ids, positions, winners: As the lookup gave them.
summed_ids: Of each table, its distinct ids, [U].
sums: Of each table, [U, D].
dims: D of each table.
deduplicated: False: unique_ids and positions were not given and are found here.
INVALID_ARGUMENT if a position is not in [-1, U) or a shape does not fit.
)doc");

// It reads tables but is no stateful op: where no one wants the gradient of
// the weights, a graph may drop it.
REGISTER_OP("Lodestar>EmbeddingCollectionWeightsGradient")
    .Input("handles: T * resource")
    .Input("hooks: table_dtypes")
    .Input("missing_rows: table_dtypes")
    .Input("gradients: feature_dtypes")
    .Input("ids: F * int64")
    .Input("row_splits: R * int64")
    .Input("weights: W * float")
    .Output("weight_gradients: W * float")
    .FEATURE_AND_DTYPE_ATTRS
    .Attr("missing: list({'zeros', 'initial', 'vector', 'shared'}) >= 1")
    .SetShapeFn(WeightsGradientShape)
    .Doc(R"doc(
The gradient of EmbeddingCollectionLookup with respect to its weights.

The attributes and inputs are those of the lookup.

hooks: Not read: they are what a gradient of this op goes to.
gradients: Of each feature, shaped as its rows.
weight_gradients: Of each weighted feature, shaped as its weights; zeros for
  padding and for what max_length left out.
)doc");

REGISTER_OP("Lodestar>EmbeddingCollectionCounters")
    .Output("handle: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("num_features: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({}))
    .Doc(R"doc(
Creates counters of what a collection looks up, or finds those of this name.

handle: Handle of the counters.
)doc");

REGISTER_OP("Lodestar>EmbeddingCollectionCount")
    .Input("counters: resource")
    .Input("positions: T * int64")
    .Input("resident: T * bool")
    .Input("ids: F * int64")
    .Input("row_splits: R * int64")
    .Input("weights: W * float")
    .FEATURE_ATTRS.SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Counts what was looked up in tables that are elsewhere.

The attributes and ids, row_splits and weights are those of the
EmbeddingCollectionUnique.

counters: As EmbeddingCollectionLookup takes them.
positions: As EmbeddingCollectionUnique gave them.
resident: Of each table, [U], whether each of its unique ids had a row before.
)doc");

REGISTER_OP("Lodestar>EmbeddingCollectionStats")
    .Input("handle: resource")
    .Output("counts: int64")
    .Attr("reset: bool = false")
    .SetIsStateful()
    .SetShapeFn(StatsShape)
    .Doc(R"doc(
What was looked up in training, by feature.

counts: [F, 4]: ids (padding included, what max_length left out not), padding,
  distinct ids (summed over lookups), and ids that had a row before.
reset: Counts from 0 afterwards.
)doc");

}  // namespace lodestar
