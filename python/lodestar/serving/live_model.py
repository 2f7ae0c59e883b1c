"""A served model that follows a snapshot folder."""

import contextlib
import dataclasses
import os
import threading
import time
import types
import weakref
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeAlias, get_args

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import (
    check_choice,
    check_count,
    check_eager,
    is_number,
)
from lodestar._errors import describe_error
from lodestar._resource import NotCopied
from lodestar._typing import StrPath
from lodestar.export import features_json
from lodestar.export.served_function import ServedFunction
from lodestar.serving.copies import Copies
from lodestar.serving.errors import OtherModelError
from lodestar.serving.live_function import LiveFunction
from lodestar.serving.served_content import ServedContent, Taken
from lodestar.serving.table_numbers import summed
from lodestar.snapshot.errors import SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest

# Maximum time before a failed version is tried again.
_MAX_PAUSE_SECONDS = 60.0
# Number of attempts to load a SavedModel that is being replaced.
_MAX_LOADS = 3
# Time that an update waits for calls that began before the last update.
_MAX_CALL_SECONDS = 10.0
# Time that an update waits if the next poll can repeat it.
_SHORT_CALL_SECONDS = 0.1


@dataclasses.dataclass
class _Failure:
    """A version that could not be loaded."""

    error: Exception
    attempts: int
    retry: float  # time of the next attempt, of the monotonic clock


# Which weights are served, and how many versions a call may see.
Weights: TypeAlias = Literal["require", "keep"]
Consistency: TypeAlias = Literal["call", "row"]


class LiveModel(NotCopied):
    """A SavedModel that serves the newest version in a snapshot folder.

    A thread loads new versions of tables and weights while calls continue. Of
    two copies of the model, one serves while the other is updated. Then they
    swap, and the update is repeated once earlier calls have ended. So each call
    sees exactly one version and never waits, and a call that begins after
    `version()` has changed sees the new version.

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
            there is a single copy, which needs half the memory. A call during
            an update may see rows, id tables and weights of both versions, but
            none of them torn.

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
        self._poll_seconds = _check_seconds(poll_seconds)
        # An absolute path, since the working directory may change.
        self._folder = SnapshotFolder(
            os.path.abspath(SnapshotFolder(snapshots).path)
        )
        copies = 1 if consistency == "row" else 2
        self._copies = Copies(
            _load(os.fspath(path), copies, dict(rename or {}), weights)
        )
        self._serve = LiveFunction(
            self._copies,
            lambda content: ServedFunction.of(content.loaded.serve),
        )
        self._signatures = {
            name: LiveFunction(
                self._copies,
                lambda content, name=name: content.loaded.signatures[name],  # type: ignore[misc]
            )
            for name in self.loaded.signatures
        }
        # Guards all updates and the state below.
        self._lock = threading.Lock()
        self._since: float | None = None  # last update, of the monotonic clock
        self._pinned = False
        self._newest: int | None = None
        self._lag = 0
        self._failures: dict[int, _Failure] = {}
        self._folder_error: Exception | None = None
        self._polls = self._failed = self._updates = self._full_updates = 0
        self._taken = Taken()
        self._update_seconds: float | None = None
        # The version that the idle copy was last updated to.
        self._caught_up: Manifest | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.poll()
        self._check_model()
        if self._poll_seconds is not None:
            self._thread = threading.Thread(
                target=_follow,
                # A weak reference lets the thread end with a dropped model.
                args=(weakref.ref(self), self._closed, self._poll_seconds),
                name="lodestar-live-model",
                daemon=True,
            )
            self._thread.start()

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
        """The loaded SavedModel of the copy that serves now.

        Calling it directly bypasses version isolation: with
        `consistency="call"`, the next update makes it the idle copy.
        """
        return self._copies.serving.loaded

    def version(self) -> int | None:
        """Returns the served version; None for the SavedModel's own content."""
        served = self._copies.serving.served
        return None if served is None else served.version

    def poll(self) -> bool:
        """Looks for a new version and loads it.

        Immediately retries versions that failed. Loads nothing after
        `rollback()`.

        Returns:
            Whether the served version has changed. Errors are in `stats()`.
        """
        return self._poll(patient=False)

    def rollback(self, version: int) -> None:
        """Serves an older version until `follow()`.

        After any error, the model serves and follows the same versions as
        before.

        Args:
            version: Number of a version in the folder.

        Raises:
            SnapshotError: The version does not exist or is of another model.
            CorruptSnapshotError: The version cannot be read.
            TimeoutError: A call that began before the last update still runs.
            tf.errors.OpError: Memory ran out.
        """
        check_count("version", version, 1)
        with self._lock:
            try:
                self._go_to(self._folder.chain(version))
            except Exception:
                self._mend()
                raise
            self._pinned = True
            versions = self._folder.versions()
            self._lag = len(self._newer(versions))

    def follow(self) -> None:
        """Resumes following new versions; the next poll loads the newest."""
        self._pinned = False

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
            polls, failures, updates (loaded versions), full_updates (with whole
            tables), rows_written, rows_removed, bytes (of files
            read) and last_update_seconds (duration of the last update).

        Raises:
            RuntimeError: This is a `tf.function`.
        """
        check_eager("LiveModel.stats")
        # Without the lock, since an update may take long.
        served, rows = self._copies.run(
            lambda content: (content.served, content.table_stats()["rows"])
        )
        tables = summed(
            content.table_stats() for content in self._copies.contents
        )
        failures, since = self._failures, self._since
        error = self._folder_error
        if failures:
            error = failures[max(failures)].error
        # A single copy shows its first version before `_since` is set.
        age = 0.0 if since is None else time.monotonic() - since
        return {
            "version": served.version if served else None,
            "step": served.step if served else None,
            "snapshot_time": served.time if served else None,
            "metadata": dict(served.metadata) if served else None,
            "seconds_since_update": age if served else None,
            **tables,
            "rows": rows,
            "pinned": self._pinned,
            "following": self._thread is not None and not self._closed.is_set(),
            "newest_version": self._newest,
            "lag_versions": self._lag,
            "polls": self._polls,
            "failures": self._failed,
            "updates": self._updates,
            "full_updates": self._full_updates,
            "rows_written": self._taken["written"],
            "rows_removed": self._taken["removed"],
            "bytes": self._taken["bytes"],
            "last_update_seconds": self._update_seconds,
            "last_error": None if error is None else describe_error(error),
        }

    def close(self) -> None:
        """Stops following, after the update in progress.

        The model continues to serve its version.
        """
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _poll(self, patient: bool) -> bool:
        with self._lock:
            before = self._copies.serving.served
            self._polls += 1
            try:
                self._advance(patient)
            except Exception as error:
                self._folder_error = error
            return self._copies.serving.served != before

    def _advance(self, patient: bool) -> None:
        """Loads the newest newer version that can be loaded."""
        versions = self._folder.versions()
        self._folder_error = None
        newer = self._newer(versions)
        self._failures = {v: f for v, f in self._failures.items() if v in newer}
        if not self._pinned:
            for version in reversed(newer):
                if self._try(version, patient):
                    break
        self._newest = versions[-1] if versions else None
        self._lag = len(self._newer(versions))
        self._catch_up()

    def _newer(self, versions: list[int]) -> list[int]:
        """Returns the versions that are newer than the served one.

        If the served version was removed or replaced and there is no newer one,
        the folder was set back, and these are all versions.
        """
        content = self._copies.serving
        served = content.served
        if served is None or content.torn:
            return versions
        # The newest version is never removed for newer ones.
        if versions and versions[-1] < served.version:
            return versions
        if served.version in versions:
            with contextlib.suppress(OSError, SnapshotError):
                if self._folder.manifest(served.version).id != served.id:
                    return versions
        return [v for v in versions if v > served.version]

    def _try(self, version: int, patient: bool) -> bool:
        """Tries to serve `version`; returns whether it is served."""
        failure = self._failures.get(version)
        if patient and failure and time.monotonic() < failure.retry:
            return False
        try:
            self._go_to(self._folder.chain(version))
        except Exception as error:
            self._mend()
            self._failed += 1
            attempts = failure.attempts + 1 if failure else 1
            pause = (self._poll_seconds or 0.0) * 2.0 ** min(attempts, 16)
            retry = time.monotonic() + min(pause, _MAX_PAUSE_SECONDS)
            new = _Failure(error, attempts, retry)
            self._failures = {**self._failures, version: new}
            return False
        return True

    def _go_to(self, chain: list[Manifest]) -> None:
        """Serves the last version of a chain, by deltas if possible."""
        began = time.perf_counter()
        at = self._copies.serving.position(chain)
        if at == len(chain) - 1:
            self._forget_failures(chain[at].version)
            self._copies.serving.renumber(chain[at])
            return
        content = self._copies.idle(_MAX_CALL_SECONDS)
        self._bring(content, chain, 0 if at is None else at + 1)
        # Before the swap, so that `stats()` fits any version that calls see.
        self._forget_failures(chain[-1].version)
        self._since = time.monotonic()
        self._update_seconds = time.perf_counter() - began
        self._copies.swap()

    def _forget_failures(self, version: int) -> None:
        """Forgets failures up to the served version."""
        self._failures = {
            v: f for v, f in self._failures.items() if v > version
        }

    def _bring(
        self, content: ServedContent, chain: list[Manifest], new: int
    ) -> None:
        """Updates a copy to the last version of a chain.

        Counts versions in `stats()` from position `new` of the chain.
        """
        at = content.position(chain)
        if at is None:
            at = len(chain) - 2  # `take_whole` reads the rest of the chain.
        else:
            content.renumber(chain[at])
        for place in range(at + 1, len(chain)):
            part = chain[: place + 1]
            whole = content.position(part[:-1]) is None or not content.is_delta(
                self._folder, part[-1]
            )
            if whole:
                taken = content.take_whole(
                    self._folder, part, in_place=not self._copies.single
                )
            else:
                taken = content.take_delta(self._folder, part[-1])
            if place >= new:
                self._updates += 1
                self._full_updates += whole
                self._taken = self._taken + taken

    def _catch_up(self) -> None:
        """Repeats the last update in the idle copy.

        Compaction may remove its deltas before the next update. If this fails,
        the next update repeats it.
        """
        served = self._copies.serving.served
        if self._copies.single or self._pinned or served is self._caught_up:
            return
        assert served is not None
        with contextlib.suppress(TimeoutError):
            content = self._copies.idle(_SHORT_CALL_SECONDS)
            self._caught_up = served
            with contextlib.suppress(Exception):
                chain = self._folder.chain(served.version)
                self._bring(content, chain, len(chain))

    def _mend(self) -> None:
        """Repairs the copies after an interrupted update."""
        self._caught_up = None
        content = self._copies.serving
        if content.torn and content.served is not None:
            # If this fails, the next poll loads a whole version.
            with contextlib.suppress(Exception):
                chain = self._folder.chain(content.served.version)
                content.take_whole(self._folder, chain)

    def _check_model(self) -> None:
        """Raises the newest version's error if no version fits the model."""
        if self._copies.serving.served is None:
            for version in sorted(self._failures, reverse=True):
                error = self._failures[version].error
                if isinstance(error, OtherModelError):
                    raise error


def _load(
    path: str, copies: int, rename: dict[str, str], weights: str
) -> list[ServedContent]:
    """Loads copies of a SavedModel, which an export may be replacing."""
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
            contents = [
                ServedContent(
                    tf.saved_model.load(path), document, rename, weights
                )
                for _ in range(copies)
            ]
        except Exception:
            if _is_still(path, document, before):
                raise
            continue  # This may have read parts of two exports.
        if _is_still(path, document, before):
            return contents
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


def _follow(
    reference: weakref.ref[LiveModel], closed: threading.Event, seconds: float
) -> None:
    while not closed.wait(seconds):
        model = reference()
        if model is None:
            return
        model._poll(patient=True)
        del model


def _check_seconds(seconds: Any) -> float | None:
    if seconds is None:
        return None
    if not (is_number(seconds) and 0 < seconds < threading.TIMEOUT_MAX):
        raise ValueError(
            "`poll_seconds` must be a positive number of seconds or None, got "
            f"{seconds!r}."
        )
    return float(seconds)
