"""`zbroker-admin queue alter`: a queue becomes another one, with what it holds.

Tells the running instance (POST /queues/NAME/alter). Answer: `queue`, `dry_run`, `count`, `text`.
Exit code 3: no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue alter work --set lease=5m --dry-run
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.queue.asking import change, name_argument, say
from zbroker.cli.queue.settings import read, set_option
from zbroker.control.target import Target


@click.command()
@name_argument
@set_option
@show.dry_run_option
@show.json_option
@click.pass_obj
def alter(
    target: Target, name: str, pairs: tuple[str, ...], dry_run: bool, json_here: bool
) -> None:
    """Change settings of the queue NAME; what it holds stays.

    The settings that decide which messages are in it and in which order (topic, filter, priority
    and the like) cannot change: delete the queue and create it again. Its consumers continue. A
    queue of the config is changed there.

    Example: zbroker-admin queue alter work --set lease=5m --set max_deliveries=3
    """
    definition = read(pairs)
    if not definition:
        raise click.UsageError("say what changes: --set KEY=VALUE")
    found = change(target, name, "alter", {"definition": definition, "dry_run": dry_run})
    line = "it can be changed" if dry_run else "changed"
    say(found, line, in_json=show.wants_json(target, json_here))
