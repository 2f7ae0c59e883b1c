// Ops that gather an embedding variable's rows for an update and write them
// back.

#include <string>
#include <vector>

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

absl::Status GatherForUpdateShape(InferenceContext* c) {
  ShapeHandle ids;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(CheckRanks(c, {0, kAnyRank, kAnyRank, 2}));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &ids));
  TF_RETURN_IF_ERROR(c->Merge(c->input(2), ids, &unused));
  std::vector<std::string> slot_names;
  TF_RETURN_IF_ERROR(c->GetAttr("slot_names", &slot_names));
  const DimensionHandle k = c->UnknownDim();
  const ShapeHandle rows = c->Matrix(k, c->Dim(c->input(3), 1));
  c->set_output(0, c->Vector(k));
  c->set_output(1, c->Vector(k));
  c->set_output(2, rows);
  c->set_output(3, rows);
  ShapeHandle slots;
  TF_RETURN_IF_ERROR(c->Concatenate(
      c->Vector(static_cast<int64_t>(slot_names.size())), rows, &slots));
  c->set_output(4, slots);
  c->set_output(5, c->Vector(k));
  return absl::OkStatus();
}

}  // namespace

LODESTAR_OP("EmbeddingGatherForUpdate")
    .Inputs("handle: resource", "ids: int64", "shared: bool",
            "gradients: float")
    .Outputs("row_ids: int64", "row_shared: bool", "row_gradients: float",
             "rows: float", "slots: float", "versions: int64")
    .Attrs("optimizer: string", "slot_names: list(string) = []",
           "slot_inits: list(float) = []",
           "nonfinite: {'raise', 'skip', 'pass'} = 'raise'")
    .Stateful(GatherForUpdateShape)
    .Doc(R"doc(
Gathers rows and their optimizer slots for an update that other ops compute and
EmbeddingAssignIfUnchanged writes. Attaches the optimizer.

ids: [N], unique. The gradient of an id without a row is dropped and counted, or
  applied to its shared row if the table has shared rows.
shared: [N], whether the id is the number of a shared row.
gradients: [N, D].
row_ids: [K].
row_shared: [K].
row_gradients: [K, D]; gradients of a shared row are summed in the order of ids.
rows: [K, D].
slots: [S, K, D].
versions: [K], compared by EmbeddingAssignIfUnchanged.
optimizer: 'replay:' and a name.
slot_names: S different names, at most 4.
slot_inits: Initial values of the optimizer slots.
nonfinite: As for EmbeddingApply; does not apply to gradients of shared rows.
FAILED_PRECONDITION if the rows have another optimizer's slots.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
)doc");

LODESTAR_OP("EmbeddingAssignIfUnchanged")
    .Inputs("handle: resource", "ids: int64", "shared: bool", "versions: int64",
            "rows: float", "slots: float", "next_step: int64")
    .Outputs("changed: bool")
    .Attrs("optimizer: string", "slot_names: list(string) = []")
    .Stateful(Shapes("[], [k], [k], [k], [?, ?], [?, ?, ?], [] -> [k]"))
    .Doc(R"doc(
Writes rows and optimizer slots of EmbeddingGatherForUpdate, except rows that
have changed since.

ids: [K].
shared: [K].
versions: [K].
rows: [K, D], rounded if the variable has 16-bit rows.
slots: [S, K, D].
next_step: As for EmbeddingApply.
changed: [K], whether the row had changed and was not written.
optimizer: As for EmbeddingGatherForUpdate.
slot_names: As for EmbeddingGatherForUpdate.
FAILED_PRECONDITION if the rows have another optimizer's slots.
RESOURCE_EXHAUSTED if out of memory; nothing is changed then.
)doc");

}  // namespace lodestar
