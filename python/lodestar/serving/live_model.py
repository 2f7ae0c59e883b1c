"""A served model that follows a snapshot folder."""

import contextlib
import os
import types
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeAlias, get_args

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_choice, check_count, check_eager
from lodestar._errors import describe_error
from lodestar._resource import NotCopied
from lodestar._typing import StrPath
from lodestar.export import features_json
from lodestar.export.follow import FollowedModel, Follower, readable_stats
from lodestar.export.served_function import ServedFunction
from lodestar.ops import snapshot_ops
from lodestar.schema import model_schema
from lodestar.serving.table_numbers import handles_of, of_tables
from lodestar.snapshot.errors import SnapshotError, corrupt_files, listed
from lodestar.snapshot.folder import local_path

# Number of attempts to load a SavedModel that is being replaced.
_MAX_LOADS = 3

# Which weights are served, and how many versions a call may see.
Weights: TypeAlias = Literal["require", "keep"]
Consistency: TypeAlias = Literal["call", "row"]


class LiveModel(NotCopied):
    """A SavedModel that serves the newest version in a snapshot folder.

    A thread loads new versions of tables and weights while calls continue, as in
    an export with `follow`. Each call sees exactly one version and never waits,
    and a call that begins after `version()` has changed sees the new version.

    Versions are read and checked before they are served. If that fails, the last
    good version stays, `stats()` has the error, and loading is retried.

    >>> with lodestar.serving.LiveModel("model", "snapshots") as model:
    ...     scores = model({"ids": ids})
    ...     model.version()

    Args:
        path: Path to a folder of `lodestar.export.save`.
        snapshots: Path to the snapshot folder. While it is missing or empty, the
            SavedModel's own content is served.
        poll_seconds: Time between polls for a new version. None polls only when
            `poll()` is called.
        rename: Table in the snapshots -> table of the model (`loaded.tables`),
            if the names differ. Other tables of the snapshots are ignored.
        weights: `"require"` serves the dense weights of the snapshots, saved by
            `snapshot.save` of a model, or by path as its `dense`. `"keep"`
            serves the SavedModel's weights.
        consistency: With `"call"`, each call sees one version. With `"row"`,
            there is a single copy of the tables, which needs half the memory. A
            call during an update may see rows of both versions, but none of
            them torn.

    Raises:
        ValueError: An argument is invalid.
        SnapshotError: The newest snapshot is of another model: a table or
            weight is missing, or of another dim, dtype or shape (names it).
            Unreadable snapshots are only reported in `stats()`.
        OSError: `path` does not exist, or is no folder of an export.
    """

    _instead_of_copy = "create another one from the same folders."

    @explained()
    def __init__(
        self,
        path: StrPath,
        snapshots: StrPath,
        poll_seconds: float | None = 1.0,
        *,
        rename: Mapping[str, str] | None = None,
        weights: Weights = "require",
        consistency: Consistency = "call",
    ):
        check_choice("consistency", consistency, get_args(Consistency))
        check_choice("weights", weights, get_args(Weights))
        folder = local_path(snapshots, "snapshots")
        self._loaded, document = _load(os.fspath(path))
        self._tables = {
            entry["key"]: handles_of(self._loaded.tables[entry["key"]])
            for entry in document["tables"]
        }
        model = _followed(
            self._loaded, document, self._tables, rename or {}, weights
        )
        self._follower = Follower(
            model,
            folder,
            poll_seconds,
            [
                *map(snapshot_ops.table, sum(self._tables.values(), [])),
                *model.weights.values(),
                *model.id_tables.values(),
            ],
            copies="one" if consistency == "row" else "two",
            overridable=False,
        )
        serve = vars(ServedFunction.of(self._loaded.serve))["__call__"]
        self._serve = ServedFunction(self._follower.following_serve(serve))
        self._signatures = {
            name: self._following(signature)
            for name, signature in self._loaded.signatures.items()
        }
        self.poll()
        stats = self._stats()
        if stats["version"] is None and stats["model_error"] is not None:
            self.close()
            raise SnapshotError(stats["model_error"])

    def __call__(self, features: Any) -> dict[str, Any]:
        """Scores a batch.

        Args:
            features: Input name -> tensor, ragged or sparse like the model's
                input; or the tensor, if the model has one input.

        Returns:
            Output name -> tensor.

        Raises:
            ValueError: An input is missing, unknown, or of another type.
        """
        return self._serve(features)

    @property
    def signatures(self) -> Mapping[str, Any]:
        """The SavedModel's signatures, which take plain tensors."""
        return types.MappingProxyType(self._signatures)

    @property
    def loaded(self) -> Any:
        """The loaded SavedModel, whose tables have the rows of the served version.

        Calling it directly bypasses version isolation, and reads the
        SavedModel's own weights and id tables.
        """
        return self._loaded

    def version(self) -> int | None:
        """Returns the served version; None for the SavedModel's own content."""
        version: int | None = self._stats()["version"]
        return version

    def poll(self) -> bool:
        """Looks for a new version and loads it.

        Retries versions that failed, if they could not be read or their files
        have changed. Loads nothing after `rollback()`.

        Returns:
            Whether the served version has changed. Errors are in `stats()`.
        """
        before = self._stats()
        with tf.init_scope():
            self._follower.refresh()
        after = self._stats()
        return any(after[x] != before[x] for x in ("version", "updates"))

    def rollback(self, version: int) -> None:
        """Serves an older version until `follow()`.

        After any error, the model serves and follows the same versions as
        before.

        Args:
            version: Number of a version in the folder.

        Raises:
            SnapshotError: The version does not exist or is of another model.
            CorruptSnapshotError: The version cannot be read.
            tf.errors.OpError: Memory ran out.
        """
        check_count("version", version, 1)
        with corrupt_files(), tf.init_scope():
            try:
                self._follower.pin(version)
            except tf.errors.NotFoundError as error:
                raise SnapshotError(describe_error(error)) from None

    def follow(self) -> None:
        """Resumes following new versions; the next poll loads the newest."""
        with tf.init_scope():
            self._follower.pin(0)

    def stats(self) -> dict[str, Any]:
        """Returns statistics of the served version and of updates.

        Returns:
            A dict with the current state: version (None for the SavedModel's own
            content), step, snapshot_time (UTC) and metadata of the snapshot,
            seconds_since_update, rows (table -> number), memory (table -> bytes
            of all copies), pinned (by `rollback`), following (whether a thread
            polls), newest_version (in the folder at the last poll),
            lag_versions (number of newer versions there) and last_error (why
            the newest version is not served, or None).
            And with counts since the model was created: hits and misses (table
            -> ids without padding that were looked up and had a row or no row),
            polls, failures, updates (loaded versions), full_updates (those that
            read whole tables, such as the first one of each copy),
            rows_written, rows_removed and bytes (of files read), in all copies,
            and last_update_seconds (duration of the last update).

        Raises:
            RuntimeError: This is a `tf.function`.
        """
        check_eager("LiveModel.stats")
        scalars, idle = self._follower.stats()
        idle_bytes = iter(idle.numpy().tolist())
        stats = readable_stats(scalars)
        del stats["model_error"]
        tables = of_tables(self._tables)
        for key, parts in self._tables.items():
            tables["memory"][key] += sum(next(idle_bytes, 0) for _ in parts)
        return stats | tables

    def close(self) -> None:
        """Stops following, after the update in progress.

        The model continues to serve its version.
        """
        self._follower.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _stats(self) -> dict[str, Any]:
        with tf.init_scope():
            return readable_stats(self._follower.stats()[0])

    def _following(self, signature: Any) -> Any:
        """Returns a loaded signature as a function of the served version."""
        (_, specs) = signature.structured_input_signature
        followed = self._follower.following(signature)
        return tf.function(
            lambda **tensors: followed(**tensors), autograph=False
        ).get_concrete_function(**specs)


def _followed(
    loaded: Any,
    document: Mapping[str, Any],
    tables: Mapping[str, list[tf.Tensor]],
    rename: Mapping[str, str],
    weights: Weights,
) -> FollowedModel:
    """Returns what snapshots replace in a loaded model."""
    for name, new in rename.items():
        if new not in tables:
            raise ValueError(
                f"`rename` maps {name!r} to {new!r}, but the tables of the "
                f"model are {listed(tables)}."
            )
    saved_names = {here: there for there, here in rename.items()}
    paths = [entry["path"] for entry in document["model_variables"]]
    handles = [variable.handle for variable in loaded.model_variables]
    vocabularies = {e["key"]: e["vocabulary"] for e in document["id_tables"]}
    return FollowedModel(
        [(saved_names.get(key, key), parts) for key, parts in tables.items()],
        dict(zip(paths, handles, strict=True)) if weights == "require" else {},
        {
            key: loaded.id_tables[key].resource_handle
            for key, digest in vocabularies.items()
            if digest is None
        },
        {key: digest for key, digest in vocabularies.items() if digest},
        model_schema.schema_or_none(loaded),
    )


def _load(path: str) -> tuple[Any, dict[str, Any]]:
    """Loads a SavedModel, which an export may be replacing, with its features.json."""
    for _ in range(_MAX_LOADS):
        document = features_json.read(path)
        if "plain" in document:
            raise ValueError(
                f"`path`={path!r} was written by export.save_plain, whose "
                "tables cannot change. Use a folder of lodestar.export.save."
            )
        if "follow" in document:
            raise ValueError(
                f"`path`={path!r} follows {document['follow']!r} by itself. "
                "Load it with tf.saved_model.load, or export it without "
                "`follow`."
            )
        before = _fingerprint(path)
        try:
            # Variables in host memory, as the ones that replace them.
            with tf.device("/CPU:0"):
                loaded = tf.saved_model.load(path)
        except Exception:
            if _is_still(path, document, before):
                raise
            continue  # This may have read parts of two exports.
        if _is_still(path, document, before):
            return loaded, document
    raise OSError(
        f"`path`={path!r} was replaced during each of {_MAX_LOADS} attempts "
        "to load it."
    )


def _is_still(
    path: str, document: Mapping[str, Any], fingerprint: str | None
) -> bool:
    with contextlib.suppress(FileNotFoundError):
        found = features_json.read(path), _fingerprint(path)
        return found == (document, fingerprint)
    return False


def _fingerprint(path: str) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        return str(tf.saved_model.experimental.read_fingerprint(path))
    return None
