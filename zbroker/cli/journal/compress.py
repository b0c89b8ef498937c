"""`zbroker-admin journal compress`: compress the oldest segments where they are.

Asks the running instance (POST /journal/compress) and shows how far it is; without one it works on
the files, under the lock of the journal directory. Compressed segments are read like all others;
`zstd -d` gives back the file as it was. Answer: the plan, and what became of it.

    zbroker-admin journal compress --all-sealed --dry-run
    zbroker-admin --json journal compress --before 20260801T000000Z
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
def compress(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    through: int | None,
    before: str | None,
    point: str | None,
    all_sealed: bool,
    dry_run: bool,
    no_wait: bool,
    json_here: bool,
) -> None:
    """Compress the oldest segments where they are, in the journal or the archive directory.

    Each is written as a second file, compared, synced, and only then the first one is removed. They
    stay part of the log: replays read them block by block.

    Example: zbroker-admin journal compress --all-sealed --dry-run
    """
    selection = Selection(through, before, point, all_sealed)
    how = managing.ActionOptions(
        dry_run, wait=not no_wait, in_json=show.wants_json(target, json_here)
    )
    managing.rewrite(target, "compress", selection, how)
