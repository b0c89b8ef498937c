"""`zbroker-admin queue explain`: why nothing is delivered, of a queue or of one message.

Asks the running instance (GET /queues/NAME/explain). Answer: `state`, one word, and `lines`, of
which the first one is the answer. Exit code 3: no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue explain work
    zbroker-admin queue explain work --bookmark '1683212431|17|'
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.queue.asking import Wanted, name_argument, path_of
from zbroker.control.target import Target
from zbroker.limits import U63_MAX


@click.command()
@name_argument
@click.option("--position", type=click.IntRange(min=1, max=U63_MAX), help="Why this message waits.")
@click.option("--bookmark", default="", help="The same, named by its bookmark.")
@show.json_option
@click.pass_obj
def explain(
    target: Target, name: str, position: int | None, bookmark: str, json_here: bool
) -> None:
    """Say why the queue NAME delivers nothing, or why one message of it waits.

    Example: zbroker-admin queue explain work --position 1234
    """
    if position is not None and bookmark:
        raise click.UsageError("give --position or --bookmark, not both")
    wanted: Wanted = {"position": position or 0, "bookmark": bookmark}
    found = target.ask(path_of(name, "explain"), wanted)
    if show.wants_json(target, json_here):
        show.as_json(found)
        return
    lines = found["lines"] or ["there is nothing to explain: it delivers what it can"]
    click.echo("\n".join(lines))
