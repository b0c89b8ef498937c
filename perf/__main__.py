"""`python -m perf [WORKLOAD...]`: runs workloads, prints the table, writes the result file."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from perf import (
    curve,
    exchanges,
    fanout,
    handwritten,
    index,
    latency,
    life,
    pacing,
    publish,
    queues,
    reading,
    replicated_queues,
    replication,
    skipping,
    spark,
    staged,
    start,
    stores,
    topics,
    transactions,
)
from perf.harness import PEERS, Result, Setup, check_disk, environment

WORKLOADS: Final[dict[str, Callable[[Setup], list[Result]]]] = {
    "publish": publish.throughput,
    "latency": publish.latency,
    "stores": stores.kept,
    "curve": curve.cost,
    "live": reading.live,
    "replay": reading.replay,
    "handwritten": handwritten.one_message_per_send,
    "topics": topics.interleaved,
    "skipping": skipping.scans,
    "fanout": fanout.fan_out,
    "pacing": pacing.rates,
    "first": latency.first_messages,
    "beside": latency.beside_replay,
    "start": start.ready,
    "life": life.kept,
    "index": index.rebuild,
    "queues": queues.everything,
    "replication": replication.everything,
    "replicated-queues": replicated_queues.everything,
    "spark": spark.pipeline,
    "staged": staged.beside,
    "exchanges": exchanges.everything,
    "transactions": transactions.everything,
}
WIDTH: Final = 150  # of the table in a file or pipe
LATEST: Final = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    """Exit code 0 when everything was measured; targets are judged by who reads the table."""
    wanted = arguments()
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    directory = Path(wanted.directory)
    console.print(
        f"file system {check_disk(directory)}, durability disk (fdatasync before every ack)"
    )
    tell = console.print if console.is_terminal else lambda _: None
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="zbroker-perf-", dir=directory) as place:
        setup = Setup(Path(place), wanted.rounds, wanted.messages, tell=tell)
        about = environment(setup.directory)
        for name in wanted.workloads or WORKLOADS:
            results += WORKLOADS[name](setup)
    console.print(table(results))
    for result in results:
        if not result.notes:
            continue
        rows = ", ".join(
            f"{key.replace('_', ' ')} {shown(value)}" for key, value in result.notes.items()
        )
        console.print(f"{result.name}: {rows}", highlight=False)
    missing = [peer for peer in PEERS if peer not in setup.measured]
    for peer in missing:
        console.print(f"not measured: {peer}")
    save(
        Path(wanted.output),
        results,
        missing,
        {**about, "rounds": wanted.rounds, "messages": wanted.messages},
    )


def shown(value: object) -> str:
    """A note as people read it."""
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {shown(item)}" for key, item in value.items()) + ")"
    if isinstance(value, str):
        return value
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def arguments() -> argparse.Namespace:
    """What is wanted, from the command line."""
    parser = argparse.ArgumentParser(prog="scripts/perf", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="per round, default 1,000,000"
    )
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="on the disk to measure")
    parser.add_argument("--output", default=str(LATEST), help=f"result file, default {LATEST.name}")
    wanted = parser.parse_args()
    unknown = [name for name in wanted.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    return wanted


def table(results: list[Result]) -> Table:
    """One line per result."""
    least, most = (pick(len(result.ours) for result in results) for pick in (min, max))
    rounds = f"{most} rounds" if least == most else f"{least} to {most} rounds"
    lines = Table(title=f"medians of {rounds}; share: of the limit, measured in the same run")
    for column in ("workload", "zbroker", "limit", "", "share", "target"):
        lines.add_column(
            column, justify="right" if column in ("zbroker", "limit", "share") else "left"
        )
    for result in results:
        ours, limit = statistics.median(result.ours), statistics.median(result.limit)
        lines.add_row(
            result.name, f"{ours:,.0f} {result.unit}", f"{limit:,.0f}", result.limit_name,
            f"{result.ratio:.0%}", result.target,
        )  # fmt: skip
    return lines


def save(path: Path, results: list[Result], missing: list[str], about: dict[str, object]) -> None:
    """The result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "about": about,
        "results": [result.as_json() for result in results],
        "not_measured": missing,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
