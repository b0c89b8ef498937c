"""`zbroker-admin queue requeue`: dead letters come back to the queue that gave them up.

Tells the running instance (POST /queues/NAME/requeue). Answer: `queue`, `dry_run`, `count`, `text`.
Their deliveries and failures are counted from 0 again. Exit code 3: no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue requeue work --limit 10 --dry-run
    zbroker-admin queue requeue work --bookmark '1683212431|17|'
"""

from __future__ import annotations

import click

from zbroker.admin.requests import BOOKMARKS_MAX, REQUEUED_MAX
from zbroker.cli import show
from zbroker.cli.queue.asking import change, name_argument, say
from zbroker.control.target import Target


@click.command()
@name_argument
@click.option(
    "--bookmark", "bookmarks", multiple=True, help="Only this dead letter. Any number of times."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=REQUEUED_MAX),
    default=1_000,
    show_default=True,
    help="The newest ones.",
)
@show.dry_run_option
@show.json_option
@click.pass_obj
def requeue(
    target: Target,
    name: str,
    bookmarks: tuple[str, ...],
    limit: int,
    dry_run: bool,
    json_here: bool,
) -> None:
    """Bring back to the queue NAME what it gave up, as long as the log holds it.

    They return to their old places in the queue, and their counts begin at 0 again. Copies in the
    `dead_letter` topic stay there.

    Example: zbroker-admin queue requeue work --limit 10 --dry-run
    """
    if len(bookmarks) > BOOKMARKS_MAX:
        raise click.UsageError(f"at most {BOOKMARKS_MAX} bookmarks at once")
    body = {"bookmarks": list(bookmarks), "limit": limit, "dry_run": dry_run}
    found = change(target, name, "requeue", body)
    count = found["count"]
    noun = f"{count} dead letter{'' if count == 1 else 's'}"
    line = f"{noun} would come back" if dry_run else f"{noun} came back"
    say(found, line, in_json=show.wants_json(target, json_here))
