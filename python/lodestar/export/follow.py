"""Makes functions of a model read the newest version in a snapshot folder."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar._checks import is_number
from lodestar._library import gen_ops
from lodestar._resource import SharedResource
from lodestar._typing import StrPath
from lodestar.export.contents import ModelContents
from lodestar.schema import Schema
from lodestar.snapshot import id_contents, model_variables, schema_file
from lodestar.snapshot.folder import local_path

# Prefix of the ops of a traced function inside the one that follows snapshots.
_SCOPE = "followed"
# For operators of a server; they take no inputs.
SIGNATURES = ("refresh", "follower_stats")
# The outputs of SnapshotFollowerStats, without the last one.
_STATS = (
    *("version", "step", "snapshot_time", "seconds_since_update", "updates"),
    *("full_updates", "failures", "last_error", "newest_version"),
    *("lag_versions", "pinned", "following", "polls", "rows_written"),
    *("rows_removed", "bytes", "last_update_seconds", "metadata"),
    "model_error",
)
# Those that are not in the signature: only a LiveModel has a use for them.
_OWN_STATS = ("metadata", "model_error")


@dataclasses.dataclass(frozen=True)
class FollowedModel:
    """The resources of a model that snapshots replace, by their names there.

    Attributes:
        tables: The handles of each table's parts. Names may be repeated.
        weights: Path -> handle of a variable.
        id_tables: Name -> handle.
        vocabularies: Name of an `IdLookup` -> its `id_contents.digest`.
        schema: The model's schema, if it has one.
    """

    tables: Sequence[tuple[str, Sequence[tf.Tensor]]]
    weights: Mapping[str, tf.Tensor]
    id_tables: Mapping[str, tf.Tensor]
    vocabularies: Mapping[str, str]
    schema: Schema | None

    @classmethod
    def of_contents(
        cls, contents: ModelContents, schema: Schema | None
    ) -> "FollowedModel":
        """Returns the contents of a model that is exported.

        Raises:
            ValueError: The model has no table, or one that is not in host
                memory.
        """
        _check_contents(contents)
        return cls(
            [
                (key, [part.resource_handle for part in table._parts])
                for key, table in contents.tables.items()
            ],
            {
                path: weight.value.handle
                for path, weight in model_variables.by_path(
                    contents.weights
                ).items()
            },
            {
                key: table.resource_handle
                for key, table in contents.id_tables.items()
                if key not in contents.lookups
            },
            {
                layer.name: id_contents.digest(layer)
                for layer in contents.lookups.values()
            },
            schema,
        )

    @property
    def handles(self) -> list[tf.Tensor]:
        """All handles in the order of the follower's ops."""
        parts = [part for _, parts in self.tables for part in parts]
        return [*parts, *self.weights.values(), *self.id_tables.values()]


class Follower(SharedResource):
    """Loads versions of a snapshot folder next to the model that is served.

    Args:
        model: What it replaces.
        folder: Path to the snapshot folder.
        poll_seconds: Time between polls; None: only `refresh`.
        own: Its handles as the follower's ops take them; by default
            `model.handles`.
        attributes: Other attributes of the op SnapshotFollower.
    """

    def __init__(
        self,
        model: FollowedModel,
        folder: StrPath,
        poll_seconds: float | None,
        own: Sequence[tf.Tensor] | None = None,
        **attributes: Any,
    ):
        super().__init__("follower")
        schema = model.schema
        self._attributes: dict[str, Any] = {
            "folder": os.path.abspath(local_path(folder, "follow")),
            "poll_seconds": _check_seconds(poll_seconds),
            "tables": [name for name, _ in model.tables],
            "parts": [len(parts) for _, parts in model.tables],
            "weights": list(model.weights),
            "id_tables": list(model.id_tables),
            "vocabularies": list(model.vocabularies),
            "digests": list(model.vocabularies.values()),
            "schema": "" if schema is None else schema_file.meanings(schema),
            **attributes,
        }
        self._handles = model.handles
        self._own = self._handles if own is None else own
        with tf.init_scope():
            _ = self.resource_handle

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        return gen_ops.lodestar_snapshot_follower(
            shared_name=shared_name, container=container, **self._attributes
        )

    def _fill(self) -> tf.Tensor:
        return self.refresh()

    def refresh(self) -> tf.Tensor:
        """Loads the newest version; returns the number of the served one."""
        return gen_ops.lodestar_snapshot_follower_refresh(
            self.resource_handle, self._own
        )

    def pin(self, version: int) -> None:
        """Serves a version of any age; 0 follows new ones again."""
        gen_ops.lodestar_snapshot_follower_pin(
            self.resource_handle, version, self._own
        )

    def stop(self) -> None:
        """Ends the thread that polls, after the update in progress."""
        gen_ops.lodestar_snapshot_follower_stop(self.resource_handle)

    def stats(self) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns name -> scalar, and the memory of each idle table part."""
        *scalars, idle_bytes = gen_ops.lodestar_snapshot_follower_stats(
            self.resource_handle
        )
        return dict(zip(_STATS, scalars, strict=True)), idle_bytes

    def signatures(self) -> dict[str, Any]:
        """Returns the functions of `SIGNATURES`."""

        @tf.function(input_signature=[], autograph=False)
        def refresh() -> dict[str, tf.Tensor]:
            return {"version": self.refresh()}

        @tf.function(input_signature=[], autograph=False)
        def follower_stats() -> dict[str, tf.Tensor]:
            scalars, _ = self.stats()
            return {k: v for k, v in scalars.items() if k not in _OWN_STATS}

        functions = (refresh, follower_stats)
        return {
            name: function.get_concrete_function()
            for name, function in zip(SIGNATURES, functions, strict=True)
        }

    def following(self, concrete: Any) -> Callable[..., Any]:
        """Returns a traced function as one of the served version, to trace.

        A call gets the handles of all resources of one version and runs the
        graph of `concrete` with them.
        """
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
        results = [tensor.name for tensor in concrete.outputs]

        def followed(*inputs: Any, **named: Any) -> Any:
            graph = tf.compat.v1.get_default_graph()
            resources = {
                id(handle): there
                for handle, there in zip(
                    self._handles, self._served(), strict=True
                )
            }
            tensors = tf.nest.flatten((inputs, named), expand_composites=True)
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

        return followed

    def following_serve(
        self, serve: Any
    ) -> tf.types.experimental.PolymorphicFunction:
        """Returns `serve`, of a dict of inputs, as a function of the version."""
        concrete = serve.get_concrete_function()
        ((specs,), _) = concrete.structured_input_signature
        followed = self.following(concrete)
        return tf.function(
            lambda features: followed(features),
            input_signature=[specs],
            autograph=False,
        )

    def _served(self) -> Iterator[tf.Tensor]:
        """Yields the resources of the served version, each on its device."""
        resources, version = gen_ops.lodestar_snapshot_follower_resources(
            self.resource_handle, self._own
        )
        for index, (handle, there) in enumerate(
            zip(self._handles, resources, strict=True)
        ):
            if tf.DeviceSpec.from_string(handle.device).device_type != "GPU":
                yield there
                continue
            with tf.device(handle.device):
                yield gen_ops.lodestar_snapshot_follower_table(
                    version, index=index
                )


def readable_stats(stats: Mapping[str, tf.Tensor]) -> dict[str, Any]:
    """Returns the scalars of `Follower.stats` as in `LiveModel.stats`."""
    found: dict[str, Any] = {}
    for name, tensor in stats.items():
        value = tensor.numpy()
        found[name] = (
            value.decode() or None if isinstance(value, bytes) else value.item()
        )
    for name in ("version", "newest_version"):
        found[name] = found[name] or None
    if found["version"] is None:
        found |= dict.fromkeys(("step", "seconds_since_update"))
    if not found["updates"]:
        found["last_update_seconds"] = None
    if found.get("metadata") is not None:
        found["metadata"] = json.loads(found["metadata"])
    return found


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


def _check_seconds(seconds: Any) -> float:
    if seconds is None:
        return 0.0
    if not is_number(seconds) or not 0 < seconds <= 1e6:
        raise ValueError(
            "`poll_seconds` must be a number of seconds in (0, 1e6] or None, "
            f"got {seconds!r}."
        )
    return float(seconds)
