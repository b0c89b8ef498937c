"""`zbroker bench`: quick rates and latencies of a running instance.

Publishes to topics below bench/ and reads them again; touches no other topic. What it publishes
stays in the log like everything else. Four measurements, one after the other: publishing as fast as
it goes, one message at a time until it is persisted, replay, and from publish to a live subscriber.

    zbroker bench tcp://127.0.0.1:9101
    zbroker bench tcp://127.0.0.1:9101 --messages 1000000 --size 1000 --publishers 4 --json

Exit code 0; 1 if a measurement failed; 130 after Ctrl-C, with what was measured until then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from zbroker.cli import progress, show
from zbroker.cli.bench.plan import PREFIX, STAMP_BYTES, BenchPlan
from zbroker.cli.group import EX_INTERRUPTED
from zbroker.cli.options import (
    ConnectionOptions,
    F,
    broker_of,
    connection_options,
    flag_option,
    url_argument,
    with_default,
)


def _number(
    name: str, default: int, maximum: int, what: str, *, minimum: int = 1
) -> Callable[[F], F]:
    return with_default(name, default, what, click.IntRange(minimum, maximum))


@click.command()
@url_argument
@_number("--messages", 100_000, 100_000_000, "To publish and to replay.")
@_number("--size", 100, 16 << 20, "Bytes of each message.", minimum=STAMP_BYTES)
@with_default("--batch/--single", True, "Publish lists of messages, or one message per call.")
@_number(
    "--publishers", 1, 64, "Clients that publish at the same time, in threads of this process."
)
@_number("--subscribers", 1, 64, "Clients that each read everything, likewise.")
@click.option(
    "--topic",
    help=f"Begins with {PREFIX}; a new one each time by default. Others are refused.",
)
@_number("--sync", 200, 1_000_000, "Messages whose latency is measured, one at a time.")
@flag_option("--json", "Answer in JSON with stable keys.", "in_json")
@connection_options
def bench(*, given: ConnectionOptions, url: str | None, in_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Measure rates and latencies of the broker at URL.

    Without URL it is the broker of the context. Figures are of this machine, and of what else it
    does: compare them only with figures taken the same way.

    Example: zbroker bench tcp://127.0.0.1:9101 --messages 1000000
    """
    from zbroker.cli.bench.run import BenchRun, surroundings  # the client library, when used

    broker = broker_of(given, url)
    plan = BenchPlan.of(**options)
    document: dict[str, Any] = {"plan": asdict(plan)}
    interrupted = False
    with progress.bar(rate="messages") as step:
        run = BenchRun(broker, plan, step)
        try:
            run.connect()
            document["machine"] = surroundings(broker)
            run.all()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            run.close()
    document |= {"results": run.results, "notes": run.notes, "interrupted": interrupted}
    show.answer(in_json, document, lambda: _tell(document))
    if interrupted:
        sys.exit(EX_INTERRUPTED)


def _tell(document: dict[str, Any]) -> None:
    show.facts(document.get("machine", {}) | document["plan"])
    for name, result in document["results"].items():
        numbers = " ".join(f"{key}={_shown(value)}" for key, value in result.items())
        click.echo(f"{name:15} {numbers}")
    for note in document["notes"]:
        show.warn(note)
    if document["interrupted"]:
        show.warn("interrupted: the missing values were not measured")


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
