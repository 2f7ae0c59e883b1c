"""A served model that follows a folder of snapshots."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lodestar._resource import NotCopied
from lodestar.data.errors import describe_error
from lodestar.export import features_json
from lodestar.serving.errors import OtherModelError
from lodestar.serving.served_content import ServedContent, Taken
from lodestar.snapshot.errors import SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest

# A version that fails is tried again after so long, at most.
_MAX_PAUSE_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class _Served:
    """The version that is served."""

    root: str
    version: int
    step: int
    time: str
    metadata: Mapping[str, Any]
    since: float  # of the monotonic clock

    @classmethod
    def of(cls, manifest: Manifest) -> _Served:
        return cls(
            manifest.root,
            manifest.version,
            manifest.step,
            manifest.time,
            manifest.metadata,
            time.monotonic(),
        )


@dataclasses.dataclass
class _Failure:
    """A version that could not be taken in."""

    error: Exception
    attempts: int
    retry: float  # when, of the monotonic clock


class LiveModel(NotCopied):
    """A SavedModel that serves the newest of a folder of snapshots.

    Training saves snapshots of its tables and weights, most of them deltas; a
    thread here looks for new versions and takes them in. Look-ups go on
    meanwhile: a delta's rows switch one by one, each whole, then id tables,
    then the weights, each whole; a full version is read beside what is served
    and its tables take their place at once. So a call that runs during an
    update may see some rows of the old version and some of the new; one that
    begins after it sees the new version alone.

    A version is read and checked before anything of it is served. One that
    cannot be is left out: the last good version stays, `stats()` has the error,
    and it is tried again.

    >>> with lodestar.serving.LiveModel("model", "snapshots") as model:
    ...     scores = model({"ids": ids})
    ...     model.version()

    Args:
        path: A folder that `lodestar.export.saved_model` wrote.
        snapshots: A folder that `lodestar.snapshot` writes to; may be empty, or
            not there yet: then the SavedModel's own content is served.
        poll_seconds: How often to look for a new version; None: only when
            `poll()` is called.
        rename: Table in the snapshots -> table of the model
            (`loaded.tables`), where these differ. Tables that the model does
            not read are left out.
        weights: `"require"`: snapshots hold the model's dense weights, by
            `save_model`, or as `dense` of `save` by their paths. `"keep"`:
            those of the SavedModel are served.

    Raises:
        ValueError: An argument is not as above.
        SnapshotError: The newest snapshot is of another model: a table or
            weight is missing, or of another dim, dtype or shape (names it).
            An unreadable one is no error here, but in `stats()`.
        tf.errors.NotFoundError, OSError: There is no such SavedModel.
    """

    _instead_of_copy = "make another one of the same folders."

    def __init__(
        self,
        path: str | os.PathLike,
        snapshots: str | os.PathLike,
        poll_seconds: float | None = 1.0,
        *,
        rename: Mapping[str, str] | None = None,
        weights: str = "require",
    ):
        if weights not in ("require", "keep"):
            raise ValueError(
                f"`weights`={weights!r} is not in ('require', 'keep')."
            )
        self._poll_seconds = _check_seconds(poll_seconds)
        # The working directory may change while it follows.
        self._folder = SnapshotFolder(
            os.path.abspath(SnapshotFolder(snapshots).path)
        )
        document = features_json.read(path)
        if "stock" in document:
            raise ValueError(
                f"`path` is {os.fspath(path)!r}, which stock_saved_model "
                "wrote: its tables cannot change. Wanted a folder of "
                "lodestar.export.saved_model."
            )
        self._loaded = tf.saved_model.load(os.fspath(path))
        self._content = ServedContent(
            self._loaded, document, dict(rename or {}), weights
        )
        # Held by whoever changes what is served, and what counts it below.
        self._lock = threading.Lock()
        self._served: _Served | None = None
        self._pinned = False
        self._newest: int | None = None
        self._lag = 0
        self._failures: dict[int, _Failure] = {}
        self._folder_error: Exception | None = None
        self._polls = self._failed = self._updates = self._full_updates = 0
        self._taken = Taken(0, 0, 0)
        self._update_seconds: float | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.poll()
        self._check_model()
        if self._poll_seconds is not None:
            self._thread = threading.Thread(
                target=_follow,
                # Weakly, so that a model that is dropped is not followed on.
                args=(weakref.ref(self), self._closed, self._poll_seconds),
                name="lodestar-live-model",
                daemon=True,
            )
            self._thread.start()

    def __call__(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Scores a batch.

        Args:
            features: Name -> tensor, ragged or sparse where the model's input
                is: what `loaded.serve` takes.

        Returns:
            Name of output -> tensor.
        """
        return self._loaded.serve(features)

    @property
    def signatures(self) -> Mapping[str, Any]:
        """The SavedModel's, as `serving_default`; they take plain tensors."""
        return self._loaded.signatures

    @property
    def loaded(self) -> Any:
        """What `tf.saved_model.load` gave."""
        return self._loaded

    def version(self) -> int | None:
        """The snapshot that is served; None: what the SavedModel holds."""
        served = self._served
        return None if served is None else served.version

    def poll(self) -> bool:
        """Looks for a new version, and takes it in.

        Also one that failed a moment ago, which the thread leaves in peace for
        a while. While pinned it only looks.

        Returns:
            Whether another version is served than before. Errors are in
            `stats()`.
        """
        return self._poll(patient=False)

    def rollback(self, version: int) -> None:
        """Serves an older version, whole, and stays with it until `follow()`.

        Args:
            version: One that the folder has.

        Raises:
            SnapshotError: There is no such version, or it is of another model.
            CorruptSnapshotError: It cannot be read.
            tf.errors.OpError: Memory ran out. With any error the model serves,
                and follows, what it did before.
        """
        if type(version) is not int or version < 1:
            raise ValueError(f"`version` is {version!r}, wanted 1 or more.")
        with self._lock:
            chain = self._folder.chain(version)
            if self._position(chain) != len(chain) - 1:
                try:
                    self._take_whole(chain)
                except Exception:
                    self._mend()
                    raise
            self._pinned = True
            versions = self._folder.versions()
            self._lag = len(self._newer(versions))

    def follow(self) -> None:
        """Follows new versions again; the next poll takes the newest in."""
        self._pinned = False

    def stats(self) -> dict[str, Any]:
        """What is served and how that came about.

        Returns:
            What is: version (None: what the SavedModel holds), step,
            snapshot_time (when it was taken, UTC) and metadata of the
            snapshot, seconds_since_update, rows (table -> number), pinned,
            following (whether a thread looks for versions), newest_version (in
            the folder, at the last poll) and lag_versions (how many of those
            there are newer than what is served).
            Events since the model was made: polls, failures (to take a version
            in), updates (versions taken in), full_updates (those that replaced
            whole tables), rows_written, rows_removed, bytes (of files read),
            last_update_seconds (how long the last one took), last_error (why
            the newest version is not served; None: nothing is wrong).
        """
        # Not under the lock: an update may take its time.
        served, failures = self._served, self._failures
        error = self._folder_error
        if failures:
            error = failures[max(failures)].error
        result = {
            "version": None,
            "step": None,
            "snapshot_time": None,
            "metadata": None,
            "seconds_since_update": None,
        }
        if served is not None:
            result = {
                "version": served.version,
                "step": served.step,
                "snapshot_time": served.time,
                "metadata": dict(served.metadata),
                "seconds_since_update": time.monotonic() - served.since,
            }
        return {
            **result,
            "rows": self._content.rows(),
            "pinned": self._pinned,
            "following": self._thread is not None and not self._closed.is_set(),
            "newest_version": self._newest,
            "lag_versions": self._lag,
            "polls": self._polls,
            "failures": self._failed,
            "updates": self._updates,
            "full_updates": self._full_updates,
            "rows_written": self._taken.written,
            "rows_removed": self._taken.removed,
            "bytes": self._taken.bytes,
            "last_update_seconds": self._update_seconds,
            "last_error": None if error is None else describe_error(error),
        }

    def close(self) -> None:
        """Stops following, and waits for an update that is under way.

        The model serves what it has until it is dropped.
        """
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> LiveModel:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _poll(self, patient: bool) -> bool:
        with self._lock:
            before = self._served
            self._polls += 1
            try:
                self._advance(patient)
                self._folder_error = None
            except Exception as error:
                self._folder_error = error
            return self._served is not before

    def _advance(self, patient: bool) -> None:
        """Takes in the newest version that can be taken, if it is a newer one."""
        versions = self._folder.versions()
        newer = self._newer(versions)
        self._failures = {v: f for v, f in self._failures.items() if v in newer}
        if not self._pinned:
            for version in reversed(newer):
                if self._try(version, patient):
                    break
        self._newest = versions[-1] if versions else None
        self._lag = len(self._newer(versions))

    def _newer(self, versions: list[int]) -> list[int]:
        """Those that are newer than what is served."""
        served = self._served
        if served is None or self._content.torn:
            return versions
        for version in reversed(versions):
            with contextlib.suppress(OSError, SnapshotError):
                if self._folder.manifest(version).root != served.root:
                    break  # Another folder took the place of this one.
                return [v for v in versions if v > served.version]
        return versions

    def _try(self, version: int, patient: bool) -> bool:
        """Whether `version` is served in the end."""
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
        self._failures = {
            v: f for v, f in self._failures.items() if v > version
        }
        return True

    def _go_to(self, chain: list[Manifest]) -> None:
        """Serves the last of a chain, by its deltas where they suffice."""
        at = self._position(chain)
        if at is None:
            self._take_whole(chain)
            return
        if chain[at].version != self._served.version:
            # Compacted: what is served, by another number.
            self._served = _Served.of(chain[at])
        for end in range(at + 2, len(chain) + 1):
            self._take_last(chain[:end])

    def _position(self, chain: list[Manifest]) -> int | None:
        """Where in a chain that is which is served."""
        served = self._served
        if served is None or self._content.torn:
            return None
        for at, manifest in enumerate(chain):
            same = served.version in (manifest.version, manifest.same_as)
            if same and manifest.root == served.root:
                return at
        return None

    def _take_last(self, chain: list[Manifest]) -> None:
        """Serves the last of a chain, where that before it is served."""
        began = time.perf_counter()
        if not self._content.is_delta(self._folder, chain[-1]):
            self._take_whole(chain)
            return
        taken = self._content.take_delta(self._folder, chain[-1])
        self._note(chain[-1], taken, began)

    def _take_whole(self, chain: list[Manifest]) -> None:
        began = time.perf_counter()
        taken = self._content.take_whole(self._folder, chain)
        self._full_updates += 1
        self._note(chain[-1], taken, began)

    def _mend(self) -> None:
        """Serves the old version again where an update broke off halfway."""
        if self._content.torn and self._served is not None:
            # Else the next poll reads a version whole.
            with contextlib.suppress(Exception):
                chain = self._folder.chain(self._served.version)
                self._content.take_whole(self._folder, chain)

    def _note(self, manifest: Manifest, taken: Taken, began: float) -> None:
        self._served = _Served.of(manifest)
        self._updates += 1
        self._taken = self._taken + taken
        self._update_seconds = time.perf_counter() - began

    def _check_model(self) -> None:
        """Raises what kept all versions out if that will not pass."""
        if self._served is None:
            for version in sorted(self._failures, reverse=True):
                error = self._failures[version].error
                if isinstance(error, OtherModelError):
                    raise error


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
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 < seconds < threading.TIMEOUT_MAX
    ):
        raise ValueError(
            f"`poll_seconds` is {seconds!r}, wanted a positive number of "
            "seconds, or None."
        )
    return float(seconds)
