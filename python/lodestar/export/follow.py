"""Makes exported functions read the newest version in a snapshot folder."""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lodestar._checks import is_number
from lodestar._library import gen_ops
from lodestar._resource import SharedResource
from lodestar._typing import StrPath
from lodestar.data.schema import Schema
from lodestar.export.contents import ModelContents
from lodestar.layers.id_lookup import IdLookup
from lodestar.ops import snapshot_ops
from lodestar.snapshot import id_contents, model_variables
from lodestar.snapshot.folder import local_path

# Prefix of the ops of a traced function inside the one that follows snapshots.
_SCOPE = "followed"
# For operators of a server; they take no inputs.
SIGNATURES = ("refresh", "follower_stats")
# The outputs of SnapshotFollowerStats.
STATS = (
    *("version", "step", "snapshot_time", "seconds_since_update"),
    *("updates", "full_updates", "failures", "last_error"),
)


class Follower(SharedResource):
    """Loads versions of a snapshot folder where a SavedModel is served.

    Args:
        contents: Its contents.
        folder: Path to the snapshot folder.
        poll_seconds: Time between polls; None: only `refresh`.
        schema: The model's schema, if it has one.
    """

    def __init__(
        self,
        contents: ModelContents,
        folder: StrPath,
        poll_seconds: float | None,
        schema: Schema | None,
    ):
        super().__init__("follower")
        _check_contents(contents)
        weights = model_variables.by_path(contents.weights)
        id_tables = {
            key: table
            for key, table in contents.id_tables.items()
            if key not in contents.lookups
        }
        vocabularies = {
            layer.name: layer for layer in contents.lookups.values()
        }
        self._attributes: dict[str, Any] = {
            "folder": os.path.abspath(local_path(folder, "follow")),
            "poll_seconds": _check_seconds(poll_seconds),
            "tables": list(contents.tables),
            "weights": list(weights),
            "id_tables": list(id_tables),
            "vocabularies": list(vocabularies),
            "digests": [_digest(layer) for layer in vocabularies.values()],
            "schema": "" if schema is None else schema.yaml(),
        }
        self._own = [
            *(t._parts[0].resource_handle for t in contents.tables.values()),
            *(v.value.handle for v in weights.values()),
            *(table.resource_handle for table in id_tables.values()),
        ]
        with tf.init_scope():
            _ = self.resource_handle

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        return gen_ops.lodestar_snapshot_follower(
            shared_name=shared_name, container=container, **self._attributes
        )

    def _fill(self) -> tf.Tensor:
        return self._refresh()

    def _refresh(self) -> tf.Tensor:
        return gen_ops.lodestar_snapshot_follower_refresh(
            self.resource_handle, self._own
        )

    def signatures(self) -> dict[str, Any]:
        """Returns the functions of `SIGNATURES`."""

        @tf.function(input_signature=[], autograph=False)
        def refresh() -> dict[str, tf.Tensor]:
            return {"version": self._refresh()}

        @tf.function(input_signature=[], autograph=False)
        def follower_stats() -> dict[str, tf.Tensor]:
            outputs = gen_ops.lodestar_snapshot_follower_stats(
                self.resource_handle
            )
            return dict(zip(STATS, outputs, strict=True))

        functions = (refresh, follower_stats)
        return {
            name: function.get_concrete_function()
            for name, function in zip(SIGNATURES, functions, strict=True)
        }

    def following(
        self, serve: Any, specs: Mapping[str, tf.TypeSpec]
    ) -> tf.types.experimental.PolymorphicFunction:
        """Returns `serve` as a function of the served version.

        A call gets the handles of all resources of one version and runs the
        graph of `serve` with them.
        """
        concrete = serve.get_concrete_function()
        graph_def = concrete.graph.as_graph_def()
        captured = concrete.captured_inputs
        count = len(concrete.inputs) - len(captured)
        arguments = [tensor.name for tensor in concrete.inputs[:count]]
        captures = [
            (inner.name, outer)
            for inner, outer in zip(
                concrete.inputs[count:], captured, strict=True
            )
        ]
        outputs = concrete.structured_outputs
        results = [
            tensor.name
            for tensor in tf.nest.flatten(outputs, expand_composites=True)
        ]

        def followed(features: Mapping[str, Any]) -> Any:
            graph = tf.compat.v1.get_default_graph()
            served = gen_ops.lodestar_snapshot_follower_resources(
                self.resource_handle, self._own
            )
            resources = {
                id(own): there
                for own, there in zip(self._own, served, strict=True)
            }
            tensors = tf.nest.flatten(dict(features), expand_composites=True)
            placed = dict(zip(arguments, tensors, strict=True))
            for inner, outer in captures:
                there = resources.get(id(outer))
                placed[inner] = graph.capture(outer) if there is None else there
            return tf.nest.pack_sequence_as(
                outputs,
                tf.graph_util.import_graph_def(
                    graph_def, placed, results, name=_SCOPE
                ),
                expand_composites=True,
            )

        return tf.function(followed, input_signature=[specs], autograph=False)


def _digest(layer: IdLookup) -> str:
    """Returns the digest of a vocabulary; see the op SnapshotFollower."""
    arrays = id_contents.to_arrays(layer)
    parts = [
        arrays[name].tobytes() if name in arrays else b""
        for name in ("vocabulary", "lengths")
    ]
    return " ".join(
        f"{len(part)}:{snapshot_ops.crc32c(part)}" for part in parts
    )


def check_outside(folder: StrPath, path: StrPath) -> None:
    """Raises ValueError if an export to `path` would delete the snapshots."""
    inner, outer = os.path.realpath(folder), os.path.realpath(path)
    if os.path.commonpath([inner, outer]) == outer:
        raise ValueError(
            f"`follow`={os.fspath(folder)!r} must be outside of "
            f"`path`={os.fspath(path)!r}, which the next export replaces."
        )


def _check_contents(contents: ModelContents) -> None:
    """Raises ValueError unless snapshots can replace all contents."""
    if not contents.tables:
        raise ValueError("`follow` needs a model with an embedding table.")
    for key, table in contents.tables.items():
        if len(table._parts) != 1 or table._parts[0].device is not None:
            raise ValueError(
                "`follow` needs tables without `devices`, in host memory, but "
                f"the table {key!r} is on "
                f"{[part.device for part in table._parts]}. Serve it with "
                "lodestar.serving.LiveModel."
            )
    for key, id_table in contents.id_tables.items():
        if id_table.device is not None:
            raise ValueError(
                f"`follow` needs tables in host memory, but the id table {key!r} "
                f"is on {id_table.device}. Serve it with "
                "lodestar.serving.LiveModel."
            )


def _check_seconds(seconds: Any) -> float:
    if seconds is None:
        return 0.0
    if not is_number(seconds) or not 0 < seconds <= 1e6:
        raise ValueError(
            "`poll_seconds` must be a number of seconds in (0, 1e6] or None, "
            f"got {seconds!r}."
        )
    return float(seconds)
