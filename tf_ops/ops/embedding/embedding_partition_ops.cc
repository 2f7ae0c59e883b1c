#include <vector>

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// The dtypes of values per id: rows, counts, and whether there is a row.
constexpr char kRowAttr[] = "T: {half, bfloat16, float, int32, int64, bool}";

absl::Status PartitionShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {1}));
  const int num_parts = c->num_outputs() - 1;
  for (int p = 0; p < num_parts; ++p) {
    c->set_output(p, c->UnknownShapeOfRank(1));
  }
  c->set_output(num_parts, c->input(0));
  return absl::OkStatus();
}

absl::Status PartitionRowsShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, {1}));
  const int num_parts = (c->num_outputs() - 1) / 2;
  for (int p = 0; p < num_parts; ++p) {
    const DimensionHandle size = c->UnknownDim();
    c->set_output(p, c->Vector(size));
    TF_RETURN_IF_ERROR(ReplaceFirst(c, c->input(1), size, num_parts + p));
  }
  c->set_output(2 * num_parts, c->input(0));
  return absl::OkStatus();
}

absl::Status AssembleShape(InferenceContext* c) {
  const int num_parts = c->num_inputs() - 1;
  ShapeHandle places, row, merged = c->UnknownShape();
  TF_RETURN_IF_ERROR(c->WithRank(c->input(num_parts), 1, &places));
  for (int p = 0; p < num_parts; ++p) {
    TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(p), 1, &row));
    TF_RETURN_IF_ERROR(c->Subshape(row, 1, &row));
    TF_RETURN_IF_ERROR(c->Merge(merged, row, &merged));
  }
  ShapeHandle rows;
  TF_RETURN_IF_ERROR(c->Concatenate(places, merged, &rows));
  c->set_output(0, rows);
  return absl::OkStatus();
}

}  // namespace

LODESTAR_OP("EmbeddingPartition")
    .Inputs("ids: int64")
    .Outputs("parts: num_parts * int64", "places: int64")
    .Attrs("num_parts: int >= 1")
    .Stateless(PartitionShape)
    .Doc(R"doc(
Partitions ids over the parts of a table.

The part of an id is the same in every call. Ids of a part keep their order.

ids: [N].
parts: The ids of each part.
places: [N], the index of each id in the concatenated ids of all parts.
)doc");

LODESTAR_OP("EmbeddingPartitionRows")
    .Inputs("ids: int64", "rows: T")
    .Outputs("part_ids: num_parts * int64", "part_rows: num_parts * T",
             "places: int64")
    .Attrs("num_parts: int >= 1", kRowAttr)
    .Stateless(PartitionRowsShape)
    .Doc(R"doc(
Partitions ids like EmbeddingPartition, together with their rows.

ids: [N].
rows: [N, ...].
part_ids: The ids of each part.
part_rows: The rows of each part, [N_p, ...].
places: As for EmbeddingPartition.
INVALID_ARGUMENT if the numbers of rows and ids differ.
)doc");

LODESTAR_OP("EmbeddingAssemble")
    .Inputs("rows: num_parts * T", "places: int64")
    .Outputs("assembled: T")
    .Attrs("num_parts: int >= 1", kRowAttr)
    .Stateless(AssembleShape)
    .Doc(R"doc(
Assembles rows of parts in the order of the ids before EmbeddingPartition.

rows: Per part, [N_p, ...].
places: [N], indices into the concatenated rows of all parts.
assembled: [N, ...].
INVALID_ARGUMENT if a place is not in [0, sum of N_p) or rows differ in shape.
)doc");

}  // namespace lodestar
