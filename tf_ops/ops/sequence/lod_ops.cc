#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// The last inputs are levels; the outputs have the same lengths.
absl::Status LevelsShape(InferenceContext* c) {
  const int first = c->num_inputs() - c->num_outputs();
  for (int k = 0; k < c->num_outputs(); ++k) {
    ShapeHandle level;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(first + k), 1, &level));
    c->set_output(k, level);
  }
  return absl::OkStatus();
}

}  // namespace

LODESTAR_OP("LodValidate")
    .Inputs("num_rows: int64", "levels: num_levels * int64")
    .Outputs("validated: num_levels * int64")
    .Attrs("num_levels: int >= 1")
    // A check, which graph optimizers must not drop.
    .Stateful([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
      return LevelsShape(c);
    })
    .Doc(R"doc(
Validates offset levels and passes them on.

num_rows: N, the number of rows of the last level.
levels: Offsets, outermost level first; level k indexes level k + 1.
validated: The same buffers.
INVALID_ARGUMENT, with level and index, if a level does not start at 0,
decreases, or does not end at the number of units of the next level (N for the
last one).
)doc");

LODESTAR_OP("LodFromLengths")
    .Inputs("lengths: num_levels * int64")
    .Outputs("levels: num_levels * int64")
    .Attrs("num_levels: int >= 1")
    .Stateless([](InferenceContext* c) {
      for (int k = 0; k < c->num_inputs(); ++k) {
        ShapeHandle lengths;
        TF_RETURN_IF_ERROR(c->WithRank(c->input(k), 1, &lengths));
        DimensionHandle offsets;
        TF_RETURN_IF_ERROR(c->Add(c->Dim(lengths, 0), 1, &offsets));
        c->set_output(k, c->Vector(offsets));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Converts lengths of units to offsets.

lengths: One vector per level.
levels: One vector per level, one element longer.
INVALID_ARGUMENT, with level and index, if a length is negative or a sum
overflows int64.
)doc");

LODESTAR_OP("LodToAbsolute")
    .Inputs("levels: num_levels * int64")
    .Outputs("absolute: num_levels * int64")
    .Attrs("num_levels: int >= 1")
    .Stateless(LevelsShape)
    .Doc(R"doc(
Converts every level to row offsets.

levels: Offsets, outermost level first; level k indexes level k + 1. The last
  one may end anywhere.
absolute: The same levels, each indexing rows.
INVALID_ARGUMENT, with level and index, if the levels are inconsistent.
)doc");

LODESTAR_OP("LodFromAbsolute")
    .Inputs("absolute: num_levels * int64")
    .Outputs("levels: num_levels * int64")
    .Attrs("num_levels: int >= 1")
    .Stateless(LevelsShape)
    .Doc(R"doc(
Converts levels of row offsets to levels that index the next one.

absolute: Row offsets, outermost level first.
levels: The same levels; level k indexes level k + 1. Empty units of a level
  belong to the following unit of the level above, at the end to the last one.
INVALID_ARGUMENT, with level and index, if a level does not start at 0,
decreases, ends at another row than the last one, has an offset that is not one
of the next level's, or has no unit for those of the next level.
)doc");

LODESTAR_OP("LodSlice")
    .Inputs("num_rows: int64", "begin: int64", "end: int64",
            "levels: num_levels * int64")
    .Outputs("row_range: int64", "sliced: num_sliced * int64")
    .Attrs("num_levels: int >= 1", "num_sliced: int >= 1")
    .Stateless([](InferenceContext* c) {
      ShapeHandle unused;
      for (int k = 0; k < c->num_inputs(); ++k) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(k), k < 3 ? 0 : 1, &unused));
      }
      c->set_output(0, c->Vector(2));
      for (int k = 1; k < c->num_outputs(); ++k) {
        c->set_output(k, c->Vector(c->UnknownDim()));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Slices units of a level, including their contents.

num_rows: N, the number of rows of the last level.
begin: The first unit, of level num_levels - num_sliced.
end: The unit after the last one.
levels: Offsets, outermost level first; level k indexes level k + 1.
row_range: The first row of the units, and the row after the last one.
sliced: The last num_sliced levels, sliced to the units; each starts at 0.
INVALID_ARGUMENT, with index and value, unless 0 <= begin <= end <= units, or if
the offsets of the units decrease or are out of range, or if num_sliced is
greater than num_levels.
)doc");

LODESTAR_OP("LodFromSparse")
    .Inputs("indices: int64", "dense_shape: int64")
    .Outputs("levels: num_levels * int64")
    .Attrs("num_levels: int >= 1", "drop_columns: bool = false")
    .Stateless([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRanks(c, {2, 1}));
      for (int k = 0; k < c->num_outputs(); ++k) {
        c->set_output(k, c->Vector(c->UnknownDim()));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns the offset levels of a sparse tensor.

indices: [N, num_levels + 1], in row-major order.
dense_shape: [num_levels + 1]; level 0 has dense_shape[0] units.
levels: Offsets, outermost level first; the last level has N rows.
drop_columns: Whether the entries of an innermost unit may have any columns.
INVALID_ARGUMENT, with index and value, if an index is out of range, is repeated
or not in row-major order, or if, without drop_columns, the entries of an
innermost unit are not contiguous from 0.
RESOURCE_EXHAUSTED if there are too many units to allocate.
)doc");

}  // namespace lodestar
