"""`zbroker-admin journal new-generation`: say that the log was put back from a copy.

For copies that were not made by `journal export` but by `cp`, `rsync` or a snapshot of the disk.
Writes the file `new-generation` into the journal directory, under its lock, so not while an
instance runs; the next start does the rest. Answer: {instance, generation, position}, the
generation that ends there and the position after it.

    zbroker-admin --data-dir /var/lib/zbroker journal new-generation
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.journal import opened
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.log.generations import CopyMark, write_mark
from zbroker.log.reader import Log


@click.command("new-generation")
@show.json_option
@click.pass_obj
def new_generation(target: Target, json_here: bool) -> None:
    """Say that the log was put back from a copy: the next start begins a new generation.

    Do this after restoring a copy that `cp`, `rsync` or a snapshot of the disk made, before the
    start. A new generation uses the positions after the copy's end for other messages, so places in
    the lost part are not confused with places in the new one: acknowledgements of the old
    generation are stale_epoch, vectors resume at the end of the copy. What `journal export` made
    needs it not.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal new-generation
    """
    with opened.locked(opened.find(target)) as places:
        log = Log(places=places)
        if not log.instance:
            reason = "there is no segment with a readable header"
            raise ZBrokerError("not_found", reason, "put the copy back first, or see `repair`")
        write_mark(places.journal, CopyMark(log.instance, log.generation))
        found = {
            "instance": f"{log.instance:016x}", "generation": log.generation,
            "position": log.end(),
        }  # fmt: skip
    if show.wants_json(target, json_here):
        show.as_json(found)
        return
    show.facts(found)
    click.echo("the next start begins a new generation")
