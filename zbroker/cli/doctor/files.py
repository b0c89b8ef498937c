"""Checks of directories and of the log's files: whether they are there, whole, and private.

They read beside an instance that runs, and change nothing.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from zbroker.cli.doctor.case import Case, Finding, LeftOut, quoted
from zbroker.cli.journal import verify
from zbroker.clock import SystemClock, format_time
from zbroker.config import Config
from zbroker.errors import StorageError
from zbroker.limits import GIB
from zbroker.log.reader import Gap, Log, last_time
from zbroker.paths import Paths, sockets_parent
from zbroker.supervisor.directory import read_identity

READ_MAX_BYTES: Final = GIB  # of a log that is read whole without --full: some seconds
AHEAD_MAX_NS: Final = 60 * 1_000_000_000  # less is how clocks are corrected
_GONE: Final = "what they hold cannot be read; the instance does not start without them"


class PathFacts(NamedTuple):
    """What the system says of a path."""

    path: Path
    exists: bool
    is_directory: bool
    writable: bool
    owner: str = ""


def look(path: Path) -> PathFacts:
    """At a path, for this user."""
    try:
        found = path.stat()
    except OSError:
        return PathFacts(path, exists=False, is_directory=False, writable=False)
    writable = os.access(path, os.W_OK | os.X_OK)
    return PathFacts(path, True, stat.S_ISDIR(found.st_mode), writable, owner_of(found.st_uid))


def owner_of(uid: int) -> str:
    """A user's name, or number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def data_directory(_: Case, paths: Paths) -> Iterator[Finding]:
    """Whether it can be written, or made."""
    place = look(paths.data)
    if not place.exists:
        place = look(next(parent for parent in paths.data.parents if parent.exists()))
    yield from unusable(place, paths.data, owner_of(os.getuid()))
    if paths.journal.exists():
        yield from unusable(look(paths.journal), paths.journal, owner_of(os.getuid()))


def unusable(place: PathFacts, wanted: Path, user: str) -> Iterator[Finding]:
    """What keeps `user` from writing in `wanted`, of which `place` is there."""
    means = "an instance of this user does not start; the log does not change"
    if not place.is_directory:
        what = f"{place.path} is not a directory, and {wanted} should be one"
        yield Finding(what, means, f"mv {quoted(place.path)} {quoted(place.path)}.old")
    elif not place.writable:
        what = f"{place.path} belongs to {place.owner} and cannot be written by {user}"
        fix = (
            f"sudo -u {quoted(place.owner)} zbroker start, or chown -R {user} {quoted(place.path)}"
        )
        yield Finding(what, means, fix)


def identity(_: Case, paths: Paths) -> Iterator[Finding]:
    """Whether the instance knows who it is."""
    if not paths.data.is_dir():
        return
    try:
        known = read_identity(paths.data)
    except StorageError as error:
        means = "the instance does not start; the log itself is not touched"
        fix = error.hint if error.code == "unknown_version" else _restore(paths)
        yield Finding(error.reason, means, fix)
        return
    except OSError as error:
        what = f"{paths.identity}: {error.strerror}"
        yield Finding(what, "the instance does not start", f"ls -l {quoted(paths.identity)}")
        return
    if known is None and any(paths.journal.glob("*.journal*")):
        yield Finding(
            f"{paths.identity} is not there, and {paths.journal} has segments",
            "a start would make a new identity, to which these segments are foreign",
            _restore(paths),
        )


def _restore(paths: Paths) -> str:
    """Each segment also has the id."""
    show_id = f"zbroker-admin --data-dir {quoted(paths.data)} --json journal info"
    return (
        f"put it back from a copy; {show_id} tells the id: write "
        f'{{"version": 1, "instance": "ID"}} into {quoted(paths.identity)}'
    )


def archive_directory(_: Case, paths: Paths, config: Config) -> Iterator[Finding]:
    """Whether the one that was set is there: it is often a mount."""
    if config.journal.archive_directory and not paths.archive.is_dir():
        yield Finding(
            f"{paths.archive} is not there, and journal.archive_directory names it",
            "segments that were archived there cannot be read, and none can be archived",
            f"mount what belongs there, or, if nothing was archived yet, mkdir -p "
            f"{quoted(paths.archive)}",
        )


def sockets_directory(_: Case, paths: Paths) -> Iterator[Finding]:
    """Whether the processes can create their sockets, and other users have no access."""
    place, parent = paths.sockets, sockets_parent()
    if not os.access(parent, os.W_OK | os.X_OK):
        means = "the instance does not start: its processes have to reach each other"
        what = f"{parent} cannot be written by {owner_of(os.getuid())}"
        yield Finding(what, means, "TMPDIR=/run/user/$UID zbroker start")
    if not paths.sockets_note.exists() or not place.is_dir():
        return  # it does not run; each start makes a new one
    found = place.lstat()
    means = "others could speak to its processes"
    if found.st_uid != os.getuid():
        what = f"{place} belongs to {owner_of(found.st_uid)}"
        fix = f"sudo rm -r {quoted(place)}, or run this as that user"
        yield Finding(what, means, fix)
    elif found.st_mode & 0o077:
        what = f"{place} can be entered by others (mode {stat.S_IMODE(found.st_mode):o})"
        yield Finding(what, means, f"chmod 700 {quoted(place)}")


def secrets(_: Case, paths: Paths) -> Iterator[Finding]:
    """Whether others can read what makes and proves sessions."""
    for path in sorted([*paths.run.glob("*.token"), *paths.run.glob("*.key")]):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            yield Finding(
                f"others can read {path} (mode {mode:o})",
                "a user who reads it can act as the owner of the instance, until the next start",
                f"chmod 600 {quoted(path)}, then restart the instance: it makes new tokens",
            )


# -- the log ----------------------------------------------------------------------------------


def segments(case: Case, paths: Paths) -> Iterator[Finding]:
    """Whether every segment is there, and of a known version."""
    try:
        with _log(paths) as log:
            lost, serials = log.missing, list(log.places.by_serial())
    except StorageError as error:
        yield Finding(error.reason, "the instance does not start", error.hint)
        return
    if lost:
        yield Finding(
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
            yield Finding(f"{named} missing between others", _GONE, fix)


def foreign_segments(_: Case, paths: Paths) -> Iterator[Finding]:
    """Whether the log is that of this instance."""
    with _log(paths) as log:
        whose = log.instance
    if whose and paths.instance and whose != paths.instance:
        yield Finding(
            f"the segments in {paths.journal} belong to instance {whose:016x}, "
            f"{paths.identity} says {paths.instance:016x}",
            "the instance does not start, so that two logs are not mixed",
            f"take the foreign files out of {paths.journal}, or restore {paths.identity}",
        )


def damage(case: Case, paths: Paths) -> Iterator[Finding]:
    """Whether every byte is what was written."""
    with _log(paths) as log:
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
            f"the log is damaged: {worst[0]}{more}",
            f"{_lost(report)} cannot be read; a replay reports it, everything else is served",
            case.command("journal verify") + ", then "
            + case.command("journal repair --output NEW_DIR")
            + " (docs/howto/a-file-is-damaged.md)",
        )  # fmt: skip


def _lost(report: verify.VerifyReport) -> str:
    positions = sum(gap.end - gap.first for gap in report.gaps)
    return f"{positions} position{'' if positions == 1 else 's'}" if positions else "a spare copy"


def index(case: Case, paths: Paths) -> Iterator[Finding]:
    """Whether the index of bookmarks can be opened. One that serves tells that by an alarm."""
    why = _why_not_opened(paths, paths.index)
    if why:
        yield Finding(
            f"the index of bookmarks {paths.index} is damaged: {why}",
            "no message is lost; the next start sets it aside and rebuilds it from the log",
            case.start(),
        )


def queue_tables(_: Case, paths: Paths) -> Iterator[Finding]:
    """Whether the tables of queues can be opened; they only make a start fast."""
    why = _why_not_opened(paths, paths.queues)
    if why:
        yield Finding(
            f"the tables of queues {paths.queues} are damaged: {why}",
            "no message of a queue is lost: what the tables hold is in the log, too",
            f"rm -r {quoted(paths.queues)}; the next start reads it from the log, which takes "
            "longer",
        )


def _why_not_opened(paths: Paths, database: Path) -> str:
    """The reason; empty where it can be opened."""
    _need_log(paths)
    from zbroker.bookmarks.files import reason_not_to_open

    return reason_not_to_open(database, lambda _: None)


def clock(_: Case, paths: Paths, config: Config) -> Iterator[Finding]:
    """Whether the log is ahead of the clock, which then goes wrong or did."""
    if config.journal.time == "publisher":
        return  # the times are not this host's
    newest, now = _newest_time(paths), SystemClock().wall_ns()
    if newest is not None and newest > now + AHEAD_MAX_NS:
        yield Finding(
            f"the newest message is of {format_time(newest)}, the clock says {format_time(now)}",
            "nothing is lost; new messages get that time until the clock has caught up, and "
            "replays by time find them there",
            "timedatectl set-ntp true, or set the clock right by hand",
        )


def _newest_time(paths: Paths) -> int | None:
    """The log time of the last batch of the newest segment that has one."""
    with _log(paths) as log:
        end = log.end()
        for cursor in reversed(log.starts):
            found = None
            for item in log.headers(cursor, end):
                found = found if isinstance(item, Gap) else last_time(item[0])
            if found is not None:
                return found
    return None


@contextmanager
def _log(paths: Paths) -> Iterator[Log]:
    """Raises: LeftOut, if there is none."""
    _need_log(paths)
    with closing(Log(paths.journal, paths.archive)) as log:
        yield log


def _need_log(paths: Paths) -> None:
    """Raises: LeftOut, if there is no log."""
    if not paths.journal.is_dir():
        raise LeftOut(f"there is no log in {paths.journal} yet")
