"""`zbroker-admin binding`: which queues get the messages of which exchanges.

zbroker-admin --data-dir /var/lib/zbroker binding ls --exchange events
zbroker-admin binding add bills events --key 'order.*.paid'
zbroker-admin binding add eu offers --argument region=eu --argument x-match=any
zbroker-admin binding rm bills events --key 'order.*.paid'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click
from msgspec import DecodeError, json

from zbroker.admin.requests import ROWS_MAX
from zbroker.cli import show
from zbroker.cli.completion import complete_exchange, complete_queue
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import dry_run_option, limit_option, text_option
from zbroker.control.target import Target

COLUMNS: Final = show.columns("exchange:0 queue:0 key:0 arguments:1 instance:3 here:2")
_SCALAR: Final = json.Decoder(str | int | float | bool | None)
F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=AdminGroup)
def binding() -> None:
    """See which queues are bound to which exchanges; bind and unbind them."""


@binding.command()
@text_option("--exchange", "Only of this exchange.", shell_complete=complete_exchange)
@text_option("--queue", "Only of queues with this name.", shell_complete=complete_queue)
@limit_option(ROWS_MAX, ROWS_MAX)
def ls(target: Target, exchange: str, queue: str, limit: int) -> None:
    """List bindings, by exchange, queue and key.

    `instance` is the one whose local queue is bound, empty for a queue of several instances. With
    `here` no, that is another instance, and messages enter the queue there.

    Example: zbroker-admin binding ls --exchange events
    """
    found = target.ask("/bindings", {"exchange": exchange, "queue": queue, "limit": limit})
    empty = "no queue is bound like that" if exchange or queue else "no queue is bound"
    show.listing(target.as_json, found, COLUMNS, found["bindings"], empty, left_out(found))


def left_out(found: dict[str, Any]) -> list[str]:
    """A note, if an answer does not have all of them."""
    count = found["left_out"]
    return [f"{count} more; see binding ls --queue"] if count else []


def _binding_options(command: F) -> F:
    """What names a binding."""
    options = (
        click.argument("queue", shell_complete=complete_queue),
        click.argument("exchange", shell_complete=complete_exchange),
        text_option(
            "--key", "The routing key; of a topic exchange a pattern: 'order.*.paid', '#'."
        ),
        click.option(
            "--argument",
            "pairs",
            multiple=True,
            metavar="NAME=VALUE",
            help="A header that a headers exchange asks for, or x-match. Any number of times.",
        ),
        dry_run_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@binding.command()
@_binding_options
def add(
    target: Target, queue: str, exchange: str, key: str, pairs: tuple[str, ...], dry_run: bool
) -> None:
    """Bind QUEUE, which has bound = true, to EXCHANGE: messages enter it from now on.

    A VALUE is a number, true, false or null as JSON has it, else text; '"5"' in quotes is text,
    too.

    Example: zbroker-admin binding add bills events --key 'order.*.paid'
    """
    body = _body(queue, exchange, key, pairs, dry_run=dry_run)
    found = target.admin().tell("/bindings", body)
    done = "it can be bound" if dry_run else "bound"
    _report(target, found, done if found["changed"] else "it is bound already")


@binding.command()
@_binding_options
def rm(
    target: Target, queue: str, exchange: str, key: str, pairs: tuple[str, ...], dry_run: bool
) -> None:
    """Take a binding of QUEUE to EXCHANGE back. Messages that are in the queue stay there.

    Key and arguments are those with which it was bound, without an x-match that is "all".

    Example: zbroker-admin binding rm bills events --key 'order.*.paid'
    """
    body = _body(queue, exchange, key, pairs, dry_run=dry_run)
    found = target.admin().tell("/bindings/remove", body)
    _report(target, found, "it would be unbound" if dry_run else "unbound")


def _body(
    queue: str, exchange: str, key: str, pairs: Sequence[str], *, dry_run: bool
) -> dict[str, Any]:
    """Raises: UsageError."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--argument {pair!r}: write NAME=VALUE")
        if name in arguments:
            raise click.UsageError(f"--argument {pair!r}: {name} is given twice")
        arguments[name] = _value(value)
    return {
        "queue": queue, "exchange": exchange, "key": key, "arguments": arguments,
        "dry_run": dry_run,
    }  # fmt: skip


def _value(text: str) -> str | int | float | bool | None:
    """A scalar of JSON, or the text itself."""
    try:
        found: str | int | float | bool | None = _SCALAR.decode(text)
    except DecodeError:
        return text
    return found


def _report(target: Target, found: dict[str, Any], line: str) -> None:
    key = f" by {found['key']!r}" if found["key"] else ""
    end = " (dry run)" if found["dry_run"] else ""
    show.answer(
        target.as_json, found, f"{found['queue']}, {found['exchange']}{key}: {line}{end}"
    )  # fmt: skip
