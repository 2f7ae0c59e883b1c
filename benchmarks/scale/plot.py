"""Draws the simulation's predictions of steps next to their measurements.

python -m benchmarks.scale.plot > docs/pictures/scale.svg
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.scale import simulation as scale

_WIDTH, _HEIGHT = 150, 200  # of a panel, without its margins
_LEFT, _TOP, _BETWEEN = 50, 40, 60
_PANELS = {
    "megabytes": "MB on the wire",
    "worker_ms": "ms of the worker’s CPU",
    "servers_ms": "ms of all servers’ CPUs",
    "step_ms": "ms until the next step",
}
_COLOR = {"predicted": "#1b6ca8", "measured": "#d1495b"}


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def _bar(x: float, y: float, name: str) -> str:
    # Predicted: a line as wide as a bar; measured: the bar.
    if name == "predicted":
        return (
            f'<rect x="{x - 18:.0f}" y="{y - 1.5:.1f}" width="36" height="3" '
            f'fill="{_COLOR[name]}"/>'
        )
    return (
        f'<rect x="{x - 12:.0f}" y="{y:.1f}" width="24" '
        f'height="{_TOP + _HEIGHT - y:.1f}" fill="{_COLOR[name]}" '
        'fill-opacity="0.45"/>'
    )


def _tick(top: float) -> float:
    """Returns the step between lines of an axis up to `top`: four to eight lines."""
    for power in (0.1, 1, 10, 100):
        for step in (1, 2, 5):
            if top / (step * power) <= 8:
                return step * power
    raise ValueError(f"{top} exceeds the largest axis.")


def _panel(
    left: float, title: str, pairs: Sequence[tuple[int, Mapping[str, float]]]
) -> list[str]:
    top = 1.15 * max(max(pair.values()) for _, pair in pairs)
    bottom = _TOP + _HEIGHT

    def y(value: float) -> float:
        return bottom - _HEIGHT * value / top

    out = [_text(left + _WIDTH / 2, _TOP - 14, title)]
    tick = _tick(top)
    for i in range(int(top / tick) + 1):
        line = f'x1="{left}" x2="{left + _WIDTH}" y1="{y(i * tick):.1f}"'
        out.append(f'<line {line} y2="{y(i * tick):.1f}" stroke="#ddd"/>')
        out.append(_text(left - 6, y(i * tick) + 4, f"{i * tick:g}", "end"))
    for i, (servers, pair) in enumerate(pairs):
        x = left + _WIDTH * (i + 0.5) / len(pairs)
        out += [_bar(x, y(pair[n]), n) for n in ("measured", "predicted")]
        out.append(_text(x, bottom + 18, f"{servers}"))
    return out


def draw(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Returns the SVG of the pairs that `held_against` returns."""
    out = []
    for i, (name, title) in enumerate(_PANELS.items()):
        left = _LEFT + i * (_WIDTH + _BETWEEN)
        out += _panel(left, title, [(p["servers"], p[name]) for p in pairs])
    width = _LEFT + len(_PANELS) * (_WIDTH + _BETWEEN) - 20
    y = _TOP + _HEIGHT + 50
    out.append(_text(_LEFT, y, "per step, by number of servers:", "start"))
    for x, name in ((_LEFT + 200, "predicted"), (_LEFT + 320, "measured")):
        size = 'height="3"' if name == "predicted" else 'height="12"'
        opacity = "1" if name == "predicted" else "0.45"
        top = y - 6 if name == "predicted" else y - 10
        out.append(
            f'<rect x="{x}" y="{top}" width="24" {size} '
            f'fill="{_COLOR[name]}" fill-opacity="{opacity}"/>'
        )
        out.append(_text(x + 30, y, name, "start"))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
            f'{y + 20}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{y + 20}" fill="white"/>',
            *out,
            "</svg>",
        ]
    )


if __name__ == "__main__":
    found = scale.read_lines()
    print(draw(scale.held_against(found, scale.fitted(found))))
