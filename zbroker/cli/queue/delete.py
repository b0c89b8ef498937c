"""`zbroker-admin queue delete`: a queue goes, with what it knows of its messages.

Tells the running instance (POST /queues/NAME/delete). Answer: `queue`, `dry_run`, `count`, `text`.
Exit code 3: no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue delete work --dry-run
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.queue.asking import change, messages, name_argument, path_of, say
from zbroker.cli.target import Target


@click.command()
@name_argument
@show.dry_run_option
@show.json_option
@click.pass_obj
def delete(target: Target, name: str, dry_run: bool, json_here: bool) -> None:
    """Delete the queue NAME. The messages stay in the log, which is not kept for it any more.

    A queue that is made again with this name is another one: what was acknowledged here is not
    acknowledged there. A queue of the config is deleted there.

    Example: zbroker-admin queue delete work --dry-run
    """
    line = "deleted"
    if dry_run:
        depth = target.ask(path_of(name))["depth"]
        line = f"it would be deleted; it holds {messages(depth)}"
    found = change(target, name, "delete", {"dry_run": dry_run})
    say(found, line, in_json=show.wants_json(target, json_here))
