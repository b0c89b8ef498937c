"""`zbroker-admin replication pause | resume | downgrade | upgrade | skip | forget | fresh | fork`.

Answer: `link` (not of fresh), `dry_run`, `text`: what follows from it. Nothing of it is written to
the config. A skip, a fork and a fresh log are for ever, `forget` is in the log and holds until the
destination answers; the others hold until the opposite, or until the replication process ends.

    zbroker-admin --data-dir /var/lib/zbroker replication pause b
    zbroker-admin replication downgrade b --dry-run
"""

from __future__ import annotations

from urllib.parse import quote

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_link
from zbroker.cli.group import AdminCommand
from zbroker.cli.options import dry_run_option
from zbroker.control.target import Target

name_argument = click.argument("name", shell_complete=complete_link)


@click.command(cls=AdminCommand)
@name_argument
@dry_run_option
def pause(target: Target, name: str, dry_run: bool) -> None:
    """Send nothing more to the destination NAME, until it is resumed.

    The link closes after what is on its way, and stays silent. The log is kept from its place on.
    A synchronous destination counts as lagging: publishers wait until it is downgraded. A restart
    of the replication process resumes it.

    Example: zbroker-admin replication pause b
    """
    _change(target, name, "pause", dry_run)


@click.command(cls=AdminCommand)
@name_argument
@dry_run_option
def resume(target: Target, name: str, dry_run: bool) -> None:
    """Go on with the paused link to the destination NAME, at once.

    It is sent what it lacks, in the order of the log.

    Example: zbroker-admin replication resume b
    """
    _change(target, name, "resume", dry_run)


@click.command(cls=AdminCommand)
@name_argument
@dry_run_option
def downgrade(target: Target, name: str, dry_run: bool) -> None:
    """Let no acknowledgement wait for the synchronous destination NAME.

    It is sent everything as before. Messages that are acknowledged before it has them may be lost
    with this host. It stays so, even when it has caught up, until it is upgraded by hand or the
    replication process is restarted.

    Example: zbroker-admin replication downgrade b --dry-run
    """
    _change(target, name, "downgrade", dry_run)


@click.command(cls=AdminCommand)
@name_argument
@dry_run_option
def upgrade(target: Target, name: str, dry_run: bool) -> None:
    """Let acknowledgements wait for the synchronous destination NAME again.

    Also for what it lacks now: publishers wait until it has caught up. If that takes longer than
    its `downgrade_after`, it is downgraded again.

    Example: zbroker-admin replication upgrade b
    """
    _change(target, name, "upgrade", dry_run)


@click.command(cls=AdminCommand)
@name_argument
@click.argument("origin", default="")
@dry_run_option
def skip(target: Target, name: str, origin: str, dry_run: bool) -> None:
    """Give up what the destination NAME lacks of ORIGIN, and cannot get from here.

    That is what retention removed here before it got there (`expired`), or a record that it refuses
    for good. Without ORIGIN all of these. First let another instance send it: that happens by
    itself while one has it. The destination goes on after the range, and lists it as missing. Ties
    whose messages no log has any more are given up one by one.

    Example: zbroker-admin replication skip b 10b714bc24174273.5 --dry-run
    """
    _change(target, name, "skip", dry_run, {"origin": origin})


@click.command(cls=AdminCommand)
@dry_run_option
def fresh(target: Target, dry_run: bool) -> None:
    """Let this instance begin with an empty log, without what its peers may hold.

    An empty log waits until its peers have answered, and gets what they hold. If one of them is
    gone for good, or all of them are new, this lets publishers in at once.

    Example: zbroker-admin replication fresh --dry-run
    """
    found = target.admin().tell("/replication/fresh", {"dry_run": dry_run})
    marked = " (dry run)" if found["dry_run"] else ""
    show.answer(target.as_json, found, f"fresh{marked}: {found['text']}")


@click.command(cls=AdminCommand)
@name_argument
@dry_run_option
def forget(target: Target, name: str, dry_run: bool) -> None:
    """Wait no more for the answer of the destination NAME, whose host is gone for good.

    Each start of this instance without it begins a generation, and these are kept until all
    destinations have answered. They are closed without it now, and no log is kept for it. Messages
    that only its disk has are lost: if it comes back with some, they are refused (fork), until
    `replication fork` takes them again. It holds after restarts, until the destination answers.

    Example: zbroker-admin replication forget b --dry-run
    """
    _change(target, name, "forget", dry_run)


@click.command(cls=AdminCommand)
@click.argument("origin")
@click.option(
    "--keep",
    "host",
    required=True,
    metavar="HOST",
    shell_complete=complete_link,
    help="The instance whose records are taken.",
)
@dry_run_option
def fork(target: Target, origin: str, host: str, dry_run: bool) -> None:
    """Take again what HOST has of ORIGIN beyond the end that ORIGIN has here.

    ORIGIN is a generation of this instance that was closed while HOST was away; a link from HOST is
    stopped with `fork`, which names it. This instance takes these records as new messages of its
    own, and other instances get them from here. A message that is here already, by its publisher
    and sequence, is not stored again. HOST has to be connected; asked twice it is done once. The
    old names are listed by `zbroker-admin replication missing` (forked).

    Example: zbroker-admin replication fork 10b714bc24174273.5 --keep b --dry-run
    """
    _change(target, host, "fork", dry_run, {"origin": origin})


def _change(
    target: Target, name: str, what: str, dry_run: bool, more: dict[str, str] | None = None
) -> None:
    if not name:
        raise click.UsageError("the name of a destination is not empty")
    path = f"/replication/{quote(name, safe='')}/{what}"
    found = target.admin().tell(path, {"dry_run": dry_run, **(more or {})})
    marked = " (dry run)" if found["dry_run"] else ""
    show.answer(target.as_json, found, f"{found['link']}: {what}{marked}: {found['text']}")
