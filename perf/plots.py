"""Plots for the docs as SVG: bars of a metric by side, and latency by percentile.

Written as XML here: a plotting library would make files ten times as large that differ from run to
run. Text is dark, or light where the reader prefers dark pages: an image cannot see its page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree

from perf.comparison import Comparison, shown
from perf.latency_histogram import Point

WIDTH: Final = 720
NAME_WIDTH: Final = 170
VALUE_WIDTH: Final = 110
BAR: Final = 18
GAP: Final = 8
TITLE: Final = 30
HEIGHT: Final = 360  # of a plot of percentiles
LEFT, RIGHT, BOTTOM = 70, 150, 40
COLOURS: Final = (
    "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
    "#17becf",
)  # fmt: skip
PERCENTS: Final = (0.0, 90.0, 99.0, 99.9, 99.99)
STYLE: Final = (
    "svg { font-family: sans-serif; font-size: 12px; color: #24292f } "
    "@media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }"
)


def _drawing(height: float, title: str) -> ElementTree.Element:
    drawing = ElementTree.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", width=str(WIDTH), height=f"{height:g}",
        viewBox=f"0 0 {WIDTH} {height:g}", role="img", fill="currentColor",
    )  # fmt: skip
    ElementTree.SubElement(drawing, "title").text = title
    ElementTree.SubElement(drawing, "style").text = STYLE
    _text(drawing, 0, 16, title, weight="bold")
    return drawing


def _text(
    drawing: ElementTree.Element, x: float, y: float, text: str, anchor: str = "start",
    weight: str = "normal",
) -> None:  # fmt: skip
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "font-weight": weight}
    ElementTree.SubElement(drawing, "text", place).text = text


def _svg(drawing: ElementTree.Element) -> str:
    ElementTree.indent(drawing)
    return ElementTree.tostring(drawing, encoding="unicode") + "\n"


def bars(title: str, unit: str, values: Mapping[str, float]) -> str:
    """One bar per side, from 0."""
    drawing = _drawing(TITLE + len(values) * (BAR + GAP), f"{title} [{unit}]")
    most = max(values.values(), default=0.0) or 1.0
    for number, (name, value) in enumerate(values.items()):
        top = TITLE + number * (BAR + GAP)
        long = (WIDTH - NAME_WIDTH - VALUE_WIDTH) * value / most
        _text(drawing, NAME_WIDTH - 8, top + 13, name, "end")
        ElementTree.SubElement(
            drawing, "rect", x=str(NAME_WIDTH), y=str(top), width=f"{max(long, 1):.1f}",
            height=str(BAR), fill=COLOURS[number % len(COLOURS)],
        )  # fmt: skip
        _text(drawing, NAME_WIDTH + long + 6, top + 13, shown(value))
    return _svg(drawing)


def percentiles(title: str, curves: Mapping[str, Sequence[Point]]) -> str:
    """Latency over the percentile, both logarithmic: from 90 % to 99 % is as far as to 99.9 %."""
    drawing = _drawing(HEIGHT, f"{title} [ms]")
    points = [point for curve in curves.values() for point in curve if point.ms > 0]
    low = math.floor(math.log10(min((point.ms for point in points), default=0.1)))
    high = math.ceil(math.log10(max((point.ms for point in points), default=1.0)))
    high = max(high, low + 1)
    for power in range(low, high + 1):
        y = _y(10.0**power, low, high)
        _rule(drawing, LEFT, y, WIDTH - RIGHT, y)
        _text(drawing, LEFT - 6, y + 4, f"{10.0**power:g}", "end")
    for percent in PERCENTS:
        x = _x(percent)
        _rule(drawing, x, TITLE, x, HEIGHT - BOTTOM)
        _text(drawing, x, HEIGHT - BOTTOM + 18, f"{percent:g} %", "middle")
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = [(_x(point.percent), _y(point.ms, low, high)) for point in curve if point.ms > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
        ElementTree.SubElement(
            drawing, "polyline", {"points": path, "fill": "none", "stroke": colour,
                                  "stroke-width": "2"},
        )  # fmt: skip
        y = TITLE + 14 + number * 18
        ElementTree.SubElement(
            drawing, "rect", x=str(WIDTH - RIGHT + 14), y=str(y - 10), width="10", height="10",
            fill=colour,
        )  # fmt: skip
        _text(drawing, WIDTH - RIGHT + 30, y, name)
    return _svg(drawing)


def _x(percent: float) -> float:
    """0 % at the left; the last of PERCENTS and all beyond it at the right."""
    most = -math.log10(1 - PERCENTS[-1] / 100)
    left = max(1 - percent / 100, 10**-most)
    return LEFT + (WIDTH - LEFT - RIGHT) * -math.log10(left) / most


def _y(ms: float, low: int, high: int) -> float:
    share = (math.log10(ms) - low) / (high - low)
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TITLE) * share


def _rule(drawing: ElementTree.Element, x1: float, y1: float, x2: float, y2: float) -> None:
    ElementTree.SubElement(
        drawing, "line", {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}",
                          "y2": f"{y2:.1f}", "stroke": "currentColor", "stroke-opacity": "0.2"},
    )  # fmt: skip


def drawn(comparison: Comparison) -> dict[str, str]:
    """Every plot, by the name of its file."""
    found = {}
    for row in comparison.rows:
        cells = {side: cell for side, cell in row.cells.items() if side in comparison.sides}
        if len(cells) < 2:
            continue
        medians = {side: cell.median for side, cell in cells.items()}
        found[_file(str(row.metric))] = bars(str(row.metric), row.unit, medians)
        curves = {
            side: cell.histogram.curve()
            for side, cell in cells.items()
            if cell.histogram is not None
        }
        if curves:
            title = f"{row.metric.workload}, latency by percentile"
            found[_file(f"{row.metric.workload} percentiles")] = percentiles(title, curves)
    return found


def _file(title: str) -> str:
    """Lower case, with a hyphen between words."""
    words = "".join(each if each.isalnum() else " " for each in title.replace(",", "")).split()
    return "-".join(words).lower() + ".svg"
