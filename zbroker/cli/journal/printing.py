"""How messages are printed: a line each, as JSON or for a person; and what damage means."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import click
import msgspec

from zbroker.cli import show
from zbroker.cli.group import EX_ERROR
from zbroker.cli.journal.payloads import PayloadRenderer
from zbroker.cli.journal.rows import MessageRow
from zbroker.control.target import Target
from zbroker.log.reader import Gap

CHUNK: Final = 1_000  # lines that are printed at once

_encode: Final = msgspec.json.Encoder().encode


def lines(target: Target, messages: Iterable[MessageRow], *, in_json: bool) -> None:
    """A line per message."""
    payloads = PayloadRenderer(target)
    if in_json:
        write(json_lines(map(payloads.row, messages)))
    else:
        write(payloads.line(message) for message in messages)


def write(made: Iterable[bytes], limit: int | None = None) -> None:
    """At most `limit` lines to stdout, many at once, but each at once on a terminal."""
    most = 1 if show.on_terminal() else CHUNK
    chunk: list[bytes] = []
    for line in islice(made, limit):
        chunk.append(line)
        if len(chunk) >= most:
            click.echo(b"".join(chunk), nl=False)
            chunk.clear()
    if chunk:
        click.echo(b"".join(chunk), nl=False)


def json_lines(rows: Iterable[dict[str, Any]]) -> Iterable[bytes]:
    return (_encode(row) + b"\n" for row in rows)


def number(count: int, *, in_json: bool) -> None:
    """Only how many."""
    if in_json:
        show.as_json({"count": count})
    else:
        click.echo(count)


def end_with_gaps(gaps: Sequence[Gap]) -> None:
    """Says on stderr what could not be read, and exits with 1 if there is such a thing."""
    if not gaps:
        return
    for gap in gaps[:10]:
        show.warn(f"positions {gap.first} to {gap.end - 1} could not be read: {gap.why}")
    show.warn(f"{len(gaps)} ranges could not be read; `journal verify` shows what is damaged")
    sys.exit(EX_ERROR)
