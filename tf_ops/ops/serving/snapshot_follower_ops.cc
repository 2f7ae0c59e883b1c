#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// Resources have the handle data of `own`, inputs 1, 2, ...
absl::Status ResourcesShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, std::vector<int>(c->num_inputs(), 0)));
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
  for (int i = 1; i < c->num_inputs(); ++i) {
    const auto* const data = c->input_handle_shapes_and_types(i);
    if (data != nullptr) c->set_output_handle_shapes_and_types(i - 1, *data);
  }
  return absl::OkStatus();
}

absl::Status StatsShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(ScalarOutputs({0})(c));
  c->set_output(c->num_outputs() - 1, c->Vector(c->UnknownDim()));
  return absl::OkStatus();
}

}  // namespace

LODESTAR_OP("SnapshotFollower")
    .Outputs("handle: resource")
    .Attrs("container: string = ''", "shared_name: string = ''",
           "folder: string", "overridable: bool = true",
           "copies: {'one', 'two'} = 'two'", "poll_seconds: float = 0.0",
           "tables: list(string)", "parts: list(int) = []",
           "weights: list(string)", "id_tables: list(string) = []",
           "vocabularies: list(string) = []", "digests: list(string) = []",
           "schema: string = ''")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Returns the handle of a follower of a snapshot folder; creates it if needed.

It loads versions into resources of its own, next to those of the model ("own"
below): the embedding variables `tables`, followed by the variables `weights`
and the id tables `id_tables`. The handle of a variable on a CPU, or the output
of SnapshotTable, stands for an embedding variable.

folder: Path to the folder, which need not exist.
overridable: Whether the environment variable LODESTAR_SNAPSHOTS overrides it.
copies: Of the tables. 'two': an update changes the one that no call reads.
  'one': it changes rows while calls read them.
poll_seconds: Time between polls by a thread, which begins with the first
  SnapshotFollowerRefresh; at most 1e6. 0: no thread.
tables: Names in snapshots.
parts: How many embedding variables, in order, are the parts of each table;
  empty: one each.
weights: Paths in snapshots.
id_tables: Names in snapshots.
vocabularies: Names of id tables whose keys are part of the model. A version
  with other keys is refused.
digests: Of their keys and of the lengths of strings: "bytes:crc32c
  bytes:crc32c" in decimal digits.
schema: The model's schema.yaml. A version with another meaning of a column, as
  its comments "# COLUMN\tMEANING" say, is refused.
)doc");

LODESTAR_OP("SnapshotFollowerRefresh")
    .Inputs("follower: resource", "own: N * resource")
    .Outputs("version: int64")
    .Attrs("N: int >= 1")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Loads the newest version that fits the model and is intact, if it is newer and
no version is pinned.

Versions that cannot be loaded are skipped, see SnapshotFollowerStats. Later
lookups in the own embedding variables read the rows of the loaded version.

own: The own resources.
version: The served version; 0 for the model's own content.
INVALID_ARGUMENT if `own` are not the follower's own resources.
)doc");

LODESTAR_OP("SnapshotFollowerPin")
    .Inputs("follower: resource", "version: int64", "own: N * resource")
    .Attrs("N: int >= 1")
    .Stateful([](InferenceContext* c) {
      return CheckRanks(c, std::vector<int>(c->num_inputs(), 0));
    })
    .Doc(R"doc(
Serves a version of any age, which stays until another one is pinned.

After an error, the same versions are served and followed as before.

version: 0: none is pinned any more, and the next refresh loads the newest.
own: The own resources.
NOT_FOUND without such a version.
INVALID_ARGUMENT if it is of another model, or `own` are not the follower's own
resources.
DATA_LOSS if it is damaged.
)doc");

LODESTAR_OP("SnapshotFollowerStop")
    .Inputs("follower: resource")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Ends the thread that polls, after the update in progress.
)doc");

LODESTAR_OP("SnapshotFollowerResources")
    .Inputs("follower: resource", "own: N * resource")
    .Outputs("resources: N * resource", "version: variant")
    .Attrs("N: int >= 1")
    .Stateful(ResourcesShape)
    .Doc(R"doc(
Returns the tables, weights and id tables of the served version.

They do not change as long as a handle exists.

own: The own resources.
resources: Those of the version. Until one is loaded, those of the own content,
  which does not change either.
version: Has the same resources, for SnapshotFollowerTable.
INVALID_ARGUMENT if `own` are not the follower's own resources.
)doc");

LODESTAR_OP("SnapshotFollowerTable")
    .Inputs("version: variant")
    .Outputs("table: resource")
    .Attrs("index: int >= 0")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Returns an embedding variable of a version on the device of this op.

Ops with a resource of SnapshotFollowerResources run on a CPU.

version: Output of SnapshotFollowerResources.
index: Position of the variable among its resources.
)doc");

LODESTAR_OP("SnapshotFollowerStats")
    .Inputs("follower: resource")
    .Outputs("version: int64", "step: int64", "snapshot_time: string",
             "seconds_since_update: double", "updates: int64",
             "full_updates: int64", "failures: int64", "last_error: string",
             "newest_version: int64", "lag_versions: int64", "pinned: bool",
             "following: bool", "polls: int64", "rows_written: int64",
             "rows_removed: int64", "bytes: int64",
             "last_update_seconds: double", "metadata: string",
             "model_error: string", "idle_bytes: int64")
    .Stateful(StatsShape)
    .Doc(R"doc(
Returns statistics of a follower.

version: The served version; 0 for the model's own content.
step: Step of its snapshot.
snapshot_time: UTC time of its snapshot.
seconds_since_update: Time since it was loaded; 0 for the own content.
updates: Number of versions loaded.
full_updates: Those that read whole tables.
failures: Number of failed attempts to load a version.
last_error: Why the newest version is not served; empty if it is.
newest_version: In the folder at the last poll; 0: none.
lag_versions: Number of versions there that are newer than the served one.
pinned: Whether a version is pinned.
following: Whether a thread polls.
polls: Number of polls.
rows_written: Number of rows that updates wrote, in all copies.
rows_removed: Number of rows that updates removed.
bytes: Of the files that updates read.
last_update_seconds: How long the last version took to load.
metadata: The snapshot's metadata, a JSON object.
model_error: Why the newest version that is of another model is not served.
idle_bytes: Memory of the copy that does not serve, by embedding variable; empty
  without one.
)doc");

}  // namespace lodestar
