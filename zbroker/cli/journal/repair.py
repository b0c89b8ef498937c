"""`zbroker-admin journal repair --output DIR`: saves what is intact into a new directory.

Reads the files under the lock of the journal directory (so not while the instance runs), or with
--segment one sealed segment at any time; writes only to DIR. Never changes what it reads. Answer:
the saved and the lost positions, and what to do next. Exit code 1 if something was lost.

    zbroker-admin --data-dir /var/lib/zbroker journal repair --output /mnt/repaired
    zbroker-admin journal repair --output /mnt/repaired --also /mnt/backup
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import click

from zbroker.cli import progress, show
from zbroker.cli.group import EX_ERROR
from zbroker.cli.journal import opened
from zbroker.cli.journal.encoding import Output
from zbroker.cli.journal.fresh import fresh
from zbroker.cli.journal.mending import MendedDirectory, mend
from zbroker.cli.journal.repairing import Repaired, RepairSource, repair_log, span_of
from zbroker.clock import SystemClock
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.log.disk import RealDisk
from zbroker.log.generations import CopyMark, write_mark
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.paths import Paths


@click.command()
@click.option(
    "--output",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The new data directory; must not exist.",
)
@click.option(
    "--also",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A backup or export of the same log: damaged parts are taken from it. Repeatable.",
)
@click.option(
    "--segment",
    metavar="SERIAL",
    type=click.IntRange(min=1),
    help="Only this sealed segment; also while the instance runs.",
)
@show.json_option
@click.pass_obj
def repair(
    target: Target, output: Path, also: tuple[Path, ...], segment: int | None, json_here: bool
) -> None:
    """Save every intact batch into a new data directory; the old files stay as they are.

    Every message keeps its position and its bookmark. Batches without an intact copy become an
    explicit
    gap: replays report it, with its bounds, as they do now. If acknowledged messages at the end are
    lost, their positions are not used again, and a new generation begins.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal repair --output /mnt/repaired
    """
    paths = opened.find(target)
    with ExitStack() as stack:
        places = stack.enter_context(_opened(paths, lock=segment is None))
        mended = mend(places)
        main = RepairSource(str(paths.journal), Log(places=places))
        others = [stack.enter_context(_other(path)) for path in also]
        span = span_of(main, segment)
        needed = sum(places.size(place) for place in places.list())
        step = stack.enter_context(progress.bar())
        with fresh(output, main.log.instance, needed) as journal:
            disk = stack.enter_context(closing(RealDisk(journal)))
            new = Output(disk, main.log.instance, span.first, span.serial, SystemClock())
            report = repair_log([main, *others], new, span, step)
            if segment is not None:  # the instance may write on meanwhile, after this part
                write_mark(disk, CopyMark(main.log.instance, report.generation))
    report.mended = mended
    _say(report, paths, output, segment, in_json=show.wants_json(target, json_here))


@contextmanager
def _opened(paths: Paths, *, lock: bool) -> Iterator[SegmentPlaces]:
    """Both directories; with `lock` there is no writer. Raises: StorageError second_writer."""
    with closing(
        SegmentPlaces(MendedDirectory(paths.journal), MendedDirectory(paths.archive))
    ) as places:
        if lock:
            places.journal.lock()
        yield places


@contextmanager
def _other(data: Path) -> Iterator[RepairSource]:
    """Another copy of the log: a data directory, or a journal directory."""
    journal = data / "journal" if (data / "journal").is_dir() else data
    with closing(Log(journal, data / "archive")) as log:
        if not log.instance:
            raise ZBrokerError("not_found", f"there is no journal in {data}", "see --also")
        yield RepairSource(str(data), log)


def _say(
    report: Repaired, paths: Paths, output: Path, segment: int | None, *, in_json: bool
) -> None:
    next_steps = [] if segment is not None else next_commands(paths, output)
    if in_json:
        show.as_json(report.as_dict() | {"output": str(output.absolute()), "next": next_steps})
    else:
        click.echo("\n".join(report.lines()))
        click.echo(f"\nsaved in {output}; the old files were not touched. Next:")
        click.echo("\n".join(f"  {line}" for line in next_steps or [_look(output)]))
    if report.lost:
        sys.exit(EX_ERROR)


def next_commands(paths: Paths, output: Path) -> list[str]:
    """What puts the new log in the place of the old one, keeping that."""
    new, journal = shlex.quote(str(output)), shlex.quote(str(paths.journal))
    commands = [_look(output), f"mv {journal} {journal}.damaged"]
    if paths.archive.is_dir():
        archive = shlex.quote(str(paths.archive))
        commands.append(f"mv {archive} {archive}.damaged")
    return [
        *commands,
        f"mv {new}/journal {journal}",
        f"rm -r {shlex.quote(str(paths.index))}    # it is rebuilt from the log",
    ]


def _look(output: Path) -> str:
    return f"zbroker-admin --data-dir {shlex.quote(str(output))} journal verify"
