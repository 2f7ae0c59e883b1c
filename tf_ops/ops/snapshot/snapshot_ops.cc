// docs/snapshot.md has the format.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// Inputs [0, N) are handles; sets `tables` to [N].
absl::Status CheckHandles(InferenceContext* c, int* n, ShapeHandle* tables) {
  TF_RETURN_IF_ERROR(c->GetAttr("N", n));
  TF_RETURN_IF_ERROR(CheckRanks(c, std::vector<int>(*n, 0)));
  *tables = c->Vector(*n);
  return absl::OkStatus();
}

absl::Status BeginShape(InferenceContext* c) {
  int n = 0;
  ShapeHandle tables;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(CheckHandles(c, &n, &tables));
  TF_RETURN_IF_ERROR(c->Merge(c->input(n), tables, &unused));
  c->set_output(0, c->Scalar());
  for (int i = 1; i <= 6; ++i) c->set_output(i, tables);
  c->set_output(7, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status WriteShape(InferenceContext* c) {
  ShapeHandle tables;
  TF_RETURN_IF_ERROR(CheckRanks(c, {0}));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &tables));
  TF_RETURN_IF_ERROR(c->Merge(c->input(2), tables, &tables));
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, tables);
  return absl::OkStatus();
}

// Inputs n and n + 1 are files and their tables.
absl::Status CheckFiles(InferenceContext* c, int n, ShapeHandle* files) {
  TF_RETURN_IF_ERROR(c->WithRank(c->input(n), 1, files));
  return c->Merge(c->input(n + 1), *files, files);
}

// Input `at` says for each of `things` which part of how many it is.
absl::Status CheckParts(InferenceContext* c, int at, ShapeHandle things) {
  ShapeHandle parts;
  TF_RETURN_IF_ERROR(c->Concatenate(things, c->Vector(2), &parts));
  return c->Merge(c->input(at), parts, &parts);
}

absl::Status LoadShape(InferenceContext* c) {
  int n = 0;
  ShapeHandle tables;
  ShapeHandle files;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(CheckHandles(c, &n, &tables));
  TF_RETURN_IF_ERROR(CheckFiles(c, n, &files));
  TF_RETURN_IF_ERROR(CheckParts(c, n + 2, files));
  TF_RETURN_IF_ERROR(CheckParts(c, n + 3, tables));
  TF_RETURN_IF_ERROR(c->Merge(c->input(n + 4), tables, &unused));
  c->set_output(0, c->Scalar());
  c->set_output(1, tables);
  return absl::OkStatus();
}

absl::Status ApplyShape(InferenceContext* c) {
  int n = 0;
  ShapeHandle tables;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(CheckHandles(c, &n, &tables));
  TF_RETURN_IF_ERROR(CheckFiles(c, n, &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(n + 2), 0, &unused));
  c->set_output(0, tables);
  c->set_output(1, tables);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("Lodestar>SnapshotBegin")
    .Input("handles: N * resource")
    .Input("bases: string")
    .Output("snapshot: variant")
    .Output("whole: bool")
    .Output("steps: int64")
    .Output("dims: int64")
    .Output("dtypes: string")
    .Output("optimizers: string")
    .Output("num_slots: int64")
    .Output("slot_names: string")
    .Attr("N: int >= 0")
    .SetIsStateful()
    .SetShapeFn(BeginShape)
    .Doc(R"doc(
Begins a snapshot of embedding variables, all at one moment between two steps.
SnapshotWrite writes it while training goes on; SnapshotEnd ends it.

handles: N different embedding variables.
bases: [N], the state that a delta of each is to begin with; it is one if the
  variable has noted every change since then. Empty: the whole variable.
snapshot: Dropped without SnapshotEnd, it is as if it had not begun.
whole: [N], what is written is all of the variable, not a delta.
steps: [N], the variables' own at that moment.
dims: [N], numbers in a row.
dtypes: [N], of the rows: 'float32', 'float64', 'float16' or 'bfloat16'.
optimizers: [N], whose slots lie beside the rows at that moment; empty: there
  are none.
num_slots: [N], of these optimizers.
slot_names: [S], those of all variables one after another.
FAILED_PRECONDITION if a snapshot of one of them is under way, or if steps leave
  no moment between them.
RESOURCE_EXHAUSTED if memory runs out; none has begun then.
)doc");

REGISTER_OP("Lodestar>SnapshotWrite")
    .Input("snapshot: variant")
    .Input("paths: string")
    .Input("labels: string")
    .Output("rows: int64")
    .Output("removed: int64")
    .Output("bytes: int64")
    .Output("crcs: int64")
    .SetIsStateful()
    .SetShapeFn(WriteShape)
    .Doc(R"doc(
Writes a snapshot, a file a variable, and waits until the disk holds them. It
runs on the thread that calls it, for as long as the disk takes.

snapshot: From SnapshotBegin; can be written once.
paths: [N], of files that do not exist yet.
labels: [N], bytes that say what each file is a part of; empty: it has none, and
  is of version 1 of the format.
rows: [N], written to each.
removed: [N], ids that a delta removes.
bytes: [N].
crcs: [N], CRC32C of the file.
FAILED_PRECONDITION if the snapshot is written, or has ended.
ALREADY_EXISTS, PERMISSION_DENIED, NOT_FOUND or RESOURCE_EXHAUSTED, naming the
  file and the system's reason, if a file cannot be written.
)doc");

REGISTER_OP("Lodestar>SnapshotEnd")
    .Input("snapshot: variant")
    .Input("base: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Ends a snapshot. From here on the variables note their changes since its moment
under the name `base`.

snapshot: From SnapshotBegin.
base: Empty: it has failed, and the variables' changes count from where they did
  before.
FAILED_PRECONDITION if it has ended, or `base` is given and it is not written.
)doc");

REGISTER_OP("Lodestar>SnapshotBase")
    .Input("handle: resource")
    .Output("base: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
The state that an embedding variable notes its changes since.

base: What SnapshotEnd, SnapshotLoad or SnapshotApply said; empty: it notes
  none.
)doc");

REGISTER_OP("Lodestar>SnapshotLoad")
    .Input("handles: N * resource")
    .Input("files: string")
    .Input("file_tables: int64")
    .Input("file_parts: int64")
    .Input("parts: int64")
    .Input("bases: string")
    .Output("loaded: variant")
    .Output("rows: int64")
    .Attr("N: int >= 0")
    .Attr("optimizer_slots: {'require', 'reset'} = 'require'")
    .SetIsStateful()
    .SetShapeFn(LoadShape)
    .Doc(R"doc(
Reads snapshot files for embedding variables, in memory beside what they hold.
SnapshotInstall puts it in place of that. Shards, admission and eviction are each
variable's own.

A table may have been saved in parts, each in files of its own, and a variable
may be one part of a table, which takes its ids alone; numbers of parts need not
be the same on both sides.

handles: N different embedding variables.
files: [F], table files; those of a variable part by part, and those of a part in
  the order of their versions, the first of them whole.
file_tables: [F], which of the handles each file is of; every one has some.
file_parts: [F, 2], the number of the part that each file is of, and how many
  parts that table has.
parts: [N, 2], the same of the variables.
bases: [N], the state's name, of which each variable notes changes from its
  installation on; empty: none.
loaded: Dropped without SnapshotInstall, it is as if it had not been.
rows: [N], that each variable will have.
optimizer_slots: 'require' takes the optimizer slots of the files, which must be
  those of the optimizer that the variable has, if any; 'reset' leaves them out,
  and the next optimizer begins anew.
DATA_LOSS, naming file and byte, if a file is damaged, or holds ids of another
  part.
INVALID_ARGUMENT if a file holds rows of another dim or dtype.
FAILED_PRECONDITION if the optimizers differ, or there are more rows than the
  variable's cap.
)doc");

REGISTER_OP("Lodestar>SnapshotInstall")
    .Input("loaded: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Puts what SnapshotLoad has read into its variables, all at one moment between two
steps.

loaded: From SnapshotLoad; once.
FAILED_PRECONDITION if it was done before, or steps leave no moment between them;
  the variables are as they were.
)doc");

REGISTER_OP("Lodestar>SnapshotApply")
    .Input("handles: N * resource")
    .Input("files: string")
    .Input("file_tables: int64")
    .Input("base: string")
    .Output("written: int64")
    .Output("removed: int64")
    .Attr("N: int >= 0")
    .Attr("optimizer_slots: {'require', 'reset'} = 'require'")
    .SetIsStateful()
    .SetShapeFn(ApplyShape)
    .Doc(R"doc(
Takes deltas into embedding variables that are read meanwhile: rows switch one
by one. All files are read and checked first, and an error in that changes no
variable. An error after that (a file has changed, other rows have taken the
room under a cap, memory runs out) leaves a part of the deltas taken in.

handles: N different embedding variables, which must hold the
  state that the deltas begin with.
files: [F], deltas; of a table in parts one of each part.
file_tables: [F], which of the handles each file is of; every one has some.
base: The state's name, of which they note changes from here on; empty: none.
written: [N], rows made or written to.
removed: [N], rows that were there and are not any more.
optimizer_slots: 'reset' keeps the variable's optimizer out of it: optimizer
  slots in the file are left out, and those of written rows begin anew.
DATA_LOSS, naming file and byte, if a file is damaged.
INVALID_ARGUMENT if a file is no delta, or of rows of another dim or dtype.
FAILED_PRECONDITION if the optimizers differ, or there are then more rows than the
  variable's cap.
)doc");

REGISTER_OP("Lodestar>SnapshotVerifyFile")
    .Input("path: string")
    .Output("bytes: int64")
    .Output("crc: int64")
    .Output("rows: int64")
    .Output("removed: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
Reads a snapshot file and checks all that it says of itself.

crc: CRC32C of the file.
rows: It holds.
removed: Ids that it removes.
DATA_LOSS, naming file and byte, if it is damaged.
NOT_FOUND or PERMISSION_DENIED if it cannot be read.
)doc");

REGISTER_OP("Lodestar>SnapshotReadBlock")
    .Input("path: string")
    .Input("offset: int64")
    .Output("kind: int64")
    .Output("count: int64")
    .Output("payload: string")
    .Output("next: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Reads one block of a snapshot file and checks it.

offset: Of the block; 16 for the first.
kind: 1 TABLE, 2 ROWS, 3 REMOVED, 4 PENDING, 5 SKETCH, 6 SHARED_ROWS, 7 BLOB,
  8 END, 9 LABEL.
count: Of records.
payload: Its bytes, without padding.
next: Offset of the block behind it; -1 behind END.
DATA_LOSS, naming file and byte, if it is damaged.
INVALID_ARGUMENT if no block can begin there.
)doc");

REGISTER_OP("Lodestar>SnapshotMerge")
    .Input("files: string")
    .Input("out: string")
    .Input("label: string")
    .Output("rows: int64")
    .Output("bytes: int64")
    .Output("crc: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({1, 0, 0}))
    .Doc(R"doc(
Makes one whole table file of a table's whole file and the deltas that follow.

files: [F], in the order of their versions, the first of them whole.
out: Path of a file that does not exist yet.
label: Of that file, as SnapshotWrite takes them.
rows: It holds.
crc: CRC32C of the file.
DATA_LOSS, naming file and byte, if a file is damaged.
INVALID_ARGUMENT if the files do not follow each other.
)doc");

REGISTER_OP("Lodestar>SnapshotWriteBlobs")
    .Input("path: string")
    .Input("blobs: string")
    .Input("label: string")
    .Output("bytes: int64")
    .Output("crc: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Writes a snapshot file of blobs, and waits until the disk holds it.

path: Of a file that does not exist yet.
blobs: [K]; their bytes lie one after another in the payloads of BLOB blocks.
label: Of the file, as SnapshotWrite takes them.
bytes: Of the file.
crc: CRC32C of the file.
ALREADY_EXISTS, PERMISSION_DENIED, NOT_FOUND or RESOURCE_EXHAUSTED, naming the
  file and the system's reason, if it cannot be written.
)doc");

REGISTER_OP("Lodestar>SnapshotFileCrc")
    .Input("path: string")
    .Output("bytes: int64")
    .Output("crc: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutputs({0}))
    .Doc(R"doc(
The size and CRC32C of any file.

NOT_FOUND or PERMISSION_DENIED if it cannot be read.
)doc");

}  // namespace lodestar
