"""`zbroker consume`: take messages from a queue.

    zbroker consume tcp://127.0.0.1:9101 work --limit 10
    zbroker consume tcp://127.0.0.1:9101 work --ack --json >> done.jsonl
    zbroker consume tcp://127.0.0.1:9101 audit --since epoch --selector '/trade_id = 7' --limit 1

Writes each payload and a line feed, or with --json one object per line: as `zbroker sub` does, with
deliveries and redelivered; acked, where the queue is a replayable one. Without --ack all of them
go back to the queue at the end, and no more come than its backlog allows; with it each is done once
it was written. Exit code 0 at --limit, after --wait, at the end of the range, or when the output
is no longer read; 130 after Ctrl-C.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

import zbroker
from zbroker.cli.group import interruptible
from zbroker.cli.options import (
    ConnectionOptions,
    connection_options,
    count_option,
    flag_option,
    topic_of,
    url_argument,
)
from zbroker.cli.sub import as_line, json_line, moment, row_of
from zbroker.clock import SystemClock, to_datetime

if TYPE_CHECKING:
    from zbroker.client.consumer.consumer import Consumer

BATCH: Final = 1_000  # messages that are written and acked together at most
FLUSH_S: Final = 30.0


@click.command()
@url_argument
@click.argument("queue", metavar="QUEUE", required=False)
@flag_option("--ack", "They are done once they were written.")
@count_option("--limit", "Stop after so many messages.")
@click.option(
    "--wait", type=click.FloatRange(min=0), help="Stop when none came for so many seconds."
)
@count_option("--backlog", "Hold at most so many. Default: the queue's.")
@flag_option("--json", "One JSON object per line.", "as_json")
@click.option("--filter", help="Only messages whose content it is true for: '/price > 100'.")
@click.option(
    "--since",
    help="For a replayable queue: epoch, now, a bookmark (after it), a UTC time YYYYmmddTHHMMSS, "
    "-1h, or point:NAME.",
)
@click.option("--selector", help="Likewise: begin at the first message that it is true for.")
@click.option("--until", help="Likewise: a bookmark (with it), a time, now, or point:NAME.")
@click.option(
    "--bookmark-not-found",
    type=click.Choice(["fail", "epoch", "now"]),
    default="fail",
    help="Likewise: where to begin if the queue does not have what --since asks for any more.",
)
@connection_options
def consume(  # noqa: PLR0913 - every option by its name
    *,
    given: ConnectionOptions,
    url: str | None,
    queue: str | None,
    ack: bool,
    limit: int | None,
    wait: float | None,
    as_json: bool,
    since: str | None,
    until: str | None,
    **options: Any,  # noqa: ANN401 - what is left is named as `Client.consume` names it
) -> None:
    """Take messages from QUEUE of the broker at URL, and write them.

    Without --ack they go back to it at the end. Without URL it is the broker of the context.
    """
    broker, name = topic_of(given, url, queue, "QUEUE")
    now = to_datetime(SystemClock().wall_ns())
    start, end = (moment(text, now) if text is not None else None for text in (since, until))
    if not ack and limit is not None and options["backlog"] is None:
        options["backlog"] = limit  # others shall have what is not written
    with (
        interruptible(),
        zbroker.connect(broker.url, **broker.options) as client,
        client.consume(name, since=start, until=end, **options) as consumer,
    ):
        write(consumer, sys.stdout.buffer, (limit, wait), ack=ack, as_json=as_json)


def write(
    consumer: Consumer,
    out: BinaryIO,
    stop: tuple[int | None, float | None],
    *,
    ack: bool,
    as_json: bool,
) -> None:
    """Writes messages until there are none; each is acked after it was written.

    stop: after so many messages, and when none came for so many seconds.
    """
    line = as_object if as_json else as_line
    left, wait = stop
    while left != 0:
        messages = consumer.fetch(BATCH if left is None else min(left, BATCH), wait)
        if not messages:
            break
        out.write(b"".join(map(line, messages)))
        out.flush()
        if ack:
            consumer.ack(messages)
        if left is not None:
            left -= len(messages)
    if ack:
        consumer.flush(FLUSH_S)


def as_object(message: Any) -> bytes:  # noqa: ANN401 - a message of the client library
    """One line of JSON."""
    found = row_of(message)
    found |= {"deliveries": message.deliveries, "redelivered": message.redelivered}
    for flag in ("barrier", "acked"):
        if getattr(message, flag):
            found[flag] = True
    return json_line(found)
