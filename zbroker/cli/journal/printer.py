"""How messages are printed: a line each, as JSON or for a person, payloads by their type.

The type is the one that [[record]] of the config gives a topic.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

import click
import msgspec

from zbroker import formats
from zbroker.cli import show
from zbroker.cli.group import EX_ERROR
from zbroker.cli.journal.rows import MessageRow, control_row, message_row
from zbroker.clock import format_time
from zbroker.control.target import Target
from zbroker.errors import ClientError
from zbroker.log.format import Batch
from zbroker.log.reader import Gap
from zbroker.recording import Recording
from zbroker.topics import TopicPattern
from zbroker.wire.bodies import text_or_base64

CHUNK: Final = 1_000  # lines that are printed at once
_READABLE: Final = frozenset({"auto", "json", "binary"})  # text or base64 says all there is
_TEXTS: Final = frozenset({"auto", "json", "nvfix", "fix", "xml"})  # bytes that people write

_encode: Final = msgspec.json.Encoder().encode


class PayloadRenderer:
    """Rows and lines of messages. An instance that is known by its URL only has type "auto"."""

    def __init__(self, target: Target) -> None:
        self.type_of = Recording(() if target.url else target.config().record).type_of

    def row(self, message: MessageRow | Batch) -> dict[str, Any]:
        """A message with stable keys; `value` is the payload by its type where that says more.

        A batch is shown as the control record that it is.
        """
        if isinstance(message, Batch):
            return control_row(message)
        row = message_row(message)
        type_ = self.type_of(message.topic)
        if type_ not in _READABLE:
            row["value"] = formats.show(type_, message.data)
        return row

    def line(self, message: MessageRow) -> bytes:
        """A message for a person: position, time, topic, payload."""
        head = f"{message.position} {format_time(message.time_ns)} {message.topic} "
        return head.encode() + self.text(message) + b"\n"

    def text(self, message: MessageRow) -> bytes:
        """A payload in one line. Text is shown as it was published: grep looks in that."""
        type_, data = self.type_of(message.topic), bytes(message.data)
        if type_ in _TEXTS and "data" in text_or_base64(data):
            return data.replace(b"\n", b"\\n")
        return _encode(formats.show(type_, data))


def whole(pattern: str) -> Callable[[str], bool]:
    """What matches whole topic names. Raises: click.UsageError.

    A plain name is a pattern of itself, whatever RE2 would make of its dots.
    """
    try:
        matches = TopicPattern(pattern)
    except ClientError as error:
        raise click.UsageError(error.reason) from None
    return lambda topic: topic == pattern or matches(topic)


def write_messages(target: Target, messages: Iterable[MessageRow]) -> None:
    """A line per message."""
    payloads = PayloadRenderer(target)
    if target.as_json:
        write(json_lines(map(payloads.row, messages)))
    else:
        write(map(payloads.line, messages))


def write(made: Iterable[bytes], limit: int | None = None) -> None:
    """At most `limit` lines to stdout, many at once, but each at once on a terminal."""
    most = 1 if show.on_terminal() else CHUNK
    lines = islice(made, limit)
    while chunk := b"".join(islice(lines, most)):
        click.echo(chunk, nl=False)


def json_lines(rows: Iterable[dict[str, Any]]) -> Iterable[bytes]:
    return (_encode(row) + b"\n" for row in rows)


def end_with_gaps(gaps: Sequence[Gap]) -> None:
    """Says on stderr what could not be read, and exits with 1 if there is such a thing."""
    if not gaps:
        return
    for gap in gaps[:10]:
        show.warn(f"positions {gap.first} to {gap.end - 1} could not be read: {gap.why}")
    show.warn(f"{len(gaps)} ranges could not be read; `journal verify` shows what is damaged")
    sys.exit(EX_ERROR)
