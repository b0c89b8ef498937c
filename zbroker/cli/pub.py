"""`zbroker pub`: publish lines.

    echo '{"id": 1}' | zbroker pub tcp://127.0.0.1:9101 orders
    zbroker pub tcp://127.0.0.1:9101 orders --file day.jsonl --rate 1000
    zbroker pub --context trading orders < day.jsonl

Each line is one message, without its line feed. Exit code 0 once all of them are persisted; 1 if
the broker refused one, or did not confirm all in time. Ctrl-C ends the input: lines already read
are persisted, and the exit code is 130.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import BinaryIO, Final, Protocol

import click

import zbroker
from zbroker.cli.completion import complete_topic
from zbroker.cli.group import EX_INTERRUPTED
from zbroker.cli.options import (
    ConnectionOptions,
    connection_options,
    topic_of,
    url_argument,
    with_default,
)

CONFIRM_S: Final = 30.0
_SLEEP_MIN_S: Final = 0.001  # shorter sleeps take longer than they say


class MessageSender(Protocol):
    """What `send` needs of a client."""

    def publish(self, topic: str, data: bytes) -> object:
        """Queues one message."""
        ...


class Throttle:
    """Lets a rate of messages pass: `wait(sent)` returns when the next one is due."""

    def __init__(
        self,
        rate: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._began = now()

    def wait(self, sent: int) -> None:
        """Returns when the message after `sent` others is due."""
        ahead_s = self._began + sent / self._rate - self._now()
        if ahead_s >= _SLEEP_MIN_S:
            self._sleep(ahead_s)


class InputPosition:
    """How far the input was read."""

    messages = 0
    bytes = 0
    interrupted = False


@click.command()
@url_argument
@click.argument("topic", metavar="TOPIC", required=False, shell_complete=complete_topic)
@click.option("--file", type=click.File("rb"), default="-", help="Read here instead of stdin.")
@click.option("--count", type=click.IntRange(min=0), help="Stop after so many lines.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Lines per second.")
@click.option("--name", help="The publisher's name; a new one each time by default.")
@with_default(
    "--timeout",
    CONFIRM_S,
    "Seconds to wait at the end until all is persisted.",
    click.FloatRange(min=0),
)
@connection_options
def pub(  # noqa: PLR0913 - click passes each option by itself
    *,
    given: ConnectionOptions,
    url: str | None,
    topic: str | None,
    file: BinaryIO,
    count: int | None,
    rate: float | None,
    name: str | None,
    timeout: float,
) -> None:
    """Publish each line of stdin to TOPIC of the broker at URL; end when all is persisted.

    Without URL it is the broker of the context.
    """
    broker, name_of_topic = topic_of(given, url, topic)
    began = time.monotonic()
    with zbroker.connect(broker.url, name, **broker.options) as client:
        pace = Throttle(rate) if rate is not None else None
        sent = send(client, name_of_topic, islice(file, count), pace)
        ok = False
        try:
            client.flush(timeout)
            ok = True
        finally:
            took_s = time.monotonic() - began
            click.echo(summary(sent, took_s, client.unpersisted, ok), err=True)
    if sent.interrupted:
        sys.exit(EX_INTERRUPTED)


def send(
    client: MessageSender, topic: str, lines: Iterable[bytes], pace: Throttle | None = None
) -> InputPosition:
    """Queues each line as it comes; Ctrl-C ends the input."""
    sent = InputPosition()
    try:
        for line in lines:
            if pace is not None:
                pace.wait(sent.messages)
            data = line.removesuffix(b"\n")
            client.publish(topic, data)
            sent.messages += 1
            sent.bytes += len(data)
    except KeyboardInterrupt:
        sent.interrupted = True
    return sent


def summary(sent: InputPosition, took_s: float, unconfirmed: int, ok: bool) -> str:
    """One line for the end of a run."""
    if ok:
        end = "all persisted"
    else:
        end = f"{unconfirmed} of them not confirmed" if unconfirmed else "some of them refused"
    per_s = sent.messages / took_s if took_s > 0 else 0.0
    return (
        f"published {sent.messages} messages, {sent.bytes} bytes "
        f"in {took_s:.2f} s ({per_s:,.0f}/s), {end}"
    )
