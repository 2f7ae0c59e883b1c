"""Writes each program's output as tables.

docs/benchmarks/figures.md has all of it, and docs/results.md that of results.py.
"""

import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD = """# Figures

`python -m benchmarks.report draw` generates this page from the JSON files in
`lines`: every line that the programs printed, and how each program was run.
`ratio` is the baseline's median time over Lodestar's: above 1, Lodestar is
faster, unless the baseline column differs. `wanted` is the target, for full
sizes only. `benchmarks/README.md` describes the programs.
"""
# Fields that the tables omit.
_LEFT_OUT = {"checksum", "runs"}
_AT_MOST = re.compile(r"(?:(\w+) )?(?:<=?|at most) ([\d.]+)$")


def reached(line: Mapping[str, Any]) -> bool | None:
    """Returns whether a line reaches its target; None if it has no target.

    Args:
        line: A program's line. A number in `wanted` is the minimum of `ratio`
            or `gigabytes_a_second`, or the maximum of `time_share`; "<= 2",
            "< 2" or "at most 2" is the maximum of the field named before it.
    """
    wanted = line.get("wanted")
    if isinstance(wanted, int | float):
        if "time_share" in line:
            return line["time_share"] <= wanted
        for field in ("ratio", "ratio_to_one_thread", "gigabytes_a_second"):
            if field in line:
                return line[field] >= wanted
        return None
    found = _AT_MOST.match(wanted) if isinstance(wanted, str) else None
    if not found:
        return None
    for field in (found[1], "time_ratio", "ratio"):
        if field in line:
            return line[field] <= float(found[2])
    return None


def origin(record: Mapping[str, Any]) -> str:
    """Returns the machine, versions, commit, date and load in one line."""
    machine, versions = record["machine"], record["versions"]
    load = record["load_before"][0]
    text = (
        f"{machine['cpu']}, {machine['threads']} hardware threads, "
        f"{machine['memory_gb']:g} GB; TensorFlow {versions['tensorflow']}; "
        f"commit {record['commit']}, {record['date']}; load before {load:g}"
    )
    return text + ("; small sizes" if record["small"] else "")


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|")


def _fields(line: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in line.items()
        if name not in _LEFT_OUT and not isinstance(value, dict | list)
    ]


def table(rows: Iterable[Sequence[str]], align: str = "---") -> str:
    """Formats a table; all columns except the first are aligned by `align`."""
    head, *rest = rows
    marks = ["---", *[align] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, marks, *rest))


def _table_of(lines: Sequence[Mapping[str, Any]], judge: bool) -> str:
    """Formats lines with the same fields as a table."""
    names = _fields(lines[0])
    marked = [reached(line) if judge else None for line in lines]
    judged = any(mark is not None for mark in marked)
    rows = [[*names, "reached"] if judged else names]
    for line, mark in zip(lines, marked):
        rows.append([_cell(line[name]) for name in names])
        if judged:
            rows[-1].append({True: "yes", False: "**no**", None: ""}[mark])
    return table(rows)


def title(line: Mapping[str, Any]) -> str:
    """Returns the title of a line: work and baseline."""
    return "; ".join(line[x] for x in ("work", "baseline") if x in line)


def text(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns figures.md for the records of programs."""
    marks = [
        (f"[{name}](#{name}): {title(line)}", reached(line))
        for name, record in records.items()
        if not record["small"]
        for line in record["lines"]
    ]
    missed = [work for work, mark in marks if mark is False]
    count = len([mark for _, mark in marks if mark is not None])
    out = [
        _HEAD,
        f"{count} lines have a target; {len(missed)} of them miss it:\n",
        *(f"- {work}" for work in dict.fromkeys(missed)),
        "",
    ]
    for name, record in records.items():
        command = " ".join([name, *record["arguments"]])
        out.append(f"## {name}\n\n`{command}`; {origin(record)}.\n")
        for _, group in itertools.groupby(record["lines"], _fields):
            out += [_table_of(list(group), not record["small"]), ""]
    return "\n".join(out)


def _size(number: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.0f} B"


# For each column of docs/results.md: the field of a line, and its format.
_RESULTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "library": ("library", str),
    "AUC": ("auc", "{:.4f}".format),
    "examples per second": ("examples_per_second", "{:,.0f}".format),
    "first step": ("first_step_seconds", "{:.1f} s".format),
    "rows": ("table_rows", "{:,.0f}".format),
    "bytes per row": ("bytes_per_row", "{:,.0f}".format),
    "memory": ("memory", _size),
    "export": ("export_bytes", _size),
    "request": ("request_ms", "{:.2f} ms".format),
}
_RESULTS_TABLE = re.compile(r"\| library \| AUC .*\n(?:\|.*\n)+")


def groups(
    lines: Sequence[Mapping[str, Any]],
) -> list[list[Mapping[str, Any]]]:
    """Returns the lines of results.py for each data set."""
    by = itertools.groupby(lines, lambda x: (x["work"], x["train_rows"]))
    return [list(group) for _, group in by]


def with_results(page: str, record: Mapping[str, Any]) -> str:
    """Returns docs/results.md with the figures of results.py.

    Replaces the tables of the data sets, in order, and the last paragraph, which
    lists the machine and the versions. The text between them is written by hand.
    """
    tables = []
    for group in groups(record["lines"]):
        rows = [list(_RESULTS)]
        for line in group:
            memory = line["table_rows"] * line["bytes_per_row"]
            line = {**line, "memory": memory}
            rows.append([text(line[x]) for x, text in _RESULTS.values()])
        tables.append(table(rows, "---:") + "\n")
    left = iter(tables)
    page = _RESULTS_TABLE.sub(lambda found: next(left), page)
    versions = sorted({line["version"] for line in record["lines"]})
    kept, _, _ = page.rstrip().rpartition("\n\n")
    machine = f"{origin(record)}. {'; '.join(versions)}."
    return f"{kept}\n\n{textwrap.fill(machine, 140)}\n"


def write(records: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Writes figures.md to a folder, and updates results.md next to it."""
    (folder / "figures.md").write_text(text(records))
    if "results" in records:
        page = folder.absolute().parent / "results.md"
        page.write_text(with_results(page.read_text(), records["results"]))
