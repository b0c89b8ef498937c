"""`zbroker sub`: read messages.

    zbroker sub tcp://127.0.0.1:9101 orders --since epoch --until now > orders.txt
    zbroker sub tcp://127.0.0.1:9101 'orders|trades' --regex --since -1h --json
    zbroker sub tcp://127.0.0.1:9101 orders --since '[-2h:-1h)' --filter '/price > 100' --rate 10X

Writes each payload and a line feed, or with --json one object per line: topic, bookmark, position,
time and data (text; as base64 under `data_base64` where it is not UTF-8); expires, key (likewise)
and headers (binary as {"base64": ...}) where it has them. A message of a topic that is not recorded
has neither bookmark nor position. Exit code 0 at the end of the range, at --limit, or when the
output is no longer read; 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

import zbroker
from zbroker.cli.completion import complete_topic
from zbroker.cli.group import interruptible
from zbroker.cli.options import (
    ConnectionOptions,
    connection_options,
    count_option,
    flag_option,
    topic_of,
    url_argument,
    with_default,
)
from zbroker.cli.show import extra_row
from zbroker.clock import SystemClock, to_datetime
from zbroker.wire.bodies import text_or_base64

if TYPE_CHECKING:
    from zbroker.client.subscriber.points import Range

_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)([smhd])")
_RANGE: Final = re.compile(r"([\[(])((?:point:)?[^:]*):((?:point:)?[^:]*)([\])])")
#: as the client has them; help must not wait for that to be imported
DELIVERY: Final = ("persisted", "fully_durable", "live")
CLOCKS: Final = ("replay", "log")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.command()
@url_argument
@click.argument("topic", metavar="TOPIC", required=False, shell_complete=complete_topic)
@click.option(
    "--since",
    help="epoch, now, a bookmark (after it), a UTC time YYYYmmddTHHMMSS, a vector, point:NAME, "
    "-1h, or a range of two of them such as '[-1h:now)'. Without --since and --until: from now on, "
    "unrecorded topics too.",
)
@click.option(
    "--until", help="now, a bookmark (with it), a time (without it), a vector, point:NAME, or -5m."
)
@count_option("--limit", "Stop after so many messages.")
@flag_option("--json", "One JSON object per line.", "as_json")
@flag_option("--regex", "TOPIC is an RE2 pattern that matches whole names.")
@click.option("--filter", help="Only messages whose content it is true for: '/price > 100'.")
@click.option("--select", help="Which fields are sent: '-/,+/a' is only /a.")
@click.option(
    "--rate", help="At most so much per second: 1000 (messages), 500KB, or 2X (of log time)."
)
@click.option("--rate-max-gap", help="The longest wait between two messages with --rate 2X: 10s.")
@click.option("--conflation", help="Per interval of time the newest message of each key: 1s.")
@click.option(
    "--conflation-key", multiple=True, help="A field of the key, /id; may be given several times."
)
@click.option(
    "--conflation-clock",
    type=click.Choice(CLOCKS),
    help="Intervals of the time in which it is replayed (without this option), or of log time.",
)
@with_default(
    "--delivery",
    "persisted",
    "What must have happened to a new message before it is sent.",
    click.Choice(DELIVERY),
)
@with_default(
    "--bookmark-not-found",
    "fail",
    "Where to start if the log does not hold the bookmark.",
    click.Choice(["fail", "epoch", "now"]),
)
@with_default("--bookmark-wait", "0s", "How long the bookmark may be not here yet.")
@connection_options
def sub(
    *,
    given: ConnectionOptions,
    url: str | None,
    topic: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - what is left is named as `Client.subscribe` names it
) -> None:
    """Write the messages of TOPIC of the broker at URL, old ones if asked, then as they come.

    Without URL it is the broker of the context.
    """
    broker, pattern = topic_of(given, url, topic)
    now = to_datetime(SystemClock().wall_ns())
    start, end = (point(text, now) if text is not None else None for text in (since, until))
    with (
        interruptible(),
        zbroker.connect(broker.url, **broker.options) as client,
        client.subscribe(pattern, since=start, until=end, **options) as subscription,
    ):
        write(subscription.batches(), sys.stdout.buffer, as_json=as_json)


def point(text: str, now: datetime) -> str | datetime | Range:
    """`-1h` and the like as a time before `now`; anything else is for the client to read."""
    range_ = _RANGE.fullmatch(text)
    if range_ is not None:
        begin, end = (moment(part, now) if part else None for part in range_.group(2, 3))
        return zbroker.Range(begin, end, range_[1] + range_[4])
    return moment(text, now)


def moment(text: str, now: datetime) -> str | datetime:
    """`point` for a text that is not a range."""
    back = ago(text)
    return text if back is None else now - back


def ago(text: str) -> timedelta | None:
    """How long ago `-1h` and the like are; None for another text."""
    match = _AGO.fullmatch(text)
    return timedelta(**{_UNITS[match[2]]: float(match[1])}) if match else None


def write(batches: Iterable[Iterable[Any]], out: BinaryIO, *, as_json: bool) -> None:
    """Writes messages until there are none; flushes after each batch."""
    line = as_object if as_json else as_line
    for batch in batches:
        out.write(b"".join(map(line, batch)))
        out.flush()


def as_line(message: Any) -> bytes:  # noqa: ANN401 - whatever has `data`
    """The payload and a line feed."""
    return bytes(message.data) + b"\n"


def as_object(message: Any) -> bytes:  # noqa: ANN401 - a message of the client library
    """One line of JSON."""
    return json_line(row_of(message))


def json_line(row: dict[str, Any]) -> bytes:
    """As `--json` writes it."""
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def row_of(message: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    """What `--json` shows of a message."""
    found: dict[str, Any] = {"topic": message.topic}
    if message.position:  # else it is not recorded
        found |= {"bookmark": message.bookmark, "position": message.position}
    found["time"] = message.time.isoformat()
    if message.expires is not None:
        found["expires"] = message.expires.isoformat()
    return found | extra_row(message.key, message.headers) | text_or_base64(message.data)
