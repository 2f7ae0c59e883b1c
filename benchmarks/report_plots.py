"""Draws the plots of docs/benchmarks from the programs' output.

Plots are as wide as a phone shows them with readable text; panels are stacked.
"""

import re
import textwrap
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
# A second series of ours.
_LIGHTER = "#6fa8d0"
_COLORS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8a6d3b")
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
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


# In inches. On a screen of 360 pixels, 9 points are then 9.4 pixels high.
_WIDTH = 4.8
_SMALL = 9  # points
_LETTERS = 64  # of the small font in a line
# Hides lines behind text.
_BLANK: Any = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}


def _figure(
    height: float, panels: int, record: Record
) -> tuple[Figure, list[Axes]]:
    """Returns panels of a height in inches, above lines with the origin."""
    origin = f"{record['program']}: {report_tables.origin(record)}"
    lines = textwrap.wrap(origin, _LETTERS)
    below = 0.1 + 0.17 * len(lines)
    total = height * panels + below
    layout = ConstrainedLayoutEngine(
        rect=(0, below / total, 1, 1 - below / total)
    )
    figure = Figure(figsize=(_WIDTH, total), layout=layout)
    axes = list(figure.subplots(panels, 1, squeeze=False)[:, 0])
    figure.text(
        0.02,
        0.06 / total,
        "\n".join(lines),
        fontsize=_SMALL,
        color="#444444",
        va="bottom",
    )
    return figure, axes


def _title(axes: Axes, text: str, letters: int = _LETTERS - 6) -> None:
    """Adds a title, wrapped to the width of the axes."""
    axes.set_title(textwrap.fill(text, letters), fontsize=10, loc="left")


def _legend(axes: Axes, **options: Any) -> None:
    axes.legend(framealpha=1, edgecolor="none", fontsize=_SMALL, **options)


def _rows(axes: Axes, names: Sequence[str], above: float = 0.28) -> None:
    """Names places on the y axis from the top down, each above its marks.

    Leaves room for a legend at the top.
    """
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    for place, name in enumerate(names):
        axes.text(
            0,
            place - above,
            name,
            transform=axes.get_yaxis_transform(),
            fontsize=_SMALL,
            va="bottom",
            bbox=_BLANK,
        )
    axes.set_ylim(len(names) - 0.5, -1.2)


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    """Adds text to the right of a mark."""
    axes.annotate(
        text,
        (x, y),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=_SMALL,
        bbox=_BLANK,
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
    axes.set_xlim(0, 1.45 * max(values))


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"


def _rate(number: float) -> str:
    """Formats a number of ids in millions."""
    return f"{number / 1e6:g}M"


def peers(records: Mapping[str, Record]) -> Figure:
    """Draws training step and lookup, with one bar per library."""
    record = records["peers_benchmark"]
    figure, panels = _figure(4.3, 2, record)
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
        _title(axes, work[0].upper() + work[1:], 40)
    return figure


_DATA_SETS = {
    "adult": "Adult: who earns more than 50,000 dollars?",
    "ratings": "MovieLens-100k: will the user like the movie?",
    "stream": "A click stream of Criteo's shape",
}


def results(records: Mapping[str, Record]) -> Figure:
    """Draws examples per second and AUC, with a panel per data set."""
    record = records["results"]
    groups = report_tables.groups(record["lines"])
    figure, panels = _figure(2.2, len(groups), record)
    for axes, lines in zip(panels, groups):
        names = [line["library"] for line in lines]
        rates = [line["examples_per_second"] / 1000 for line in lines]
        _bars(axes, names, rates, "thousand examples per second")
        for place, line in enumerate(lines):
            text = f"{_short(rates[place])}, AUC {line['auc']:.3f}"
            _label(axes, rates[place], place, text)
        title = _DATA_SETS[lines[0]["work"]]
        if lines[0]["work"] == "stream":
            title += f", {lines[0]['train_rows']:,} rows"
        _title(axes, title, 50)
    return figure


def _pairs(
    record: Record,
    rows: Mapping[str, Sequence[float]],
    names: Sequence[str],
    unit: str,
    title: str,
    digits: str = ",.0f",
    second: str = _OTHERS,
) -> tuple[Figure, Axes]:
    """Draws two bars per row, the first in our color.

    Args:
        record: The program's record.
        rows: The values of both bars, by name of the row.
        names: Names of the bars.
        unit: Label of the x axis.
        title: Title of the plot.
        digits: Format of the values.
        second: Color of the second bars.
    """
    figure, (axes,) = _figure(1.6 + 0.75 * len(rows), 1, record)
    for i, (name, color) in enumerate(zip(names, (_OURS, second))):
        places = [place + 0.3 * i - 0.08 for place in range(len(rows))]
        values = [pair[i] for pair in rows.values()]
        axes.barh(places, values, 0.28, color=color, label=name)
        for place, value in zip(places, values):
            _label(axes, value, place, format(value, digits))
    _rows(axes, list(rows))
    axes.margins(x=0.15)
    axes.set_xlabel(f"{unit}, more is better")
    _title(axes, title)
    return figure, axes


_SIZED = re.compile(r"lookup, (\d+) of (\d+) x (\d+)$")


def lookups(records: Mapping[str, Record]) -> Figure:
    """Draws ids per second by rows and dimension, compared with tf.gather."""
    record = records["embedding_benchmark"]
    found = {}
    for line in record["lines"]:
        sized = _SIZED.match(line["work"])
        if sized and sized[1] != "1" and "gather" in line["baseline"]:
            dim, count = int(sized[3]), int(sized[2])
            sides = (line["ns_per_item"], line["baseline_ns_per_item"])
            found[dim, count] = [1e3 / nanoseconds for nanoseconds in sides]
    figure, axes = _pairs(
        record,
        {
            f"{_rate(count)} rows of {dim}": found[dim, count]
            for dim, count in sorted(found)
        },
        ("Lodestar, any int64 id", "tf.gather of a dense Variable"),
        "million ids per second",
        "Lookups of 65,536 resident ids, by rows and dimension",
    )
    _legend(axes, loc="upper right", ncols=2)
    return figure


def growth(records: Mapping[str, Record]) -> Figure:
    """Draws bytes per row and the longest lookups while a table grows."""
    record = records["growth_benchmark"]
    figure, (memory, pauses) = _figure(3.6, 2, record)
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
    _title(
        memory,
        "Memory per row: solid stats(), dotted the process's, dashed the "
        "limit of 1.25 x its values + 36 bytes",
    )
    _legend(memory)
    pauses.set_yscale("log")
    pauses.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    pauses.set_ylabel("milliseconds")
    _title(
        pauses,
        "Longest lookup of 4,096 new ids: solid CPU time, dotted elapsed time",
    )
    return figure


def saving(records: Mapping[str, Record]) -> Figure:
    """Draws MB per second of saving and restoring, and of the baselines."""
    record = records["snapshot_benchmark"]
    lines = [line for line in record["lines"] if "MB" in line]
    figure, axes = _pairs(
        record,
        {
            f"{line['work'].split(',')[0]}; {line['baseline']}": [
                line["MB"] / line["seconds"],
                line["MB"] / line["baseline_seconds"],
            ]
            for line in lines
        },
        ("Lodestar", "baseline"),
        "MB of the file per second",
        f"Saving and restoring {lines[0]['work'].split(', ', 1)[1]}",
    )
    _legend(axes, loc="upper right", ncols=2)
    return figure


def reading(records: Mapping[str, Record]) -> Figure:
    """Draws GB per second of the readers, by format and threads."""
    record = records["reader_benchmark"]
    rates: dict[str, list[float]] = {}
    for line in record["lines"]:
        if "gigabytes_a_second" in line and " threads" in line["work"]:
            work, threads = line["work"].rsplit(", ", 1)
            pair = rates.setdefault(work, [0.0, 0.0])
            pair[threads == "2 threads"] = line["gigabytes_a_second"]
    figure, axes = _pairs(
        record,
        rates,
        ("1 thread", "2 threads"),
        "GB of the file per second",
        "Reading samples of 13 floats and 26 slots, from page cache",
        ".2f",
        _LIGHTER,
    )
    if not record["small"]:
        axes.axvline(
            1, color=_WANTED, ls="--", lw=1, label="target of Norm, Raw"
        )
    _legend(axes, loc="upper left", ncols=3)
    return figure


def _ratios(
    program: str, title: str, series: Mapping[str, str]
) -> Callable[[Mapping[str, Record]], Figure]:
    """Returns a function that draws a program's ratios and targets.

    Args:
        program: Name of the program.
        title: Title of the plot.
        series: Maps names of one or two series to a pattern in the titles of
            its lines. Lines that differ only in it share a row.
    """

    def draw(records: Mapping[str, Record]) -> Figure:
        record = records[program]
        rows: dict[str, dict[str, Record]] = {}
        for line in record["lines"]:
            if "ratio" in line:
                name = report_tables.title(line)
                name = name.replace("000000 ", "M ")
                one = next(x for x in series if re.search(series[x], name))
                name = re.sub(series[one], "", name)
                rows.setdefault(name, {})[one] = line
        figure, (axes,) = _figure(1.2 + 0.62 * len(rows), 1, record)
        _rows(axes, [name.replace("; ", "\n") for name in rows], 0.1)
        colors = dict(zip(series, (_OURS, _LIGHTER)))
        wanted, places = [], []
        for place, lines in enumerate(rows.values()):
            for i, (one, line) in enumerate(lines.items()):
                y = place + 0.23 * i + 0.05
                axes.plot([1, line["ratio"]], [y] * 2, color=_OTHERS, lw=1)
                axes.plot(line["ratio"], y, "o", color=colors[one], ms=5)
                # Outside the axes, where no marks are.
                axes.text(
                    1.01,
                    y,
                    _short(line["ratio"]),
                    transform=axes.get_yaxis_transform(),
                    va="center",
                    fontsize=_SMALL,
                )
                # Targets are for full sizes.
                if isinstance(line["wanted"], int | float):
                    wanted.append(line["wanted"])
                    places.append(y)
        for one, color in colors.items():
            axes.plot([], [], "o", color=color, ms=5, label=one)
        if not record["small"]:
            axes.plot(wanted, places, "|", color=_WANTED, ms=9, label="target")
        axes.axvline(1, color="#444444", lw=0.8)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(
            "baseline's time over Lodestar's;\nright of 1, Lodestar is faster"
        )
        _title(axes, title)
        _legend(axes, loc="upper right", ncols=3)
        return figure

    return draw


# For each plot: the program whose file it needs, and its function.
PLOTS: dict[str, tuple[str, Callable[[Mapping[str, Record]], Figure]]] = {
    "readme": ("peers_benchmark", peers),
    "results": ("results", results),
    "lookups": ("embedding_benchmark", lookups),
    "growth": ("growth_benchmark", growth),
    "saving": ("snapshot_benchmark", saving),
    "reading": ("reader_benchmark", reading),
    **{
        name: (program, _ratios(program, title, series))
        for name, program, title, series in (
            (
                "id_tables",
                "id_table_benchmark",
                "Id tables compared with TensorFlow's and Keras's",
                {"int64 keys": ",? int64", "strings": ", string"},
            ),
            (
                "sequences",
                "sequence_benchmark",
                "Sequence ops compared with compositions of TensorFlow's",
                {
                    "forward": "^(?!.* with gradient)",
                    "with gradient": " with gradient",
                },
            ),
        )
    },
}


def _round_layout(figure: Figure) -> None:
    """Rounds the places of the panels.

    The solver of the layout orders its variables by their addresses, so the last
    bits of its result differ between runs, and with them ids in the file.
    """
    figure.draw_without_rendering()
    boxes = [axes.get_position().bounds for axes in figure.axes]
    figure.set_layout_engine("none")
    for axes, box in zip(figure.axes, boxes, strict=True):
        axes.set_position([round(x, 5) for x in box])


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
            figure = draw(records)
            _round_layout(figure)
            # No date, so that the file depends on the figures alone.
            figure.savefig(path, metadata={"Date": None})
            written.append(path)
    return written
