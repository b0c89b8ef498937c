"""`zbroker sub`: read messages.

    zbroker sub tcp://127.0.0.1:9101 orders --since epoch --until now > orders.txt
    zbroker sub tcp://127.0.0.1:9101 'orders|trades' --regex --since -1h --json

Writes each payload and a line feed, or with --json one object per line: topic, bookmark, position,
time and data (text; as base64 under `data_base64` where it is not UTF-8). A message of a topic that
is not recorded has neither bookmark nor position. Exit code 0 at the end of
the range, at --limit, or when nobody reads the output any more; 130 after Ctrl-C.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, BinaryIO, Final

import click

import zbroker
from zbroker.clock import SystemClock, to_datetime

EX_INTERRUPTED: Final = 130  # as shells say it of a program that Ctrl-C ended
_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@click.command()
@click.argument("url")
@click.argument("topic")
@click.option(
    "--since",
    help="epoch, now, a bookmark (behind it), a UTC time YYYYmmddTHHMMSS, a vector, or -1h. "
    "Without --since and --until: from now on, unrecorded topics too.",
)
@click.option("--until", help="now, a bookmark (with it), a time (without it), a vector, or -5m.")
@click.option("--limit", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--regex", is_flag=True, help="TOPIC is an RE2 pattern that matches whole names.")
def sub(  # noqa: PLR0913 - click passes each option by itself
    url: str,
    topic: str,
    since: str | None,
    until: str | None,
    limit: int | None,
    as_json: bool,
    regex: bool,
) -> None:
    """Write the messages of TOPIC of the broker at URL, old ones if asked, then as they come."""
    now = to_datetime(SystemClock().wall_ns())
    start, end = (point(text, now) if text is not None else None for text in (since, until))
    try:
        with (
            zbroker.connect(url) as client,
            client.subscribe(topic, since=start, until=end, regex=regex) as subscription,
        ):
            batches = subscription.batches()
            write(batches, sys.stdout.buffer, limit, as_json=as_json)
    except KeyboardInterrupt:
        sys.exit(EX_INTERRUPTED)
    except BrokenPipeError:
        _hush()


def point(text: str, now: datetime) -> str | datetime:
    """`-1h` and the like as a time before `now`; anything else is for the client to read."""
    match = _AGO.fullmatch(text)
    if match is None:
        return text
    return now - timedelta(**{_UNITS[match[2]]: float(match[1])})


def write(batches: Iterable[list[Any]], out: BinaryIO, limit: int | None, *, as_json: bool) -> None:
    """Writes messages until there are none or `limit` is reached; flushes behind each batch."""
    line = as_object if as_json else as_line
    left = limit
    for batch in batches:
        taken = batch if left is None else list(islice(batch, left))
        out.write(b"".join(map(line, taken)))
        out.flush()
        if left is not None:
            left -= len(taken)
            if left <= 0:
                return


def as_line(message: Any) -> bytes:  # noqa: ANN401 - whatever has `data`
    """The payload and a line feed."""
    return bytes(message.data) + b"\n"


def as_object(message: Any) -> bytes:  # noqa: ANN401 - a message of the client library
    """One line of JSON."""
    found: dict[str, Any] = {
        "topic": message.topic,
        "bookmark": message.bookmark,
        "position": message.position,
        "time": message.time.isoformat(),
    }
    if not message.position:  # it is not recorded
        del found["bookmark"], found["position"]
    try:
        found["data"] = message.data.decode()
    except UnicodeDecodeError:
        found["data_base64"] = base64.b64encode(message.data).decode()
    return json.dumps(found, ensure_ascii=False).encode() + b"\n"


def _hush() -> None:
    """Keeps Python from complaining at its end about the output that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
