"""`zbroker-admin journal archive`: move the oldest segments to the archive directory.

Asks the running instance (POST /journal/archive) and shows how far it is; without one it works on
the files, under the lock of the journal directory. Archived segments are read like all others.
Answer: the plan, and what became of it.

    zbroker-admin journal archive --before -7d --dry-run
    zbroker-admin --json journal archive --through 17
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.journal import managing
from zbroker.cli.journal.following import wait_option
from zbroker.cli.journal.selecting import Selection, selection_options
from zbroker.control.target import Target


@click.command()
@selection_options
@show.dry_run_option
@wait_option
@show.json_option
@click.pass_obj
def archive(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    through: int | None,
    before: str | None,
    point: str | None,
    all_sealed: bool,
    dry_run: bool,
    no_wait: bool,
    json_here: bool,
) -> None:
    """Move the oldest segments to the archive directory ([journal] archive_directory).

    They are copied, compared, synced, and only then removed from the journal directory. They stay
    part of the log: replays read them from there.

    Example: zbroker-admin journal archive --before -7d --dry-run
    """
    selection = Selection(through, before, point, all_sealed)
    how = managing.ActionOptions(
        dry_run, wait=not no_wait, in_json=show.wants_json(target, json_here)
    )
    managing.rewrite(target, "archive", selection, how)
