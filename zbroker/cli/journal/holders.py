"""`zbroker-admin journal holders`: the readers that need a part of the log.

Asks the running instance (GET /holders). Answer: the log start, the positions from which on readers
need the log, and the processes that have not reported yet. Without an instance there are none: exit
code 3.

    zbroker-admin --data-dir /var/lib/zbroker journal holders
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli import show
from zbroker.control.target import Target

COLUMNS: Final = (
    show.number("position"),
    show.TableColumn("who"),
    show.TableColumn("what"),
    show.TableColumn("since"),
)


@click.command()
@show.json_option
@click.pass_obj
def holders(target: Target, json_here: bool) -> None:
    """List the readers that need a part of the log: replays, exports, jobs.

    A part that is needed is not removed. `floor` is the oldest position that is served; processes
    under `silent` have not reported yet what they need, so nothing is removed before they do.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal holders
    """
    found = target.ask("/holders")
    if show.wants_json(target, json_here):
        show.as_json(found)
        return
    show.facts({key: found[key] for key in ("floor", "persisted", "silent")})
    if found["holders"]:
        show.table(COLUMNS, found["holders"])
    else:
        click.echo("nothing holds the log back")
