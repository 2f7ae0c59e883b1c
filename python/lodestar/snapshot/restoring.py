"""Restores the content of tables from a version."""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
import tensorflow as tf

from lodestar._checks import (
    check_choice,
    check_count,
    check_eager,
    did_you_mean,
)
from lodestar._errors import describe_error
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.ops import snapshot_ops
from lodestar.snapshot import id_contents, matching
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    corrupt_files,
    listed,
)
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.found_tables import FoundTables
from lodestar.snapshot.manifest import Manifest
from lodestar.snapshot.places import (
    Place,
    each,
    part_count,
    places_of,
)
from lodestar.snapshot.saving import check_step, note_saved
from lodestar.snapshot.together import Together
from lodestar.snapshot.verifying import with_hint

_T = TypeVar("_T")
# A JSON value for the other workers, and a function that takes the values of all
# workers and installs the content.
Read = tuple[Any, Callable[[list[Any]], _T]]


@dataclasses.dataclass(frozen=True)
class RestoreReport:
    """The result of `restore`.

    Attributes:
        path: Path to the version's folder.
        version: Number of the version.
        step: Training step of the version.
        restored: Name here -> number of rows, or of an id table's keys.
        initial: Names of tables and weights that the snapshot lacks and that
            are unchanged.
        ignored: Names in the snapshot that were not restored.
        metadata: Metadata passed to `save`.
        matched: Name here -> (name in the snapshot, "name", "rename" or
            "structure"). Tables with automatic names are matched by structure:
            their order among tables of the same dim and dtype.
        dense: Arrays that were passed to `save` as `dense`, by name.
    """

    path: str
    version: int
    step: int
    restored: Mapping[str, int]
    initial: tuple[str, ...]
    ignored: tuple[str, ...]
    metadata: Mapping[str, Any]
    matched: Mapping[str, tuple[str, str]] = dataclasses.field(
        default_factory=dict
    )
    dense: dict[str, np.ndarray] = dataclasses.field(
        default_factory=dict, compare=False
    )


OnMissing: TypeAlias = Literal["error", "init"]
OnExtra: TypeAlias = Literal["error", "ignore"]
OptimizerSlots: TypeAlias = Literal["require", "reset"]


@dataclasses.dataclass(frozen=True)
class RestoreOptions:
    """The options of `snapshot.restore` about differing content."""

    rename: Mapping[str, str]
    on_missing: OnMissing = "error"
    on_extra: OnExtra = "error"
    optimizer_slots: OptimizerSlots = "require"

    def __post_init__(self) -> None:
        check_choice("on_missing", self.on_missing, get_args(OnMissing))
        check_choice("on_extra", self.on_extra, get_args(OnExtra))
        slots = self.optimizer_slots
        check_choice("optimizer_slots", slots, get_args(OptimizerSlots))
        if not isinstance(self.rename, Mapping):
            raise ValueError(
                "`rename` must be a dict of names in the snapshot to names "
                f"here, got {self.rename!r}."
            )


def with_version(
    folder: SnapshotFolder,
    step: int | None,
    version: int | None,
    read: Callable[[SnapshotFolder, list[Manifest]], Read[_T]],
    together: Together,
) -> _T:
    """Reads a version's chain without side effects, then installs it.

    An error in one worker is raised in all. Nobody removes the version meanwhile.
    """
    check_eager("snapshot.restore")
    if step is not None and version is not None:
        raise ValueError(
            f"`step`={step} and `version`={version} cannot be combined. Pass "
            "only one."
        )
    chain: list[Manifest] = []
    result: Any = None

    def keep(number: int | None) -> int:
        if not chain:
            chain.extend(locks.enter_context(folder.kept(number)))
        return chain[-1].version

    def read_here() -> list[Any]:
        nonlocal result
        keep(chosen)
        told, result = read(folder, chain)
        return [chain[-1].mark, told]

    def install_here() -> None:
        nonlocal result
        result = result([told for _, told in found])

    with contextlib.ExitStack() as locks:
        try:
            chosen = together.of_first(
                lambda: keep(_number(folder, step, version))
            )
            found = together.agree(read_here)
        except CorruptSnapshotError as error:
            if version is not None:
                raise
            number = _number(folder, step, version) or folder.newest_version()
            raise with_hint(folder, number, error) from None
        if any(mark != found[0][0] for mark, _ in found):
            raise SnapshotError(
                f"{folder.version_path(chosen)}: differs between the workers. "
                "Use a shared folder that no process writes to."
            )
        together.agree(install_here)
    return result


def _number(
    folder: SnapshotFolder, step: int | None, version: int | None
) -> int | None:
    """Returns the number of the version to read; None for the newest."""
    if step is not None:
        return folder.at_step(check_step(step))
    return None if version is None else check_count("version", version, 1)


class Plan:
    """A checked restore of a chain's last version.

    Raises:
        SnapshotError: The tables do not fit; see `restore`.
    """

    def __init__(
        self,
        folder: SnapshotFolder,
        chain: list[Manifest],
        tables: FoundTables,
        options: RestoreOptions,
    ):
        self._folder = folder
        self._tables = tables
        self._options = options
        self.manifest = chain[-1]
        self._path = folder.version_path(self.manifest.version)
        self._id_arrays = id_contents.read(folder, self.manifest)
        saved = {
            t.name: f"{t.dim} {t.dtype}" for t in self.manifest.saved_tables()
        }
        for name, arrays in self._id_arrays.items():
            saved[name] = id_contents.kind_of_arrays(arrays)
        here = {**tables.embeddings, **tables.id_tables}
        kinds = {
            name: f"{table.output_dim} {table.dtype}"
            if isinstance(table, EmbeddingVariable)
            else id_contents.kind_of_table(table)
            for name, table in here.items()
        }
        self._matched = self._match(saved, kinds)
        self._names = {name: new for name, (new, _) in self._matched.items()}
        self.initial = tuple(n for n in here if n not in self._names.values())
        self.ignored = tuple(n for n in saved if n not in self._names)
        for name_there, name_here in self._names.items():
            self._check(name_there, name_here, here[name_here])
        self._warn_of_names(saved, kinds)
        self._files = {
            name: folder.table_files(chain, name)
            for name in self._names
            if self.manifest.table(name) is not None
        }

    def _warn_of_names(
        self, saved: Mapping[str, str], here: Mapping[str, str]
    ) -> None:
        """Warns of tables that stay unchanged while similar ones are ignored."""
        if saved and here and not self._names:
            text = (
                f"no table was restored: it has {listed(saved)}, but the "
                f"tables here are {listed(here)}."
            )
        else:
            kinds = {here[name] for name in self.initial}
            left = [name for name in self.ignored if saved[name] in kinds]
            kinds = {saved[name] for name in left}
            stay = [name for name in self.initial if here[name] in kinds]
            if not left:
                return
            text = (
                f"the table {listed(stay)} stays unchanged, and {listed(left)} "
                "of the snapshot, which is of the same kind, is ignored. Use "
                "`rename` if they are the same."
            )
        warnings.warn(f"{self._path}: {text}", RuntimeWarning, stacklevel=11)

    def _match(
        self, kinds: Mapping[str, str], kinds_here: Mapping[str, str]
    ) -> dict[str, tuple[str, str]]:
        """Returns name in the snapshot -> (name here, how it was matched)."""
        options = self._options
        saved, here = list(kinds), list(kinds_here)
        for name, new in options.rename.items():
            if name not in saved:
                raise SnapshotError(
                    f"{self._path}: `rename` has {name!r}, but the snapshot's "
                    f"tables are {saved}."
                )
            if new not in here:
                raise SnapshotError(
                    f"`rename` maps {name!r} to {new!r}, but the tables here "
                    f"are {here}."
                )
        names = matching.match(kinds, kinds_here, options.rename)
        taken = [new for new, _ in names.values()]
        for new in taken:
            if taken.count(new) > 1:
                raise SnapshotError(
                    f"{self._path}: two tables of the snapshot match {new!r} "
                    "here. Map them with `rename`."
                )
        absent = [n for n in here if n not in taken]
        if absent and options.on_missing == "error":
            raise SnapshotError(
                f"{self._path}: has no table {listed(absent)}; it has "
                f"{listed(saved)}.{did_you_mean(absent[0], saved)} Use `rename`, "
                "or on_missing='init' to leave them unchanged."
            )
        surplus = [n for n in saved if n not in names]
        if surplus and options.on_extra == "error":
            raise SnapshotError(
                f"{self._path}: has the table {listed(surplus)}, which is not "
                f"among those here, {listed(here)}. Use `rename`, or "
                "on_extra='ignore' to leave it out."
            )
        return names

    def _check(self, name_there: str, name_here: str, table: Any) -> None:
        arrays = self._id_arrays.get(name_there)
        entry = self.manifest.table(name_there)
        if isinstance(table, EmbeddingVariable):
            if entry is None:
                raise SnapshotError(
                    f"{self._path}: the table {name_there!r} is an id table, "
                    f"but {name_here!r} here is {table!r}."
                )
            for what, there, here in (
                ("dim", entry.dim, table.output_dim),
                ("dtype", entry.dtype, table.dtype),
            ):
                if there != here:
                    raise SnapshotError(
                        f"{self._path}: the table {entry.name!r} has {what} "
                        f"{there}, but {table!r} has {what} {here}."
                    )
        elif arrays is None:
            raise SnapshotError(
                f"{self._path}: the table {name_there!r} is an embedding, but "
                f"{name_here!r} here is {type(table).__name__}."
            )
        else:
            what = f"{self._path}: the table {name_here!r}"
            id_contents.check_table(what, arrays, table)

    def load(self) -> dict[str, int]:
        """Reads this process's rows; returns their number by table."""
        tables = self._embeddings()

        def load(place: Place) -> tuple[tf.Tensor, list[int]]:
            return snapshot_ops.load(
                place.handles,
                [
                    [
                        entry.at(place.path(path))
                        for saved in self._files[part.name]
                        for path, entry in saved
                    ]
                    for part in place.parts
                ],
                [(part.part, part.parts) for part in place.parts],
                [self._base(part.name) for part in place.parts],
                optimizer_slots=self._options.optimizer_slots,
            )

        counts = dict.fromkeys(tables, 0)
        self._loaded: list[tuple[Place, tf.Tensor]] = []
        places = places_of(tables)
        with corrupt_files(), _as_snapshot_error():
            for place, (tensor, rows) in zip(places, each(places, load)):
                self._loaded.append((place, tensor))
                for part, count in zip(place.parts, rows, strict=True):
                    counts[part.name] += count
        return counts

    def install(self, loaded: list[dict[str, int]]) -> RestoreReport:
        """Installs the loaded rows, given each worker's numbers of rows."""
        with _as_snapshot_error():
            self._install_embeddings()
        self._loaded = []
        restored = {}
        for there, table in self._embeddings().items():
            table._slots.restored()
            note_saved(table, self._folder, self.manifest, there)
            restored[self._names[there]] = sum(rows[there] for rows in loaded)
        for name_there, name_here in self._names.items():
            arrays = self._id_arrays.get(name_there)
            if arrays is not None:
                id_table = self._tables.id_tables[name_here]
                id_contents.assign(id_table, arrays)
                note_saved(id_table, self._folder, self.manifest, name_there)
                restored[name_here] = id_contents.count(arrays)
        return RestoreReport(
            self._path,
            self.manifest.version,
            self.manifest.step,
            restored,
            self.initial,
            self.ignored,
            self.manifest.metadata,
            {new: (name, how) for name, (new, how) in self._matched.items()},
        )

    def _embeddings(self) -> dict[str, EmbeddingVariable]:
        """Returns name in the snapshot -> table to restore."""
        return {
            there: self._tables.embeddings[self._names[there]]
            for there in self._files
        }

    def _base(self, there: str) -> str:
        """Returns the base for the table's next delta, or "".

        A table without the snapshot's optimizer slots, or with other parts,
        differs from the snapshot.
        """
        table = self._tables.embeddings[self._names[there]]
        same = self._options.optimizer_slots == "require" and part_count(
            table
        ) == len(self._files[there])
        return self.manifest.mark if same else ""

    def _install_embeddings(self) -> None:
        places = [place for place, _ in self._loaded]
        for number, (place, loaded) in enumerate(self._loaded):
            try:
                with place.on():
                    snapshot_ops.install(loaded)
            except tf.errors.OpError as error:
                if number == 0:
                    raise
                done, left = (
                    ", ".join(place.device for place in some)
                    for some in (places[:number], places[number:])
                )
                raise SnapshotError(
                    f"{self._path}: {done} restored its rows, but {left} did "
                    f"not: {describe_error(error)}. Restore again."
                ) from None


@contextlib.contextmanager
def _as_snapshot_error() -> Iterator[None]:
    """Converts errors that only ops detect: another optimizer, a cap."""
    try:
        yield
    except tf.errors.FailedPreconditionError as error:
        raise SnapshotError(describe_error(error)) from None
