"""Writes docs/benchmarks/figures.md: each program's output as tables."""

import itertools
import re
from collections.abc import Mapping, Sequence
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
        f"{machine['cpu']}, {machine['cores']} cores, "
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


def _table(lines: Sequence[Mapping[str, Any]], judge: bool) -> list[str]:
    """Formats lines with the same fields as a table."""
    names = _fields(lines[0])
    marked = [reached(line) if judge else None for line in lines]
    judged = any(mark is not None for mark in marked)
    heads = [*names, "reached"] if judged else names
    rows = [heads, ["---"] * len(heads)]
    for line, mark in zip(lines, marked):
        row = [_cell(line[name]) for name in names]
        if judged:
            row.append({True: "yes", False: "**no**", None: ""}[mark])
        rows.append(row)
    return [f"| {' | '.join(row)} |" for row in rows]


def title(line: Mapping[str, Any]) -> str:
    """Returns the title of a line: work and baseline."""
    return "; ".join(line[x] for x in ("work", "baseline") if x in line)


def text(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the page for the records of programs."""
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
            out += [*_table(list(group), not record["small"]), ""]
    return "\n".join(out)


def write(records: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Writes figures.md to a folder."""
    (folder / "figures.md").write_text(text(records))
