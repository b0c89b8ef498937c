"""`zbroker-admin journal`: look at the log as files, with the broker's own code.

Reads only, so it may be used while the instance runs. `--data-dir` or `-c` say where the files are.

    zbroker-admin --data-dir /var/lib/zbroker journal verify
    zbroker-admin journal dump --from 1000 --limit 10
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import click
from msgspec import json

from zbroker.cli import journal_dump, journal_verify
from zbroker.cli.group import EX_ERROR, version_option
from zbroker.cli.target import Target
from zbroker.errors import ZBrokerError
from zbroker.journal.reader import Log


@click.group()
def journal() -> None:
    """Look at the log as files: dump or verify it."""


_json = click.option("--json", "as_json", is_flag=True, help="Answer in JSON with stable keys.")


@journal.command()
@click.option("--from", "first", type=click.IntRange(min=0), help="The first position to show.")
@click.option("--to", "end", type=click.IntRange(min=0), help="The position to end before.")
@click.option("--limit", type=click.IntRange(min=0), help="How many lines to print at most.")
@click.option("--headers", is_flag=True, help="A line per record batch, without its messages.")
@click.option("--json", is_flag=True, expose_value=False, help="It is JSON lines always.")
@click.pass_obj
def dump(
    target: Target, first: int | None, end: int | None, limit: int | None, headers: bool
) -> None:
    """Print messages and control records as JSON lines.

    A message is {position, topic, bookmark, time, data}; data that is not UTF-8 stands under
    data_base64 instead. A control record has a kind in place of topic and bookmark. A damaged
    range is {gap: {first, end, why}}, and the exit code is 1 then.
    """
    with closing(Log(directory(target))) as log:
        lines = journal_dump.Dump(log, first, end, limit)
        for chunk in lines.headers() if headers else lines.messages():
            click.echo(chunk, nl=False)
    if lines.bad:
        click.echo(f"journal dump: {lines.bad} ranges could not be read, see above", err=True)
        sys.exit(EX_ERROR)


@journal.command()
@_json
@click.pass_obj
def verify(target: Target, as_json: bool) -> None:
    """Read and check every byte; exit code 0 only if nothing is damaged.

    Holes are sequences of a publisher that are missing; gaps are positions that cannot be served;
    damaged are places in the files whose checksums are wrong.
    """
    with journal_verify.progress_bar() as progress:
        report = journal_verify.verify(directory(target), progress)
    if as_json or target.as_json:
        click.echo(json.encode(report.as_dict()))
    else:
        click.echo("\n".join(report.lines()))
    if not report.ok:
        sys.exit(EX_ERROR)


def directory(target: Target) -> Path:
    """Where the segments are. Raises: ZBrokerError not_found."""
    if target.url:
        raise click.UsageError("`journal` reads files: give --data-dir or -c, not --url")
    found = target.config().paths(0).journal
    if not found.is_dir():
        raise ZBrokerError("not_found", f"there is no journal in {found}", "see --data-dir and -c")
    return found


for _command in journal.commands.values():
    _command.params.append(version_option())
