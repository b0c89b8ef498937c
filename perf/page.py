"""The page about performance, from result files of `scripts/perf --sides`.

    python -m perf.page perf/results/sides.json                     prints the section
    python -m perf.page perf/results/sides.json --section "Other brokers" --plots docs/images

With --section that section of docs/reference/performance.md is replaced. Nobody writes its figures
by hand: the date, the machine and the versions are those of the result file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from perf.comparison import (
    MACHINE,
    Comparison,
    Row,
    compared,
    processor_cell,
    shown,
    shown_ratio,
    with_processor_time,
)
from perf.plots import drawn
from perf.sides import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "performance.md"
QUIET_PERCENT: Final = 10.0  # of the machine that others may take before the page says so
PLOTTED: Final = re.compile(r"publish-publish\.svg|steady-.*-percentiles\.svg")  # on the page


def main() -> None:
    """Prints the section, or puts it into the page."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", help="a result file")
    parser.add_argument("--section", help="the heading that it gets on the page")
    parser.add_argument("--plots", help="a directory for the plots, as SVG")
    wanted = parser.parse_args()
    content = json.loads(Path(wanted.results).read_text())
    pictures = write_plots(compared(content), Path(wanted.plots)) if wanted.plots else []
    text = section(content, pictures)
    if wanted.section is None:
        print(text)
    else:
        PAGE.write_text(replaced(PAGE.read_text(), wanted.section, text))


def write_plots(comparison: Comparison, directory: Path) -> list[tuple[str, str]]:
    """Writes the plots of the page. Returns: title and place of each, relative to it."""
    directory.mkdir(parents=True, exist_ok=True)
    pictures = []
    for name, svg in drawn(comparison).items():
        if PLOTTED.fullmatch(name):
            (directory / name).write_text(svg)
            place = os.path.relpath(directory.resolve() / name, PAGE.parent)
            pictures.append((name.removesuffix(".svg").replace("-", " "), place))
    return pictures


def replaced(page: str, heading: str, text: str) -> str:
    """The page with another text below a heading; a heading that is not there comes last."""
    body = f"## {heading}\n\n{text.strip()}\n"
    found = re.search(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    if found is None:
        return f"{page.rstrip()}\n\n{body}"
    rest = page[found.end() :]
    return page[: found.start()] + body + (f"\n{rest}" if rest else "")


def section(content: dict[str, Any], pictures: list[tuple[str, str]]) -> str:
    """The tables of a result file, with what its figures depend on."""
    comparison = compared(content)
    parts = [
        *about(content, comparison),
        "\n".join(figures(comparison, content["sides"])),
        "\n".join(processor(comparison)),
        *(f"![{title}]({place})" for title, place in pictures),
        "\n".join(
            f"- not measured: {side}, {workload}, {without_places(reason)}"
            for side, workload, reason in comparison.failed
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def without_places(reason: str) -> str:
    """One line that names no directory of the machine."""
    return re.sub(r"/(?:[\w.+-]+/)+", "", " ".join(reason.split()))


def about(content: dict[str, Any], comparison: Comparison) -> Iterator[str]:
    """Date, machine, versions, and how the rounds went."""
    found, plan = content["about"], content["plan"]
    yield (
        f"Measured on {found['date']}: {found['machine']}, {found['cpus']} processors, "
        f"{found['memory_gb']} GB of memory, {found['file_system']}, kernel {found['kernel']}, "
        f"CPython {found['python']}, pyzmq {found['pyzmq']} (libzmq {found['libzmq']})."
    )
    versions = (
        f"{side} ({', '.join(f'{name} {version}' for name, version in each.items())})"
        for side, each in found["versions"].items()
    )
    yield "Sides: " + "; ".join(versions) + "."
    rounds, base = comparison.rounds, comparison.sides[0]
    text = (
        f"Medians of {rounds} rounds, one broker at a time, the order changes with the round; "
        f"{plan['messages']:,} messages of 100 bytes, fewer for slow brokers. A ratio is the "
        f"median of the ratios within the rounds, with its 95 % bootstrap interval; above 1 is "
        f"better than {base}, for times as well. Latency at a fixed rate counts from when a "
        f"message was due, so that a stall counts for all messages that it held up."
    )
    if comparison.others_percent > QUIET_PERCENT:
        percent = comparison.others_percent
        text += f" Other programs took {percent:.0f} % of the machine meanwhile."
    yield text


def figures(comparison: Comparison, sides: dict[str, dict[str, str]]) -> Iterator[str]:
    """One line per metric."""
    names = comparison.sides
    yield "| | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    meant = (sides[name].get("acknowledged", "") for name in names)
    yield "| an acknowledgement means | " + " | ".join(meant) + " |"
    for row in comparison.rows:
        if MACHINE in row.cells:
            value = shown(row.cells[MACHINE].median)
            yield f"| {row.metric}, {row.unit} | {value} |" + " |" * (len(names) - 1)
        else:
            cells = (_cell(row, names[0], name) for name in names)
            yield f"| {row.metric}, {row.unit} | " + " | ".join(cells) + " |"


def _cell(row: Row, base: str, side: str) -> str:
    if side not in row.cells:
        return "-"
    median = shown(row.cells[side].median)
    ratio = shown_ratio(row.ratio(base, side)) if side != base else ""
    return f"{median}; {ratio}" if ratio else median


def processor(comparison: Comparison) -> Iterator[str]:
    """Processor time for each message."""
    names = comparison.sides
    yield "| us of processor time for each message, broker + clients | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for row in with_processor_time(comparison):
        cells = []
        for name in names:
            ratio = shown_ratio(row.processor_ratio(names[0], name)) if name != names[0] else ""
            cells.append("; ".join(filter(None, (processor_cell(row, name), ratio))))
        yield f"| {row.metric} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
