// Ops that take an embedding variable's rows out for an update and write them
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

absl::Status AssignIfUnchangedShape(InferenceContext* c) {
  ShapeHandle ids;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(CheckRanks(c, {0, kAnyRank, kAnyRank, kAnyRank, 2, 3, 0}));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &ids));
  TF_RETURN_IF_ERROR(c->Merge(c->input(2), ids, &unused));
  TF_RETURN_IF_ERROR(c->Merge(c->input(3), ids, &unused));
  c->set_output(0, ids);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Lodestar>EmbeddingGatherForUpdate")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("shared: bool")
    .Input("gradients: slot_dtype")
    .Output("row_ids: int64")
    .Output("row_shared: bool")
    .Output("row_gradients: slot_dtype")
    .Output("rows: slot_dtype")
    .Output("slots: slot_dtype")
    .Output("versions: int64")
    .Attr(kSlotDtype)
    .Attr("optimizer: string")
    .Attr("slot_names: list(string) = []")
    .Attr("slot_inits: list(float) = []")
    .Attr("nonfinite: {'raise', 'skip', 'pass'} = 'raise'")
    .SetIsStateful()
    .SetShapeFn(GatherForUpdateShape)
    .Doc(R"doc(
Takes rows and their optimizer slots out for an update that other ops compute;
EmbeddingAssignIfUnchanged writes it. Attaches the optimizer.

ids: [N], all different. The gradient of an id without a row is dropped and
  counted, or goes to its shared row where there are some.
shared: [N], the id is the number of a shared row.
gradients: [N, D], double for rows of double, else float; as all numbers here.
row_ids: [K].
row_shared: [K].
row_gradients: [K, D], those of one shared row summed in the order of ids.
rows: [K, D].
slots: [S, K, D].
versions: [K], what EmbeddingAssignIfUnchanged compares.
optimizer: 'replay:' and a name.
slot_names: S of them, all different; at most 4.
slot_inits: What each optimizer slot of a new row holds.
nonfinite: As of EmbeddingApply; not asked of gradients of shared rows.
FAILED_PRECONDITION if the rows hold another optimizer's slots.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

REGISTER_OP("Lodestar>EmbeddingAssignIfUnchanged")
    .Input("handle: resource")
    .Input("ids: int64")
    .Input("shared: bool")
    .Input("versions: int64")
    .Input("rows: slot_dtype")
    .Input("slots: slot_dtype")
    .Input("next_step: int64")
    .Output("changed: bool")
    .Attr(kSlotDtype)
    .Attr("optimizer: string")
    .Attr("slot_names: list(string) = []")
    .SetIsStateful()
    .SetShapeFn(AssignIfUnchangedShape)
    .Doc(R"doc(
Writes rows and optimizer slots that EmbeddingGatherForUpdate gave, each of them
as long as no one has written to it since.

ids: [K].
shared: [K].
versions: [K].
rows: [K, D], rounded if the variable's are of 16 bits.
slots: [S, K, D].
next_step: As of EmbeddingApply.
changed: [K], someone has, and the row is as it was.
optimizer: As of EmbeddingGatherForUpdate.
slot_names: As of EmbeddingGatherForUpdate.
FAILED_PRECONDITION if the rows hold another optimizer's slots.
RESOURCE_EXHAUSTED if memory runs out; nothing is changed then.
)doc");

}  // namespace lodestar
