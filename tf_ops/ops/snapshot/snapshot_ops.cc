// The format is documented in docs/internals/formats.md.

#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// Inputs [0, N) are tables; sets `tables` to [N].
absl::Status CheckTables(InferenceContext* c, int* n, ShapeHandle* tables) {
  TF_RETURN_IF_ERROR(c->GetAttr("N", n));
  TF_RETURN_IF_ERROR(CheckRanks(c, std::vector<int>(*n, 0)));
  *tables = c->Vector(*n);
  return absl::OkStatus();
}

absl::Status BeginShape(InferenceContext* c) {
  int n = 0;
  ShapeHandle tables;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(CheckTables(c, &n, &tables));
  TF_RETURN_IF_ERROR(c->Merge(c->input(n), tables, &unused));
  c->set_output(0, c->Scalar());
  for (int i = 1; i <= 6; ++i) c->set_output(i, tables);
  c->set_output(7, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

// Inputs n to n + 2 are files, what is known of them, and the parts of tables.
absl::Status CheckFiles(InferenceContext* c, int n, ShapeHandle tables) {
  ShapeHandle shape;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(n), 1, &shape));
  TF_RETURN_IF_ERROR(c->Concatenate(shape, c->Vector(6), &shape));
  TF_RETURN_IF_ERROR(c->Merge(c->input(n + 1), shape, &unused));
  TF_RETURN_IF_ERROR(c->Concatenate(tables, c->Vector(2), &shape));
  return c->Merge(c->input(n + 2), shape, &unused);
}

absl::Status LoadShape(InferenceContext* c) {
  int n = 0;
  ShapeHandle tables;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(CheckTables(c, &n, &tables));
  TF_RETURN_IF_ERROR(CheckFiles(c, n, tables));
  TF_RETURN_IF_ERROR(c->Merge(c->input(n + 3), tables, &unused));
  c->set_output(0, c->Scalar());
  c->set_output(1, tables);
  return absl::OkStatus();
}

}  // namespace

LODESTAR_OP("SnapshotTable")
    .Inputs("handle: resource")
    .Outputs("table: resource")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns a reference to an embedding variable on any device, for ops on a CPU.

table: On the first CPU of the variable's task. Keeps the variable alive.
)doc");

LODESTAR_OP("SnapshotBegin")
    .Inputs("tables: N * resource", "bases: string")
    .Outputs("snapshot: variant", "whole: bool", "steps: int64", "dims: int64",
             "dtypes: string", "optimizers: string", "num_slots: int64",
             "slot_names: string")
    .Attrs("N: int >= 0")
    .Stateful(BeginShape)
    .Doc(R"doc(
Begins a snapshot of embedding variables at one point between two steps.
SnapshotWrite writes it during training; SnapshotEnd ends it.

tables: N different embedding variables, from SnapshotTable.
bases: [N], the base of an incremental snapshot of each variable, possible if
  the variable has recorded every change since then. Empty: a full snapshot.
snapshot: Dropping it without SnapshotEnd aborts the snapshot.
whole: [N], whether the snapshot is full, not incremental.
steps: [N], the variables' steps at that point.
dims: [N], the embedding dimensions.
dtypes: [N], of the rows: 'float32', 'float16' or 'bfloat16'.
optimizers: [N], whose slots the rows have at that point; empty: none.
num_slots: [N], number of slots of these optimizers.
slot_names: [S], the names of all variables, concatenated.
FAILED_PRECONDITION if one of the variables has a running snapshot, or if steps
overlap for a minute without a gap.
RESOURCE_EXHAUSTED if out of memory; no snapshot has begun then.
)doc");

LODESTAR_OP("SnapshotWrite")
    .Inputs("snapshot: variant", "paths: string", "labels: string")
    .Outputs("rows: int64", "removed: int64", "bytes: int64", "crcs: int64")
    .Stateful(Shapes("[], [n], [n] -> [n], [n], [n], [n]"))
    .Doc(R"doc(
Writes a snapshot, one file per variable, and syncs the files. Runs on the
calling thread until the files are on disk.

snapshot: From SnapshotBegin; can be written once.
paths: [N], of files that do not exist yet.
labels: [N], labels of the files.
rows: [N], rows in each file.
removed: [N], ids removed by an incremental snapshot.
bytes: [N].
crcs: [N], CRC32C of the file.
FAILED_PRECONDITION if the snapshot is already written or has ended.
ALREADY_EXISTS, PERMISSION_DENIED, NOT_FOUND or RESOURCE_EXHAUSTED, with the
file and the system's message, if a file cannot be written.
)doc");

LODESTAR_OP("SnapshotEnd")
    .Inputs("snapshot: variant", "base: string")
    .Stateful(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Ends a snapshot. From then on the variables record their changes since the
snapshot under the name `base`.

snapshot: From SnapshotBegin.
base: Empty: the snapshot has failed, and the variables keep their former base.
FAILED_PRECONDITION if it has ended, or `base` is given but it is not written.
)doc");

LODESTAR_OP("SnapshotBase")
    .Inputs("handle: resource")
    .Outputs("base: string")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the base of an embedding variable's recorded changes.

base: As set by SnapshotEnd or SnapshotLoad; empty: the variable does not record
  changes.
)doc");

LODESTAR_OP("SnapshotLoad")
    .Inputs("tables: N * resource", "files: string", "listed: int64",
            "parts: int64", "bases: string")
    .Outputs("loaded: variant", "rows: int64")
    .Attrs("N: int >= 0", "optimizer_slots: {'require', 'reset'} = 'require'")
    .Stateful(LoadShape)
    .Doc(R"doc(
Reads snapshot files for embedding variables, in addition to their contents.
SnapshotInstall then replaces the contents. Each variable keeps its
shards, admission and eviction.

A table may have been saved in parts, each in its own files, and a variable may
be one part of a table, with only its ids. The numbers of parts may differ.

tables: N different embedding variables, from SnapshotTable.
files: [F], table files of each variable, part by part; within a part in the
  order of their versions, beginning with a full one.
listed: [F, 6], for each file the index of its table, its part number, the number
  of parts of its table, and the CRC32C, the number of rows and the number of
  removed ids that a manifest lists; a CRC32C of -1 if none does. Every table
  needs all of its parts.
parts: [N, 2], the part number of each variable, and the number of its parts.
bases: [N], the base from which each variable records changes after its
  installation; empty: none.
loaded: Dropping it without SnapshotInstall discards it.
rows: [N], number of rows of each variable.
optimizer_slots: 'require' loads the optimizer slots of the files, which must
  belong to the variable's optimizer, if any; 'reset' ignores them, and the next
  optimizer starts with initial slots.
DATA_LOSS, with file and byte, if a file is damaged, not as listed, or has ids of
another part.
INVALID_ARGUMENT if a file has rows of another dim or dtype.
FAILED_PRECONDITION if the optimizers differ, or there are more rows than the
variable's cap.
)doc");

LODESTAR_OP("SnapshotInstall")
    .Inputs("loaded: variant")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Installs the result of SnapshotLoad in its variables, all at one point between
two steps.

loaded: From SnapshotLoad; can be installed once.
FAILED_PRECONDITION if already installed, or if steps overlap for a minute
without a gap; the variables are not changed then.
)doc");

LODESTAR_OP("SnapshotVerifyFile")
    .Inputs("path: string")
    .Outputs("bytes: int64", "crc: int64", "rows: int64", "removed: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Reads and checks a whole snapshot file.

crc: CRC32C of the file.
rows: Number of rows.
removed: Number of removed ids.
DATA_LOSS, with file and byte, if it is damaged.
NOT_FOUND or PERMISSION_DENIED if it cannot be read.
)doc");

LODESTAR_OP("SnapshotReadBlock")
    .Inputs("path: string", "offset: int64")
    .Outputs("kind: int64", "count: int64", "payload: string", "next: int64")
    .Stateful(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Reads one block of a snapshot file and checks it.

offset: Offset of the block; 16 for the first.
kind: 1 TABLE, 2 ROWS, 3 REMOVED, 4 PENDING, 5 SKETCH, 6 SHARED_ROWS, 7 BLOB, 8
  END, 9 LABEL.
count: Number of records.
payload: Its bytes, without padding.
next: Offset of the next block; -1 after END.
DATA_LOSS, with file and byte, if it is damaged.
INVALID_ARGUMENT if no block can begin there.
)doc");

LODESTAR_OP("SnapshotMerge")
    .Inputs("files: string", "listed: int64", "out: string", "label: string")
    .Outputs("rows: int64", "bytes: int64", "crc: int64")
    .Stateful(ScalarOutputs({1, 2, 0, 0}))
    .Doc(R"doc(
Merges a table's full file and its incremental files into one full file.

files: [F], in the order of their versions, beginning with a full one.
listed: [F, 6], as for SnapshotLoad.
out: Path of a file that does not exist yet.
label: Label of the new file, as for SnapshotWrite.
rows: Number of rows.
crc: CRC32C of the file.
DATA_LOSS, with file and byte, if a file is damaged or not as listed.
INVALID_ARGUMENT if the files do not belong to one table.
)doc");

LODESTAR_OP("SnapshotWriteBlobs")
    .Inputs("path: string", "blobs: string", "label: string")
    .Outputs("bytes: int64", "crc: int64")
    .Stateful(ScalarOutputs({0, 1, 0}))
    .Doc(R"doc(
Writes a snapshot file of blobs, and syncs it.

path: Path of a file that does not exist yet.
blobs: [K], concatenated in the payloads of BLOB blocks.
label: Label of the file, as for SnapshotWrite.
bytes: Size of the file.
crc: CRC32C of the file.
ALREADY_EXISTS, PERMISSION_DENIED, NOT_FOUND or RESOURCE_EXHAUSTED, with the
file and the system's message, if it cannot be written.
)doc");

LODESTAR_OP("SnapshotReadBlobs")
    .Inputs("path: string", "listed: int64")
    .Outputs("blobs: string")
    .Stateful(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Reads the concatenated blobs of a snapshot file and checks the file.

listed: CRC32C that a manifest lists for the file; -1 if none does.
DATA_LOSS, with file and byte, if it is damaged or not as listed.
NOT_FOUND or PERMISSION_DENIED if it cannot be read.
)doc");

LODESTAR_OP("SnapshotCheckManifest")
    .Inputs("path: string", "content: string")
    .Stateful(ScalarOutputs({0, 0}))
    .Doc(R"doc(
Checks the content of a manifest.

path: Path to its file, for errors.
DATA_LOSS if it is damaged or not valid.
UNIMPLEMENTED if it has another format.
)doc");

LODESTAR_OP("SnapshotCrc")
    .Inputs("data: string")
    .Outputs("crc: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the CRC32C of bytes.
)doc");

LODESTAR_OP("SnapshotFileCrc")
    .Inputs("path: string")
    .Outputs("bytes: int64", "crc: int64")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns the size and CRC32C of any file.

NOT_FOUND or PERMISSION_DENIED if it cannot be read.
)doc");

}  // namespace lodestar
