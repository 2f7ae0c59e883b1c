"""Draws the plots of docs/benchmarks from the programs' output."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks import report_tables

Record = Mapping[str, Any]

_OURS, _OTHERS, _WANTED = "#1b6ca8", "#9aa5b1", "#d1495b"
_COLORS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8a6d3b")
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    # Makes the file depend on the figures alone.
    "svg.hashsalt": "lodestar",
    # Keeps the layout with any fonts of the reader.
    "svg.fonttype": "path",
}


def _figure(
    width: float, height: float, panels: int, record: Record
) -> tuple[Figure, list[Axes]]:
    """Returns panels side by side, above a line with the origin."""
    below = 0.3 / height
    layout = ConstrainedLayoutEngine(rect=(0, below, 1, 1 - below))
    figure = Figure(figsize=(width, height), layout=layout)
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    figure.text(
        0.01,
        0.1 / height,
        f"{record['program']}: {report_tables.origin(record)}",
        fontsize=7.5,
        color="#444444",
    )
    return figure, axes


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    """Adds text to the right of a mark."""
    axes.annotate(
        text,
        (x, y),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )


def _bars(
    axes: Axes, names: Sequence[str], values: Sequence[float], unit: str
) -> None:
    """Draws horizontal bars from the top down, the first in our color."""
    places = range(len(names))
    colors = [_OURS, *[_OTHERS] * (len(names) - 1)]
    axes.barh(places, values, color=colors)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_xlim(0, 1.3 * max(values))


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"


def _rate(number: float) -> str:
    """Formats a number of ids in millions."""
    return f"{number / 1e6:g}M"


def peers(records: Mapping[str, Record]) -> Figure:
    """Draws training step and lookup, with one bar per library."""
    record = records["peers_benchmark"]
    figure, panels = _figure(11, 3.4, 2, record)
    works = list(dict.fromkeys(line["work"] for line in record["lines"]))
    for axes, work in zip(panels, reversed(works)):
        lines = [line for line in record["lines"] if line["work"] == work]
        lines.sort(key=lambda line: line["baseline_ms"])
        names = [line["baseline"].replace(" (", "\n(") for line in lines]
        names.insert(0, "Lodestar")
        times = [lines[0]["ms"], *(line["baseline_ms"] for line in lines)]
        _bars(axes, names, times, "milliseconds, less is better")
        for place, time in enumerate(times):
            over = f"  ({time / times[0]:.2g} x)" if place else ""
            _label(axes, time, place, _short(time) + over)
        axes.set_title(work.replace(", ", ":\n", 1), fontsize=10)
    return figure


_SIZED = re.compile(r"lookup, (\d+) of (\d+) x (\d+)$")


def lookups(records: Mapping[str, Record]) -> Figure:
    """Draws ids per second by rows and dimension, compared with tf.gather."""
    record = records["embedding_benchmark"]
    rows = []
    for line in record["lines"]:
        found = _SIZED.match(line["work"])
        if not found or found[1] == "1" or "gather" not in line["baseline"]:
            continue
        size = int(found[2]), int(found[3])
        rates = [
            1e3 / line[side] for side in ("ns_per_item", "baseline_ns_per_item")
        ]
        rows.append((size, rates))
    rows.sort(key=lambda row: (row[0][1], row[0][0]))
    figure, (axes,) = _figure(8, 1.6 + 0.4 * len(rows), 1, record)
    for place, (_, (ours, theirs)) in enumerate(rows):
        axes.plot([ours, theirs], [place] * 2, color=_OTHERS, zorder=1)
    for i, (label, color) in enumerate(
        (
            ("Lodestar, any int64 id", _OURS),
            ("tf.gather of a dense Variable", _OTHERS),
        )
    ):
        rates = [rates[i] for _, rates in rows]
        axes.scatter(rates, range(len(rows)), color=color, label=label, s=60)
    axes.set_yticks(
        range(len(rows)),
        [f"{_rate(count)} rows of {dim}" for (count, dim), _ in rows],
    )
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("million ids per second, more is better")
    axes.set_title("Lookups of 65,536 resident ids, by rows and dimension")
    axes.legend(frameon=False, fontsize=9)
    return figure


def growth(records: Mapping[str, Record]) -> Figure:
    """Draws bytes per row and the longest lookups while a table grows."""
    record = records["growth_benchmark"]
    figure, (memory, pauses) = _figure(11, 4.4, 2, record)
    for color, line in zip(_COLORS, record["lines"]):
        rows = [point["rows"] for point in line["points"]]

        def of(name: str, line: Record = line) -> list[float]:
            return [point[name] for point in line["points"]]

        label = f"dim {line['dim']}, {line['slots']} slots"
        memory.plot(rows, of("stats_bytes"), color=color, label=label)
        memory.plot(rows, of("rss_bytes"), ":", color=color)
        memory.axhline(line["limit_bytes"], color=color, ls="--", lw=0.8)
        pauses.plot(
            rows, of("longest_of_processor_ms"), color=color, label=label
        )
        pauses.plot(rows, of("longest_ms"), ":", color=color)
    for axes in (memory, pauses):
        axes.set_xscale("log")
        axes.set_xlabel("rows in the table")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _rate(x)))
    memory.set_ylim(bottom=0)
    memory.set_ylabel("bytes per row")
    memory.set_title(
        "Memory per row: solid stats(), dotted the process's,\n"
        "dashed the limit of 1.25 x its values + 36 bytes",
        fontsize=10,
    )
    memory.legend(frameon=False, fontsize=9)
    pauses.set_yscale("log")
    pauses.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    pauses.set_ylabel("milliseconds")
    pauses.set_title(
        "Longest lookup of 4,096 new ids: solid CPU time,\ndotted elapsed time",
        fontsize=10,
    )
    return figure


def saving(records: Mapping[str, Record]) -> Figure:
    """Draws MB per second of saving and restoring, and of the baselines."""
    record = records["snapshot_benchmark"]
    lines = [line for line in record["lines"] if "MB" in line]
    figure, (axes,) = _figure(9, 1.6 + 0.75 * len(lines), 1, record)
    for i, (field, color, name) in enumerate(
        (
            ("seconds", _OURS, "Lodestar"),
            ("baseline_seconds", _OTHERS, "baseline"),
        )
    ):
        rates = [line["MB"] / line[field] for line in lines]
        places = [place + 0.38 * i - 0.19 for place in range(len(lines))]
        axes.barh(places, rates, 0.36, color=color, label=name)
        for place, rate in zip(places, rates):
            _label(axes, rate, place, f"{rate:,.0f}")
    axes.set_yticks(
        range(len(lines)),
        [f"{line['work'].split(',')[0]}\n{line['baseline']}" for line in lines],
        fontsize=9,
    )
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("MB of the file per second, more is better")
    axes.legend(frameon=False, fontsize=9)
    rows = lines[0]["work"].split(", ", 1)[1]
    axes.set_title(f"Saving and restoring {rows}")
    return figure


def reading(records: Mapping[str, Record]) -> Figure:
    """Draws GB per second of the readers, by format and threads."""
    record = records["reader_benchmark"]
    rates: dict[str, dict[str, float]] = {}
    for line in record["lines"]:
        if "gigabytes_a_second" in line and " threads" in line["work"]:
            work, threads = line["work"].rsplit(", ", 1)
            rates.setdefault(work, {})[threads] = line["gigabytes_a_second"]
    figure, (axes,) = _figure(9, 1.6 + 0.6 * len(rates), 1, record)
    for i, (threads, name, color) in enumerate(
        (
            ("1 threads", "1 thread", _OURS),
            ("2 threads", "2 threads", "#6fa8d0"),
        )
    ):
        places = [place + 0.38 * i - 0.19 for place in range(len(rates))]
        values = [rates[work].get(threads, 0.0) for work in rates]
        axes.barh(places, values, 0.36, color=color, label=name)
        for place, value in zip(places, values):
            _label(axes, value, place, f"{value:.2f}")
    if not record["small"]:
        axes.axvline(
            1, color=_WANTED, ls="--", lw=1, label="target of Norm, Raw"
        )
    axes.set_yticks(range(len(rates)), list(rates))
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("GB of the file per second, more is better")
    axes.set_title("Reading samples of 13 floats and 26 slots, from page cache")
    axes.legend(frameon=False, fontsize=9)
    return figure


def _ratios(
    program: str, title: str
) -> Callable[[Mapping[str, Record]], Figure]:
    """Returns a function that draws a program's ratios and targets."""

    def draw(records: Mapping[str, Record]) -> Figure:
        record = records[program]
        lines = [line for line in record["lines"] if "ratio" in line]
        figure, (axes,) = _figure(11, 1.8 + 0.3 * len(lines), 1, record)
        for place, line in enumerate(lines):
            axes.plot([1, line["ratio"]], [place] * 2, color=_OTHERS, lw=1)
            # Targets are for full sizes.
            wanted = isinstance(line["wanted"], int | float)
            if wanted and not record["small"]:
                label = (
                    None if axes.get_legend_handles_labels()[0] else "target"
                )
                axes.plot(
                    line["wanted"],
                    place,
                    "|",
                    color=_WANTED,
                    ms=12,
                    label=label,
                )
            # Outside the axes, where no marks are.
            axes.text(
                1.01,
                place,
                _short(line["ratio"]),
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=8,
            )
        axes.scatter(
            [line["ratio"] for line in lines],
            range(len(lines)),
            color=_OURS,
            label="measured",
            zorder=3,
        )
        axes.axvline(1, color="#444444", lw=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(
            range(len(lines)),
            [report_tables.title(line) for line in lines],
            fontsize=8,
        )
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.set_xlabel(
            "baseline's time over Lodestar's; right of 1, Lodestar is faster"
        )
        axes.set_title(title)
        axes.legend(frameon=False, fontsize=9)
        return figure

    return draw


# For each plot: the program whose file it needs, and its function.
PLOTS: dict[str, tuple[str, Callable[[Mapping[str, Record]], Figure]]] = {
    "readme": ("peers_benchmark", peers),
    "lookups": ("embedding_benchmark", lookups),
    "growth": ("growth_benchmark", growth),
    "saving": ("snapshot_benchmark", saving),
    "reading": ("reader_benchmark", reading),
    **{
        name: (program, _ratios(program, title))
        for name, program, title in (
            (
                "id_tables",
                "id_table_benchmark",
                "Id tables compared with TensorFlow's and Keras's",
            ),
            (
                "sequences",
                "sequence_benchmark",
                "Sequence ops compared with compositions of TensorFlow's",
            ),
        )
    },
}


def write(records: Mapping[str, Record], folder: Path) -> list[Path]:
    """Draws every plot whose program has a file.

    Args:
        records: {program: content of its file}.
        folder: The folder of the files NAME.svg.

    Returns:
        The written files.
    """
    written = []
    with matplotlib.rc_context(_STYLE):
        for name, (program, draw) in PLOTS.items():
            if program not in records:
                continue
            path = folder / f"{name}.svg"
            # No date, so that the file depends on the figures alone.
            draw(records).savefig(path, metadata={"Date": None})
            written.append(path)
    return written
