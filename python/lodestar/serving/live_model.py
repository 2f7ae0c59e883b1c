"""A served model that follows a folder of snapshots."""

import contextlib
import dataclasses
import os
import threading
import time
import types
import weakref
from collections.abc import Mapping
from typing import Any, Self

import tensorflow as tf

from lodestar._checks import check_choice, check_eager, check_least, is_number
from lodestar._errors import describe_error
from lodestar._resource import NotCopied
from lodestar._typing import StrPath
from lodestar.export import features_json
from lodestar.serving.copies import Copies
from lodestar.serving.errors import OtherModelError
from lodestar.serving.live_function import LiveFunction
from lodestar.serving.served_content import ServedContent, Taken
from lodestar.serving.table_numbers import summed
from lodestar.snapshot.errors import SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest

# A version that fails is tried again after so long, at most.
_MAX_PAUSE_SECONDS = 60.0
# How often to load a SavedModel that is replaced meanwhile.
_MAX_LOADS = 3
# How long an update waits for calls that began before the last one.
_MAX_CALL_SECONDS = 10.0
# The same of what can as well be done at the next poll.
_SHORT_CALL_SECONDS = 0.1


@dataclasses.dataclass
class _Failure:
    """A version that could not be taken in."""

    error: Exception
    attempts: int
    retry: float  # when, of the monotonic clock


class LiveModel(NotCopied):
    """A SavedModel that serves the newest of a folder of snapshots.

    Training saves snapshots of its tables and weights, most of them deltas; a
    thread here looks for new versions and takes them in, while calls go on.
    There are two copies of the model: one serves, the other takes an update in;
    then they change places, and the update is repeated when the calls that
    began before have ended. So each call sees one version, all of it, waits for
    nothing, and one that begins when `version()` has changed sees that.

    A version is read and checked before anything of it is served. One that
    cannot be is left out: the last good version stays, `stats()` has the error,
    and it is tried again.

    >>> with lodestar.serving.LiveModel("model", "snapshots") as model:
    ...     scores = model({"ids": ids})
    ...     model.version()

    Args:
        path: A folder that `lodestar.export.save` wrote.
        snapshots: A folder that `lodestar.snapshot` writes to; may be empty, or
            not there yet: then the SavedModel's own content is served.
        poll_seconds: How often to look for a new version; None: only when
            `poll()` is called.
        rename: Table in the snapshots -> table of the model
            (`loaded.tables`), where these differ. Tables that the model does
            not read are left out.
        weights: `"require"`: snapshots hold the model's dense weights, by
            `snapshot.save` of a model, or as its `dense` by their paths. `"keep"`:
            those of the SavedModel are served.
        consistency: `"call"`: each call sees one version. `"row"`: there is one
            copy, which takes half the memory and is updated under the calls:
            one that runs meanwhile may see rows, id tables and weights of the
            old version and of the new, each whole.

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
        path: StrPath,
        snapshots: StrPath,
        poll_seconds: float | None = 1.0,
        *,
        rename: Mapping[str, str] | None = None,
        weights: str = "require",
        consistency: str = "call",
    ):
        check_choice("consistency", consistency, ("call", "row"))
        check_choice("weights", weights, ("require", "keep"))
        self._poll_seconds = _check_seconds(poll_seconds)
        # The working directory may change while it follows.
        self._folder = SnapshotFolder(
            os.path.abspath(SnapshotFolder(snapshots).path)
        )
        self._copies = Copies(
            _load(
                os.fspath(path),
                1 if consistency == "row" else 2,
                dict(rename or {}),
                weights,
            )
        )
        self._serve = LiveFunction(
            self._copies, lambda content: content.loaded.serve
        )
        self._signatures = {
            name: LiveFunction(
                self._copies,
                lambda content, name=name: content.loaded.signatures[name],  # type: ignore[misc]
            )
            for name in self.loaded.signatures
        }
        # Held by whoever changes what is served, and what counts it below.
        self._lock = threading.Lock()
        self._since: float | None = None  # of the monotonic clock
        self._pinned = False
        self._newest: int | None = None
        self._lag = 0
        self._failures: dict[int, _Failure] = {}
        self._folder_error: Exception | None = None
        self._polls = self._failed = self._updates = self._full_updates = 0
        self._taken = Taken(0, 0, 0)
        self._update_seconds: float | None = None
        # What the idle copy was to catch up with.
        self._caught_up: Manifest | None = None
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
        return self._serve(features)

    @property
    def signatures(self) -> Mapping[str, Any]:
        """The SavedModel's, as `serving_default`; they take plain tensors."""
        return types.MappingProxyType(self._signatures)

    @property
    def loaded(self) -> Any:
        """What `tf.saved_model.load` gave, of the copy that serves now.

        With `consistency="call"` the next update makes it the idle one. To call
        it is to miss what this class is for.
        """
        return self._copies.serving.loaded

    def version(self) -> int | None:
        """The snapshot that is served; None: what the SavedModel holds."""
        served = self._copies.serving.served
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
            TimeoutError: A call that began before the last update still runs.
            tf.errors.OpError: Memory ran out. With any error the model serves,
                and follows, what it did before.
        """
        check_least("version", version, 1)
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
        """Follows new versions again; the next poll takes the newest in."""
        self._pinned = False

    def stats(self) -> dict[str, Any]:
        """What is served and how that came about.

        Returns:
            What is: version (None: what the SavedModel holds), step,
            snapshot_time (when it was taken, UTC) and metadata of the
            snapshot, seconds_since_update, rows (table -> number), memory
            (table -> bytes, of both copies), pinned, following (whether a
            thread looks for versions), newest_version (in the folder, at the
            last poll) and lag_versions (how many of those there are newer than
            what is served).
            Events since the model was made: hits and misses (table -> ids,
            padding aside, that were looked up and had a row, or had none),
            polls, failures (to take a version in), updates (versions taken
            in), full_updates (those that replaced whole tables), rows_written,
            rows_removed, bytes (of files read), last_update_seconds (how long
            the last one took), last_error (why the newest version is not
            served; None: nothing is wrong).

        Raises:
            RuntimeError: In a `tf.function`.
        """
        check_eager("LiveModel.stats")
        # Not under the lock: an update may take its time.
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
        # One copy alone shows its first version a moment before this is set.
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
        """Takes in the newest version that can be taken, if it is a newer one."""
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
        """Those that are newer than what is served."""
        content = self._copies.serving
        served = content.served
        if served is None or content.torn:
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
        return True

    def _go_to(self, chain: list[Manifest]) -> None:
        """Serves the last of a chain, by its deltas where they suffice."""
        began = time.perf_counter()
        at = self._copies.serving.position(chain)
        if at == len(chain) - 1:
            self._forget_failures(chain[at].version)
            self._copies.serving.renumber(chain[at])
            return
        content = self._copies.idle(_MAX_CALL_SECONDS)
        self._bring(content, chain, 0 if at is None else at + 1)
        # First: who sees the new version finds in `stats()` what goes with it.
        self._forget_failures(chain[-1].version)
        self._since = time.monotonic()
        self._update_seconds = time.perf_counter() - began
        self._copies.swap()

    def _forget_failures(self, version: int) -> None:
        """Those up to the version that is served."""
        self._failures = {
            v: f for v, f in self._failures.items() if v > version
        }

    def _bring(
        self, content: ServedContent, chain: list[Manifest], new: int
    ) -> None:
        """Makes a copy hold the last of a chain.

        From the place `new` of the chain on, versions count in `stats()`.
        """
        at = content.position(chain)
        if at is None:
            at = len(chain) - 2  # All but the last is read with it.
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

        So the next one has its own deltas alone to take in, and finds those of
        this one, which compaction may remove. What fails here is done, or
        fails, with the next update.
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
        """Makes good what an update that broke off has left."""
        self._caught_up = None
        content = self._copies.serving
        if content.torn and content.served is not None:
            # Else the next poll reads a version whole.
            with contextlib.suppress(Exception):
                chain = self._folder.chain(content.served.version)
                content.take_whole(self._folder, chain)

    def _check_model(self) -> None:
        """Raises what kept all versions out if that will not pass."""
        if self._copies.serving.served is None:
            for version in sorted(self._failures, reverse=True):
                error = self._failures[version].error
                if isinstance(error, OtherModelError):
                    raise error


def _load(
    path: str, copies: int, rename: dict[str, str], weights: str
) -> list[ServedContent]:
    """Loads a SavedModel so many times; an export may replace it meanwhile."""
    for _ in range(_MAX_LOADS):
        document = features_json.read(path)
        if "plain" in document:
            raise ValueError(
                f"`path` is {path!r}, which export.save_plain wrote: its "
                "tables cannot change. Wanted a folder of "
                "lodestar.export.save."
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
            continue  # Of two exports, half of each may be read.
        if _is_still(path, document, before):
            return contents
    raise OSError(
        f"`path`={path!r} was replaced each time that it was loaded, "
        f"{_MAX_LOADS} times."
    )


def _is_still(
    path: str, document: Mapping[str, Any], fingerprint: str | None
) -> bool:
    with contextlib.suppress(tf.errors.NotFoundError):
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
            f"`poll_seconds` is {seconds!r}, wanted a positive number of "
            "seconds, or None."
        )
    return float(seconds)
