#include "tf_ops/ops/shape_fns.h"

namespace lodestar {
namespace {

// Outputs have the handle data of inputs 1, 2, ...
absl::Status ResourcesShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRanks(c, std::vector<int>(c->num_inputs(), 0)));
  for (int i = 0; i < c->num_outputs(); ++i) {
    c->set_output(i, c->Scalar());
    const auto* const data = c->input_handle_shapes_and_types(i + 1);
    if (data != nullptr) c->set_output_handle_shapes_and_types(i, *data);
  }
  return absl::OkStatus();
}

}  // namespace

LODESTAR_OP("SnapshotFollower")
    .Outputs("handle: resource")
    .Attrs("container: string = ''", "shared_name: string = ''",
           "folder: string", "poll_seconds: float = 0.0",
           "tables: list(string)", "weights: list(string)",
           "id_tables: list(string) = []", "vocabularies: list(string) = []",
           "digests: list(string) = []", "schema: string = ''")
    .Stateful(ScalarOutputs({}))
    .Doc(R"doc(
Returns the handle of a follower of a snapshot folder; creates it if needed.

It loads versions into resources of its own, next to those of the model ("own"
below): the embedding variables `tables` on a CPU, followed by the variables
`weights` and the id tables `id_tables`.

folder: Path to the folder, which need not exist. The environment variable
  LODESTAR_SNAPSHOTS overrides it.
poll_seconds: Time between polls by a thread, which begins with the first
  SnapshotFollowerRefresh; at most 1e6. 0: no thread.
tables: Names in snapshots.
weights: Paths in snapshots.
id_tables: Names in snapshots.
vocabularies: Names of id tables whose keys are part of the model. A version
  with other keys is refused.
digests: Of their keys and of the lengths of strings: "bytes:crc32c
  bytes:crc32c" in decimal digits.
schema: YAML of the model's schema. A version with another one is refused.
)doc");

LODESTAR_OP("SnapshotFollowerRefresh")
    .Inputs("follower: resource", "own: N * resource")
    .Outputs("version: int64")
    .Attrs("N: int >= 1")
    .Stateful(ScalarOutputs({0}))
    .Doc(R"doc(
Loads the newest version that fits the model and is intact, if it is newer.

Versions that cannot be loaded are skipped, see SnapshotFollowerStats. Later
lookups in the own embedding variables read the rows of the loaded version.

own: The own resources.
version: The served version; 0 for the model's own content.
INVALID_ARGUMENT if `own` are not the follower's own resources.
UNIMPLEMENTED if a table is not in host memory.
)doc");

LODESTAR_OP("SnapshotFollowerResources")
    .Inputs("follower: resource", "own: N * resource")
    .Outputs("resources: N * resource")
    .Attrs("N: int >= 1")
    .Stateful(ResourcesShape)
    .Doc(R"doc(
Returns the tables, weights and id tables of the served version.

They do not change as long as a handle exists.

own: The own resources.
resources: Those of the version. Until one is loaded, those of the own content,
  which does not change either.
INVALID_ARGUMENT if `own` are not the follower's own resources.
UNIMPLEMENTED if a table is not in host memory.
)doc");

LODESTAR_OP("SnapshotFollowerStats")
    .Inputs("follower: resource")
    .Outputs("version: int64", "step: int64", "snapshot_time: string",
             "seconds_since_update: double", "updates: int64",
             "full_updates: int64", "failures: int64", "last_error: string")
    .Stateful(ScalarOutputs({0}))
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
)doc");

}  // namespace lodestar
