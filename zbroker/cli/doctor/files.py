"""Checks of the log's files. They read beside an instance that runs, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Final

from zbroker.cli.doctor.case import RUNNING, SILENT, Case, quoted
from zbroker.cli.doctor.finding import Finding, LeftOut
from zbroker.cli.journal import verify
from zbroker.clock import SystemClock, format_time
from zbroker.errors import StorageError
from zbroker.limits import GIB
from zbroker.log.reader import Gap, Log, last_time
from zbroker.paths import Paths

READ_MAX_BYTES: Final = GIB  # of a log that is read whole without --full: some seconds
AHEAD_MAX_NS: Final = 60 * 1_000_000_000  # less is how clocks are corrected
_GONE: Final = "what they hold cannot be read; the instance does not start without them"


def segments(case: Case) -> Iterator[Finding]:
    """Whether every segment is there, and of a known version."""
    paths = _paths(case)
    try:
        with closing(Log(paths.journal, paths.archive)) as log:
            lost, serials = log.missing, list(log.places.by_serial())
    except StorageError as error:
        yield Finding("segments", error.reason, "the instance does not start", error.hint)
        return
    if lost:
        yield Finding(
            "segments",
            f"segments {lost.start} to {lost.stop - 1} are not there and were not removed",
            _GONE,
            f"mount or restore {paths.archive}; if they are lost for good, "
            f"{case.start('--accept-missing')}",
        )
    yield from between(serials, case)


def between(serials: list[int], case: Case) -> Iterator[Finding]:
    """Segments that are missing between others."""
    for before, after in pairwise(serials):
        if after != before + 1:
            first, last = before + 1, after - 1
            named = f"segment {first} is" if first == last else f"segments {first} to {last} are"
            fix = "put it back from a copy, or " + case.command("journal repair --output NEW_DIR")
            yield Finding("segments", f"{named} missing between others", _GONE, fix)


def foreign_segments(case: Case) -> Iterator[Finding]:
    """Whether the log is that of this instance."""
    paths = _paths(case)
    with closing(Log(paths.journal, paths.archive)) as log:
        whose = log.instance
    if whose and paths.instance and whose != paths.instance:
        yield Finding(
            "foreign_segments",
            f"the segments in {paths.journal} belong to instance {whose:016x}, "
            f"{paths.identity} says {paths.instance:016x}",
            "the instance does not start, so that two logs are not mixed",
            f"take the foreign files out of {paths.journal}, or restore {paths.identity}",
        )


def damage(case: Case) -> Iterator[Finding]:
    """Whether every byte is what was written."""
    paths = _paths(case)
    with closing(Log(paths.journal, paths.archive)) as log:
        size = sum(place.file_bytes for place in log.places.copies())
    if size > READ_MAX_BYTES and not case.options.full:
        command = case.command("journal verify")
        raise LeftOut(f"the log has {size / GIB:.0f} GiB; {command} reads it, --full does, too")
    report = verify.verify(paths.journal, case.options.step, paths.archive)
    if report.damaged or report.gaps:
        worst = [f"{one.file} at {one.start} ({one.why})" for one in report.damaged]
        worst += [f"positions {gap.first} to {gap.end - 1} ({gap.why})" for gap in report.gaps]
        more = f", and {len(worst) - 1} more" if len(worst) > 1 else ""
        yield Finding(
            "damage",
            f"the log is damaged: {worst[0]}{more}",
            f"{_lost(report)} cannot be read; a replay reports it, everything else is served",
            case.command("journal verify") + ", then "
            + case.command("journal repair --output NEW_DIR")
            + " (docs/howto/a-file-is-damaged.md)",
        )  # fmt: skip


def _lost(report: verify.VerifyReport) -> str:
    positions = sum(gap.end - gap.first for gap in report.gaps)
    return f"{positions} position{'' if positions == 1 else 's'}" if positions else "a spare copy"


def index(case: Case) -> Iterator[Finding]:
    """Whether the index of bookmarks can be opened. One that serves tells that by an alarm."""
    if case.instance in (RUNNING, SILENT):
        return
    from zbroker.bookmarks.files import reason_not_to_open

    why = reason_not_to_open(_paths(case).index, lambda _: None)
    if why:
        yield Finding(
            "index",
            f"the index of bookmarks {_paths(case).index} is damaged: {why}",
            "no message is lost; the next start sets it aside and rebuilds it from the log",
            case.start(),
        )


def queue_tables(case: Case) -> Iterator[Finding]:
    """Whether the tables of queues can be opened; they only make a start fast."""
    if case.instance in (RUNNING, SILENT):
        return
    from zbroker.bookmarks.files import reason_not_to_open

    path = _paths(case).queues
    why = reason_not_to_open(path, lambda _: None)
    if why:
        yield Finding(
            "queue_tables",
            f"the tables of queues {path} are damaged: {why}",
            "no message of a queue is lost: what the tables hold is in the log, too",
            f"rm -r {quoted(path)}; the next start reads it from the log, which takes longer",
        )


def clock(case: Case) -> Iterator[Finding]:
    """Whether the log is ahead of the clock, which then goes wrong or did."""
    assert case.config is not None, "CHECKS says that it is needed"
    if case.config.journal.time == "publisher":
        return  # the times are not this host's
    newest, now = _newest_time(_paths(case)), SystemClock().wall_ns()
    if newest is not None and newest > now + AHEAD_MAX_NS:
        yield Finding(
            "clock",
            f"the newest message is of {format_time(newest)}, the clock says {format_time(now)}",
            "nothing is lost; new messages get that time until the clock has caught up, and "
            "replays by time find them there",
            "timedatectl set-ntp true, or set the clock right by hand",
        )


def _newest_time(paths: Paths) -> int | None:
    """The log time of the last batch of the newest segment that has one."""
    with closing(Log(paths.journal, paths.archive)) as log:
        end = log.end()
        for cursor in reversed(log.starts):
            found = None
            for item in log.headers(cursor, end):
                found = found if isinstance(item, Gap) else last_time(item[0])
            if found is not None:
                return found
    return None


def _paths(case: Case) -> Paths:
    assert case.paths is not None, "CHECKS says that they are needed"
    if not case.paths.journal.is_dir():
        raise LeftOut(f"there is no log in {case.paths.journal} yet")
    return case.paths
