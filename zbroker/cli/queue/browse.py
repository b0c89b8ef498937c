"""`zbroker-admin queue browse`: the messages of a queue, without taking any.

Asks the running instance (GET /queues/NAME/browse). Answer: `messages`, in the order of the log,
each with position, bookmark, topic, time, size, state, how often it was delivered and failed, who
has it; `next`: what --after takes for more, null: there is no more. Exit code 3: no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue browse work --state leased --limit 20
    zbroker-admin --json queue browse work --filter '/urgency > 3' --data
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli import show
from zbroker.cli.queue.asking import Wanted, name_argument, path_of
from zbroker.control.target import Target
from zbroker.limits import U63_MAX

LIMIT_MAX: Final = 1_000  # of one answer of the admin

COLUMNS: Final = (
    show.number("position", 0),
    show.text("bookmark", 5),
    show.TableColumn("topic"),
    show.text("time", 3),
    show.byte_size("size", 2),
    show.text("state", 0),
    show.number("deliveries"),
    show.number("failures", 3),
    show.text("owner", 2),
    show.number("due_ms", 4),
)
_DATA: Final = (show.text("data", 0), show.text("data_base64", 0))


@click.command()
@name_argument
@click.option(
    "--after",
    type=click.IntRange(min=0, max=U63_MAX),
    default=0,
    help="Only messages after this position.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=LIMIT_MAX),
    default=100,
    show_default=True,
    help="So many at most.",
)
@click.option(
    "--filter", "filter_text", default="", help='Only what this is true for: "/price > 1".'
)
@click.option("--state", default="", help="Only messages in this state: ready, leased, delayed.")
@click.option("--data", is_flag=True, help="Show payloads, too.")
@show.json_option
@click.pass_obj
def browse(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    name: str,
    after: int,
    limit: int,
    filter_text: str,
    state: str,
    data: bool,
    json_here: bool,
) -> None:
    """List messages of the queue NAME, in the order of the log. Nothing is taken.

    `owner` is the client that has a message, `due_ms` how long its lease or its delay lasts. With
    security on, --data and --filter need the right to change something: they tell what messages
    say.

    Example: zbroker-admin queue browse work --state leased --limit 20
    """
    wanted: Wanted = {
        "after": after, "limit": limit, "filter": filter_text, "state": state, "data": int(data),
    }  # fmt: skip
    found = target.ask(path_of(name, "browse"), wanted, contents=data or bool(filter_text))
    if show.wants_json(target, json_here):
        show.as_json(found)
        return
    if found["messages"]:
        show.table((*COLUMNS, *_DATA) if data else COLUMNS, found["messages"])
    else:
        click.echo("there is no such message" if after or filter_text or state else "it is empty")
    if found["next"] is not None:
        show.warn(f"there may be more; see --limit, and --after {found['next']}")
