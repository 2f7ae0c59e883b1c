"""The command line: `python -m lodestar.snapshot list|verify|inspect|compact|copy`.

The exit code is 0, or 1 with an error on one line of stderr, or 2 if the command
line is invalid.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import click
import numpy as np

from lodestar import _command_line
from lodestar._checks import did_you_mean
from lodestar._commands.snapshot import SNAPSHOT
from lodestar.snapshot import compaction, copying, info, records, verifying
from lodestar.snapshot.errors import MissingSnapshotError, SnapshotError, listed
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest, SavedTable

_NAME = "lodestar.snapshot"
# Lines, and tables as sequences of rows.
_Printed: TypeAlias = Iterator[str | Sequence[tuple[str, ...]]]


def main(
    arguments: list[str] | None = None, prog: str = f"python -m {_NAME}"
) -> int:
    """Runs the command and returns its exit code."""
    return run(_command_line.parse(SNAPSHOT, arguments, prog))


def run(context: click.Context) -> int:
    """Runs a parsed command and returns its exit code."""
    commands: dict[str, Callable[..., _Printed]] = {
        "list": _list,
        "verify": _verify,
        "inspect": _inspect,
        "compact": _compact,
        "copy": _copy,
    }

    def command() -> int:
        for part in commands[context.info_name or ""](**context.params):
            if isinstance(part, str):
                print(part)
            else:
                _command_line.print_table(part)
        return 0

    errors = (*_command_line.ERRORS, SnapshotError)
    return _command_line.run(_NAME, command, 1, errors=errors)


def _list(path: str) -> _Printed:
    rows = [("version", "kind", "step", "time", "rows", "removed", "size")]
    for found in info.versions(path):
        kind = found.kind
        if found.parent is not None:
            kind += f" on {found.parent}"
        if found.same_as is not None:
            kind += f", as {found.same_as}"
        numbers = str(found.rows), str(found.removed), _size(found.bytes)
        rows.append(
            (str(found.version), kind, str(found.step), found.time, *numbers)
        )
    if len(rows) == 1:
        raise MissingSnapshotError.of(path)
    yield rows


def _verify(path: str, version: int | None) -> _Printed:
    report = verifying.verify(path, version)
    yield (
        f"version {report.version} is intact: {_plural(report.files, 'file')} "
        f"of {_plural(len(report.versions), 'version')}, {_size(report.bytes)}"
    )


def _compact(path: str, keep: int) -> _Printed:
    report = compaction.compact(path, keep)
    removed = ", ".join(map(str, report.removed)) or "none"
    yield f"version {report.version} is the newest; removed: {removed}"


def _copy(path: str, target: str, version: int | None) -> _Printed:
    report = copying.copy(path, target, version)
    copied = ", ".join(map(str, report.copied)) or "none"
    yield (
        f"version {report.version} is in {target}; copied: {copied}, "
        f"{_size(report.bytes)}"
    )


def _inspect(
    path: str,
    version: int | None,
    table: str | None,
    id: int | None,
    top: str | None,
    diff: str | None,
    n: int,
) -> _Printed:
    folder = SnapshotFolder(path)
    chain = folder.chain(version or folder.newest_version())
    tables: Sequence[SavedTable] = chain[-1].saved_tables()
    if table is not None:
        tables = [t for t in tables if t.name == table]
        if not tables:
            names = [t.name for t in chain[-1].saved_tables()]
            raise SnapshotError(
                f"{folder.version_path(chain[-1].version)}: has no table "
                f"{table!r}; it has "
                f"{listed(names)}.{did_you_mean(table, names)}"
            )
    if diff is not None:
        yield from _diff_lines(folder, chain, tables, diff)
        return
    if id is None and top is None:
        yield from _version_lines(chain, tables)
        return
    for saved in tables:
        files = records.files_of(folder, chain, saved.name)
        if id is not None:
            yield from _id_lines(saved, records.find_id(files, id))
            continue
        yield f"table {saved.name}"
        rows = zip(*records.top(files, n))
        lines = [(str(count), str(id_), str(seen)) for id_, count, seen in rows]
        yield [("frequency", "id", "last seen"), *lines]


def _version_lines(
    chain: Sequence[Manifest], tables: Sequence[SavedTable]
) -> Iterator[str]:
    last = chain[-1]
    needs = ", ".join(str(m.version) for m in chain[:-1])
    needed = f", needs {needs}" if needs else ""
    yield f"version {last.version}: {last.kind}{needed}"
    if last.same_as is not None:
        yield f"same as version {last.same_as.version}"
    yield f"step {last.step}, {last.time}, by Lodestar {last.lodestar}"
    if last.metadata:
        yield f"metadata {json.dumps(last.metadata)}"
    for table in tables:
        slots = ", ".join(table.slot_names)
        optimizer = table.optimizer or "no optimizer"
        if table.optimizer and slots:
            optimizer += f" ({slots})"
        parts = len(table.files)
        divided = "" if parts == 1 else f", in {parts} parts"
        yield (
            f"table {table.name}: {table.dim} x {table.dtype}, {optimizer}"
            f"{divided}"
        )
        for manifest in reversed(chain):
            found = manifest.table(table.name)
            assert found is not None  # every manifest of a chain has the table
            changes = _plural(found.rows, "row")
            if not found.whole:
                changes += f" changed, {found.removed} removed"
            yield (
                f"  version {manifest.version}: {changes}, {_size(found.bytes)}"
            )
            if found.whole:
                break
    for blob in last.blobs:
        yield f"array {blob.name}: {list(blob.shape)} {blob.dtype}"
    for file in last.files:
        yield f"file {file.file}: {_size(file.bytes)}"


def _id_lines(table: SavedTable, found: records.IdState) -> Iterator[str]:
    name, version = f"table {table.name}", f"version {found.version}"
    if found.state == "missing":
        removed = "" if found.version is None else f"; {version} removed it"
        yield f"{name}: missing{removed}"
        return
    yield f"{name}: {found.state}, last written in {version}"
    if found.state == "pending":
        yield f"  occurrences {found.frequency}, last seen {found.last_seen}"
        return
    assert found.values is not None
    yield f"  values {_numbers(found.values)}"
    for slot, values in found.slots.items():
        yield f"  slot {slot} {_numbers(values)}"
    yield f"  frequency {found.frequency}, last seen {found.last_seen}"


def _diff_lines(
    folder: SnapshotFolder,
    chain: Sequence[Manifest],
    tables: Sequence[SavedTable],
    other: str,
) -> Iterator[str]:
    # A number is a version of this folder; ./1 is a folder.
    other_folder = folder if other.isdigit() else SnapshotFolder(other)
    version = int(other) if other.isdigit() else None
    other_chain = other_folder.chain(version or other_folder.newest_version())
    for table in tables:
        there = other_chain[-1].table(table.name)
        if there is None:
            yield f"table {table.name}: only in version {chain[-1].version}"
            continue
        if (there.dim, there.dtype) != (table.dim, table.dtype):
            yield (
                f"table {table.name}: {there.dim} x {there.dtype} in {other}, "
                f"{table.dim} x {table.dtype} here"
            )
            continue
        found = records.difference(
            records.files_of(other_folder, other_chain, table.name),
            records.files_of(folder, chain, table.name),
        )
        largest = ""
        if found.largest_id is not None:
            largest = (
                f"; largest |difference| {found.largest:g}, of id "
                f"{found.largest_id}"
            )
        yield (
            f"table {table.name}: {found.added} added, {found.removed} "
            f"removed, {found.changed} changed, {found.equal} equal{largest}"
        )
    here = {table.name for table in chain[-1].saved_tables()}
    for table in other_chain[-1].saved_tables():
        if table.name not in here:
            yield f"table {table.name}: only in {other}"


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{value:g}" for value in values.astype(np.float64))


def _size(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    amount = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 1000 or unit == "TB":
            break
    return f"{amount:.1f} {unit}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


if __name__ == "__main__":
    sys.exit(main())
