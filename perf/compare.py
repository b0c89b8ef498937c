"""`scripts/perf --quick` and `scripts/perf --sides A,B,...`: rounds of several sides.

    scripts/perf --quick                            the last commit and this checkout, 2 minutes
    scripts/perf --sides main,. publish steady      two versions, some workloads
    scripts/perf --sides .,kafka-fsync,redis-fsync  peers, each with a sync before its ack
    python -m perf.brokers.install --cache DIR      Kafka and RabbitMQ, once
    python -m perf.page perf/results/sides.json     the section of the page about performance

A side is `.` (this checkout as it is), a commit or branch, or a kind of broker. The first side is
the one that the others are compared with. A peer that is not there is skipped, with the reason.
It measures; what a ratio means is for its reader.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from perf import rounds
from perf.brokers import PEER_KINDS
from perf.comparison import compared, processor_table, table
from perf.harness import check_disk
from perf.plots import drawn
from perf.round_plan import QUICK, WORKLOADS, Plan
from perf.sides import Side, UnknownSideError, cache_directory, defaults, prepare

RESULTS: Final = Path(__file__).parent / "results"
WIDTH: Final = 150  # of the table in a file or pipe


def main() -> None:
    """Exit code 0 when something was measured."""
    wanted = arguments()
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    directory, cache = Path(wanted.directory), cache_directory(wanted.cache)
    check_disk(directory)
    begun = time.monotonic()
    sides = _prepared(wanted.sides.split(",") if wanted.sides else defaults(), cache, console)
    plan = planned(wanted)
    with tempfile.TemporaryDirectory(prefix="zbroker-perf-", dir=directory) as place:
        content = rounds.measure(sides, plan, Path(place), cache, console.print)
    comparison = compared(content)
    console.print(table(comparison))
    console.print(processor_table(comparison))
    for failure in comparison.failed:
        console.print("not measured: " + ", ".join(failure), highlight=False)
    output = Path(wanted.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(content) + "\n")
    if wanted.plots:
        plots = Path(wanted.plots)
        plots.mkdir(parents=True, exist_ok=True)
        for name, svg in drawn(comparison).items():
            (plots / name).write_text(svg)
    console.print(
        f"{comparison.rounds} rounds in {time.monotonic() - begun:.0f} s; other programs took "
        f"{comparison.others_percent:.0f} % of the machine; all samples: {output.name}"
    )


def _prepared(names: list[str], cache: Path, console: Console) -> list[Side]:
    """The sides that can be measured. Raises: SystemExit, if there is none."""
    sides = []
    for name in names:
        try:
            sides.append(prepare(name, cache))
        except UnknownSideError as error:
            console.print(f"not measured: {error}", highlight=False)
    if not sides:
        raise SystemExit("nothing to measure")
    return sides


def planned(wanted: Any) -> Plan:
    """The quick plan or the whole one, with what the command line says otherwise."""
    plan = QUICK if wanted.quick else Plan()
    changed: dict[str, Any] = {"rounds": wanted.rounds, "messages": wanted.messages}
    changed["workloads"] = tuple(wanted.workloads) or None
    return replace(plan, **{name: value for name, value in changed.items() if value is not None})


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """What is wanted, from the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/perf",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    add("--quick", action="store_true", help="short turns, without queue and fanout")
    add("--sides", help=f"with commas: ., commits, {', '.join(PEER_KINDS)}")
    add("--rounds", type=int, help=f"default {Plan().rounds}")
    add("--messages", type=int, help="in a turn, fewer for slow brokers")
    add("--directory", default=tempfile.gettempdir(), help="on the disk to measure")
    add("--cache", help="for worktrees, environments and peers; default below ~/.cache")
    add("--output", default=str(RESULTS / "sides.json"), help="result file, default sides.json")
    add("--plots", help="a directory for plots as SVG")
    wanted = parser.parse_args(given)
    unknown = [name for name in wanted.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    return wanted


if __name__ == "__main__":
    main()
