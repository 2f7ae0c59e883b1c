"""Draws what growth_benchmark printed: bytes a row and the longest look-ups.

growth_plot.py growth.json > docs/growth.svg
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence

_WIDTH, _HEIGHT = 360, 240  # of a panel, without its margins
_LEFT, _TOP, _BETWEEN, _BOTTOM = 50, 30, 70, 90
_FIRST, _LAST = 1e5, 2e7  # rows
_COLORS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8a6d3b")


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def _line(points: Iterable[tuple[float, float]], style: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" {style}/>'


def _x(left: float, rows: float) -> float:
    share = math.log(rows / _FIRST) / math.log(_LAST / _FIRST)
    return left + _WIDTH * share


def _axes(
    left: float, title: str, ticks: Sequence[float], y: Callable[[float], float]
) -> list[str]:
    bottom = _TOP + _HEIGHT
    out = [_text(left + _WIDTH / 2, _TOP - 12, title)]
    for rows, name in (
        (1e5, "0.1M"),
        (1e6, "1M"),
        (5e6, "5M"),
        (2e7, "20M rows"),
    ):
        out.append(_text(_x(left, rows), bottom + 16, name))
    for tick in ticks:
        ends = [(left, y(tick)), (left + _WIDTH, y(tick))]
        out.append(_line(ends, 'stroke="#ddd"'))
        out.append(_text(left - 6, y(tick) + 4, f"{tick:g}", "end"))
    return out


def draw(tables: Sequence[dict]) -> str:
    """Returns the SVG of the benchmark's lines, each parsed from JSON."""
    top = max(t["limit_bytes"] for t in tables) * 1.1
    panels = (_LEFT, _LEFT + _WIDTH + _BETWEEN)

    def y_bytes(value: float) -> float:
        return _TOP + _HEIGHT * (1 - value / top)

    def y_time(value: float) -> float:
        return _TOP + _HEIGHT * (1 - math.log10(value / 0.1) / 3)

    out = _axes(panels[0], "bytes a row", range(0, int(top), 20), y_bytes)
    out += _axes(
        panels[1],
        "longest look-up of 4,096 new ids, ms",
        (0.1, 1, 10, 50, 100),
        y_time,
    )
    for color, table in zip(_COLORS, tables):
        points = table["points"]
        xs = [[_x(left, p["rows"]) for p in points] for left in panels]
        stroke = f'stroke="{color}" stroke-width="1.5"'
        for name, style in (
            ("stats_bytes", stroke),
            ("rss_bytes", f'{stroke} stroke-dasharray="2 3"'),
        ):
            ys = [y_bytes(p[name]) for p in points]
            out.append(_line(zip(xs[0], ys), style))
        limit = y_bytes(table["limit_bytes"])
        ends = [(panels[0], limit), (panels[0] + _WIDTH, limit)]
        out.append(_line(ends, f'stroke="{color}" stroke-dasharray="8 4"'))
        for name, style in (
            ("longest_ms", f'{stroke} stroke-dasharray="2 3"'),
            ("longest_of_processor_ms", stroke),
        ):
            ys = [y_time(p[name]) for p in points]
            out.append(_line(zip(xs[1], ys), style))
    bottom = _TOP + _HEIGHT + 42
    for i, (color, table) in enumerate(zip(_COLORS, tables)):
        x = _LEFT + i * 200
        ends = [(x, bottom - 4), (x + 20, bottom - 4)]
        out.append(_line(ends, f'stroke="{color}" stroke-width="3"'))
        name = f"dim {table['dim']}, {table['slots']} slots"
        out.append(_text(x + 26, bottom, name, "start"))
    for i, legend in enumerate(
        (
            "left: solid stats(), dotted the process's memory, dashed the limit",
            "right: solid the thread's processor time, dotted the time that "
            "passed",
        )
    ):
        out.append(_text(_LEFT, bottom + 20 * (i + 1), legend, "start"))
    width = panels[1] + _WIDTH + 50
    height = _TOP + _HEIGHT + _BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
            f'{height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *out,
            "</svg>",
        ]
    )


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(draw([json.loads(line) for line in file]))
