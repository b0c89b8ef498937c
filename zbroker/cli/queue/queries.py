"""`zbroker-admin queue ls | info | browse | explain`: looks at queues; takes and changes nothing.

zbroker-admin --data-dir /var/lib/zbroker queue ls
zbroker-admin queue browse work --state leased --limit 20
zbroker-admin --json queue browse work --filter '/urgency > 3' --data
zbroker-admin queue explain work --bookmark '1683212431|17|'
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_queue
from zbroker.cli.group import AdminCommand
from zbroker.cli.options import POSITION, flag_option, limit_option, text_option
from zbroker.control.target import Target
from zbroker.limits import U63_MAX

BROWSED_MAX: Final = 1_000  # of one answer of the admin

COLUMNS: Final = show.columns(
    "name:0 kind:4 topic:2 state depth:0 ready:3 leased:3 delayed:5 elsewhere:5 oldest_s:3 "
    "consumers active:5 full:5 entered_s:6 delivered_s:6 acked_s:4 dead bytes:2",
    sizes="bytes",
)
CONSUMERS: Final = show.columns(
    "client sid address backlog held credit delivered acked next_end_ms filter gone active",
    sizes="credit",
)
MESSAGES: Final = show.columns(
    "position:0 bookmark:5 topic time:3 size:2 state:0 deliveries failures:3 owner:2 due_ms:4",
    sizes="size",
)
OWNERS: Final = show.columns("name instance here up depth first since since_s:3")
_PAYLOADS: Final = show.columns("data:0 data_base64:0")
_SIZES: Final = ("bytes", "memory_bytes")
_TABLES: Final = ("definition", "rates", "owners")  # of a queue's document

name_argument = click.argument("name", shell_complete=complete_queue)


@click.command(cls=AdminCommand)
def ls(target: Target) -> None:
    """List queues, with what each of them holds.

    `depth` is all that a queue holds; `ready` of it could be delivered now, and `elsewhere` belongs
    to other instances, which offer it. `bytes` are those of
    the log that is kept for it. Rates are means of the last seconds; `dead` counts dead letters
    since the queues process started. `active` is the consumer that gets the messages, where it is
    one alone. A queue that is `full` refuses what is published, as its `overflow` says. A pattern
    of topics is shown between slashes.

    Example: zbroker-admin queue ls
    """
    found = target.ask("/queues")
    empty = "there is no queue; see [[queue]] in the config, and queue create"
    show.listing(target.as_json, found, COLUMNS, [shown(row) for row in found["queues"]], empty)


@click.command(cls=AdminCommand)
@name_argument
def info(target: Target, name: str) -> None:
    """Show the queue NAME: its numbers, its definition, its owners, its consumers.

    The owners are listed of a queue that is on several instances: whose its messages are, and
    since when the oldest of each is here. One that is not `up` has no session on a link here.

    `held` of a consumer is leased to it, `backlog` is how much that may be. A consumer that is
    `gone` has lost its connection; what it holds waits for it until the leases end. `active` says
    which one gets the messages of a queue with a single active consumer.

    Example: zbroker-admin queue info work
    """
    queue = target.ask(path_of(name))
    reported = target.ask(path_of(name, "consumers"))
    show.answer(target.as_json, {"queue": queue, **reported}, lambda: _show(queue, reported))


def _show(queue: dict[str, Any], reported: dict[str, Any]) -> None:
    numbers = {key: value for key, value in shown(queue).items() if key not in _TABLES}
    show.facts(numbers, _SIZES)
    show.facts({f"definition.{key}": value for key, value in definition(queue).items()})
    if queue["owners"]:
        show.table(OWNERS, queue["owners"], "owners")
    if reported["consumers"]:
        show.table(CONSUMERS, reported["consumers"], "consumers")
    else:
        click.echo("it has no consumer")
    if reported["left_out"]:
        show.warn(f"{reported['left_out']} more consumers")


@click.command(cls=AdminCommand)
@name_argument
@click.option(
    "--after",
    type=click.IntRange(min=0, max=U63_MAX),
    default=0,
    help="Only messages after this position.",
)
@limit_option(100, BROWSED_MAX)
@text_option("--filter", 'Only what this is true for: "/price > 1".', "filter_text")
@text_option("--state", "Only messages in this state: ready, leased, delayed, locked.")
@flag_option("--data", "Show payloads, too.")
def browse(  # noqa: PLR0913 - click passes each option by itself
    target: Target, name: str, after: int, limit: int, filter_text: str, state: str, data: bool
) -> None:
    """List messages of the queue NAME, in the order of the log. Nothing is taken.

    `owner` is the client that has a message, `due_ms` how long its lease or its delay lasts. With
    security on, --data and --filter need the right to change something: they tell what messages
    say.

    Example: zbroker-admin queue browse work --state leased --limit 20
    """
    found = target.ask(
        path_of(name, "browse"),
        {"after": after, "limit": limit, "filter": filter_text, "state": state, "data": int(data)},
        contents=data or bool(filter_text),
    )
    columns = (*MESSAGES, *_PAYLOADS) if data else MESSAGES
    empty = "there is no such message" if after or filter_text or state else "it is empty"
    more = f"there may be more; see --limit, and --after {found['next']}"
    notes = [more] if found["next"] is not None else []
    show.listing(target.as_json, found, columns, found["messages"], empty, notes)


@click.command(cls=AdminCommand)
@name_argument
@click.option("--position", type=POSITION, help="Why this message waits.")
@text_option("--bookmark", "The same, named by its bookmark.")
def explain(target: Target, name: str, position: int | None, bookmark: str) -> None:
    """Say why the queue NAME delivers nothing, or why one message of it waits.

    It names the instance that messages belong to, if that is another one, since when they are
    here, and what to do.

    Example: zbroker-admin queue explain work --position 1234
    """
    if position is not None and bookmark:
        raise click.UsageError("give --position or --bookmark, not both")
    query: dict[str, str | int] = {"position": position or 0, "bookmark": bookmark}
    found = target.ask(path_of(name, "explain"), query)
    lines = found["lines"] or ["there is nothing to explain: it delivers what it can"]
    show.answer(target.as_json, found, "\n".join(lines))


def path_of(name: str, what: str = "") -> str:
    """The path of this queue at the admin, or of one thing about it. Raises: UsageError."""
    if not name:
        raise click.UsageError("the name of a queue is not empty")
    return f"/queues/{quote(name, safe='')}" + (f"/{what}" if what else "")


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: patterns marked, rates beside the rest."""
    topic = f"/{row['topic']}/" if row["regex"] else row["topic"]
    return {**row, **row["rates"], "topic": topic}


def definition(queue: dict[str, Any]) -> dict[str, Any]:
    """Its definition, with units; settings without a value are left out."""
    from zbroker.config.queues import QueueConfig
    from zbroker.config.tree import fields
    from zbroker.config.units import UNITS

    formats = {one.name: UNITS[one.unit].format for one in fields(QueueConfig) if one.unit}
    found = {}
    for key, value in queue.get("definition", {}).items():
        as_text = formats.get(key, str)
        if value not in ("", [], False):
            found[key] = list(map(as_text, value)) if isinstance(value, list) else as_text(value)
    return found
