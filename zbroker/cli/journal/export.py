"""`zbroker-admin journal export --output DIR`: a consistent copy of the log, while it is written.

Reads the files; a running instance is asked to remove nothing meanwhile (POST /journal/hold). DIR
becomes a data directory: these tools can look at it, and an instance can be started on it. It
appears when it is complete and durable; until then it is DIR.part. Answer: a summary of the copy.

    zbroker-admin --data-dir /var/lib/zbroker journal export --output /mnt/backup/2026-08-01
    zbroker-admin --json journal export --output /tmp/day --from 20260801T000000Z
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from zbroker.cli import progress, show
from zbroker.cli.group import EX_ERROR
from zbroker.cli.journal import copying, opened, points, verifying
from zbroker.cli.journal.copying import CopyPlan, Exported
from zbroker.cli.journal.fresh import fresh
from zbroker.cli.journal.holding import Renew, hold
from zbroker.control.target import Target
from zbroker.journal import snapshot_finder
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
    "--from", "first", metavar="POINT", help="From the segment with this position or time."
)
@click.option("--to", "end", metavar="POINT", help="Only messages before this position or time.")
@click.option("--no-verify", is_flag=True, help="Do not read the copy again and check every byte.")
@show.json_option
@click.pass_obj
def export(
    target: Target,
    output: Path,
    first: str | None,
    end: str | None,
    no_verify: bool,
    json_here: bool,
) -> None:
    """Copy the log, consistently, also while the instance runs and writes.

    DIR holds everything that was durable when the copy began. Segments are copied as they are,
    archived and compressed ones too. A part of the log begins at the start of a segment.

    Example: zbroker-admin journal export --output /mnt/backup/2026-08-01
    """
    paths, admin = opened.find(target), target.running()
    began = time.monotonic()
    with _log(paths, lock=admin is None) as log, progress.bar("bytes") as step:
        begin = points.edge(log, first) if first else log.first_position
        stop = points.edge(log, end) if end else None
        with hold(admin, f"export to {output}", max(begin, log.first_position)) as renew:
            plan = copying.plan(log.places, begin, stop, live=admin is not None)
            done = _copy(log, output, plan, renew, step)
    _look_at(done, output, check=not no_verify)
    done.took_s = time.monotonic() - began
    if show.wants_json(target, json_here):
        show.as_json(done.as_dict())
    else:
        show.facts(done.as_dict(), sizes=("bytes",))
    _end(done)


@contextmanager
def _log(paths: Paths, *, lock: bool) -> Iterator[Log]:
    """For reading; with `lock` there is no writer meanwhile. Raises: StorageError second_writer."""
    with closing(Log(paths.journal, paths.archive)) as log:
        if lock:
            log.places.journal.lock()
        yield log


def _copy(log: Log, output: Path, plan: CopyPlan, renew: Renew, step: progress.Step) -> Exported:
    done = Exported(
        str(output.absolute()), log.instance, plan.note.generation, plan.segments[0].first,
        plan.note.position, plan.below is not None,
    )  # fmt: skip

    def copied(count: int) -> None:
        done.bytes += count
        step("copying", done.bytes, plan.bytes)
        renew()

    with fresh(output, log.instance, plan.bytes) as journal:
        for one in plan.segments[:-1]:
            place = copying.copy_file(log.places, one.serial, journal, copied)
            done.packed += place.packed
        last = plan.segments[-1].serial
        position = copying.copy_last(log.places, last, journal, plan.below, copied)
        done.end_position = max(position, plan.note.position)
        copying.write_notes(journal, plan.note._replace(position=done.end_position))
    done.segments = len(plan.segments)
    return done


def _look_at(done: Exported, output: Path, *, check: bool) -> None:
    """The copy as it is read back."""
    journal = output / "journal"
    with closing(Log(journal)) as log:
        found = snapshot_finder.newest(log, done.end_position)
    done.snapshot = found.serial if found is not None else None
    if check:
        with progress.bar() as step:
            done.verified = verifying.verify(journal, step).ok


def _end(done: Exported) -> None:
    if done.snapshot is None and done.first_position > 1:
        show.warn("no state snapshot is in the copy: an instance that is started on it does not")
        show.warn("know what its publishers wrote before; reading and replaying it is fine")
    if done.verified is False:
        show.warn(
            f"damaged or incomplete: see `zbroker-admin --data-dir {done.output} journal verify`"
        )
        sys.exit(EX_ERROR)
