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
from lodestar.snapshot import model_variables
from lodestar.snapshot.folder import local_path

# Prefix of the ops of a traced function inside the one that follows snapshots.
_SCOPE = "followed"
# The outputs of SnapshotFollowerStats.
STATS = (
    *("version", "step", "snapshot_time", "seconds_since_update"),
    *("updates", "full_updates", "failures", "last_error"),
)


class Follower(SharedResource):
    """Loads versions of a snapshot folder where a SavedModel is served.

    Args:
        contents: The model's contents.
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
        self._attributes = {
            "folder": os.path.abspath(local_path(folder)),
            "poll_seconds": _check_seconds(poll_seconds),
            "tables": list(contents.tables),
            "weights": list(weights),
            "schema": "" if schema is None else schema.yaml(),
        }
        self._own = [
            *(t.parts[0].resource_handle for t in contents.tables.values()),
            *(v.value.handle for v in weights.values()),
        ]

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
        """Returns the signatures for operators of a server."""

        @tf.function(input_signature=[], autograph=False)
        def refresh() -> dict[str, tf.Tensor]:
            return {"version": self._refresh()}

        @tf.function(input_signature=[], autograph=False)
        def follower_stats() -> dict[str, tf.Tensor]:
            outputs = gen_ops.lodestar_snapshot_follower_stats(
                self.resource_handle
            )
            return dict(zip(STATS, outputs, strict=True))

        return {
            "refresh": refresh.get_concrete_function(),
            "follower_stats": follower_stats.get_concrete_function(),
        }

    def following(
        self, serve: Any, specs: Mapping[str, tf.TypeSpec]
    ) -> tf.types.experimental.PolymorphicFunction:
        """Returns `serve` as a function of the served version.

        A call gets the handles of all tables and weights of one version and
        runs the graph of `serve` with them.
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


def _check_contents(contents: ModelContents) -> None:
    """Raises ValueError unless snapshots can replace all contents."""
    if not contents.tables:
        raise ValueError("`follow` needs a model with an embedding table.")
    for key, table in contents.tables.items():
        if len(table.parts) != 1 or table.parts[0].device is not None:
            raise ValueError(
                f"`follow` needs tables in host memory, but the table {key!r} "
                f"is on {[part.device for part in table.parts]}. Serve it with "
                "lodestar.serving.LiveModel."
            )
    if contents.id_tables:
        raise ValueError(
            "`follow` does not support id tables, but the model reads "
            f"{sorted(contents.id_tables)}. Serve it with "
            "lodestar.serving.LiveModel, or hash keys to ids."
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
