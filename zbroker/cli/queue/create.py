"""`zbroker-admin queue create`: a queue more, without a restart.

Tells the running instance (POST /queues/NAME/create). Answer: `queue`, `dry_run`, `count`, `text`.
The log has the definition, so it is there after a restart; it needs no [[queue]] table.

    zbroker-admin --data-dir /var/lib/zbroker queue create work --topic orders --set lease=1m
    zbroker-admin queue create audit --topic 'orders[.].*' --set regex=true --set kind=replayable
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_topic
from zbroker.cli.queue.asking import change, say
from zbroker.cli.queue.settings import read, set_option
from zbroker.control.target import Target


@click.command()
@click.argument("name")
@click.option(
    "--topic",
    help="The topic that it takes; without this the one with its name.",
    shell_complete=complete_topic,
)
@set_option
@show.dry_run_option
@show.json_option
@click.pass_obj
def create(
    target: Target,
    name: str,
    topic: str | None,
    pairs: tuple[str, ...],
    dry_run: bool,
    json_here: bool,
) -> None:
    """Make the queue NAME over a recorded topic.

    It begins with all that the log holds, unless --set recovery_point says otherwise.

    Example: zbroker-admin queue create work --topic orders --set lease=1m --set retry_delay=1s,10s
    """
    definition = read(pairs, {} if topic is None else {"topic": topic})
    found = change(target, name, "create", {"definition": definition, "dry_run": dry_run})
    line = "it can be made" if dry_run else "made"
    say(found, line, in_json=show.wants_json(target, json_here))
