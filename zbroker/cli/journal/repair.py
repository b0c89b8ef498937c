"""`zbroker-admin journal repair --output DIR`: saves what is intact into a new directory.

Reads the files under the lock of the journal directory (so not while the instance runs), or with
--segment one sealed segment at any time; writes only to DIR. Never changes what it reads. Answer:
the saved and the lost positions, and what to do next. Exit code 1 if something was lost.

A segment header of which both copies are damaged is put together from what is good in each. The
copies say the same, 8 bytes at a time. Where they differ one of them is right, and the CRC tells
which choice is. A journal that is read through `MendedDirectory` shows it in place of the damaged
ones; the files stay as they are.

    zbroker-admin --data-dir /var/lib/zbroker journal repair --output /mnt/repaired
    zbroker-admin journal repair --output /mnt/repaired --also /mnt/backup
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Final

import click

from zbroker.cli import progress, show
from zbroker.cli.group import EX_ERROR, AdminCommand
from zbroker.cli.journal import opened
from zbroker.cli.journal.new_journal import Output, fresh
from zbroker.cli.journal.salvage import RepairSource, repair_log, span_of
from zbroker.cli.options import count_option, output_option
from zbroker.clock import SystemClock
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.log.disk import RealDisk
from zbroker.log.format import HEADER_COPY_AT, SEGMENT, SegmentHeader, decode_segment_header
from zbroker.log.generations import CopyMark, write_mark
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.paths import Paths

_WORD: Final = 8


@click.command(cls=AdminCommand)
@output_option
@click.option(
    "--also",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A backup or export of the same log: damaged parts are taken from it. Repeatable.",
)
@count_option(
    "--segment", "Only this sealed segment; also while the instance runs.", metavar="SERIAL"
)
def repair(target: Target, output: Path, also: tuple[Path, ...], segment: int | None) -> None:
    """Save every intact batch into a new data directory; the old files stay as they are.

    Every message keeps its position and its bookmark. Batches without an intact copy become an
    explicit gap: replays report it, with its bounds, as they do now. If acknowledged messages at
    the end are lost, their positions are not used again, and a new generation begins.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal repair --output /mnt/repaired
    """
    paths = opened.find(target)
    with ExitStack() as stack:
        mending = MendedDirectory(paths.journal), MendedDirectory(paths.archive)
        places = stack.enter_context(closing(SegmentPlaces(*mending)))
        if segment is None:
            places.journal.lock()  # else a writer might start meanwhile
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
    report.mended_headers = mended
    steps = [] if segment is not None else next_commands(paths, output)
    document = report.as_dict() | {"output": str(output.absolute()), "next": steps}
    head = f"\nsaved in {output}; the old files were not touched. Next:"
    lines = [*report.lines(), head, *(f"  {line}" for line in steps or [_look(output)])]
    show.answer(target.as_json, document, "\n".join(lines))
    if report.lost:
        sys.exit(EX_ERROR)


@contextmanager
def _other(data: Path) -> Iterator[RepairSource]:
    """Another copy of the log: a data directory, or a journal directory."""
    journal = data / "journal" if (data / "journal").is_dir() else data
    with closing(Log(journal, data / "archive")) as log:
        if not log.instance:
            raise ZBrokerError("not_found", f"there is no journal in {data}", "see --also")
        yield RepairSource(str(data), log)


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


def mended(first: bytes, second: bytes) -> bytes | None:
    """The header that both were copies of, or None if a word is damaged in both."""
    if len(first) < SEGMENT.size or len(second) < SEGMENT.size:
        return None
    starts = range(0, SEGMENT.size, _WORD)
    pairs = [sorted({first[at : at + _WORD], second[at : at + _WORD]}) for at in starts]
    for words in product(*pairs):
        data = b"".join(words)
        if isinstance(decode_segment_header(data), SegmentHeader):
            return data
    return None


class MendedDirectory(RealDisk):
    """A directory, read only. `headers`: by file name, what is shown in place of both copies."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, read_only=True)
        self.headers: dict[str, bytes] = {}

    def read(self, name: str, offset: int, size: int) -> bytes:
        data = super().read(name, offset, size)
        header = self.headers.get(name)
        if header is None:
            return data
        for at in (0, HEADER_COPY_AT):
            data = _overlaid(data, at - offset, header)
        return data


def _overlaid(data: bytes, at: int, patch: bytes) -> bytes:
    """`data` with `patch` at `at`, as far as it reaches into it."""
    start, end = max(at, 0), min(at + len(patch), len(data))
    return data if start >= end else data[:start] + patch[start - at : end - at] + data[end:]


def mend(places: SegmentPlaces) -> list[int]:
    """Mends what can be mended of unreadable raw segments; the serials of those."""
    found: list[int] = []
    for place in places.copies():
        disk, name = places.disk(place), places.name(place)
        if place.packed or isinstance(places.header(place), SegmentHeader):
            continue
        assert isinstance(disk, MendedDirectory), (
            "headers are mended in what is read, not in the files"
        )
        copies = [places.read(place, at, SEGMENT.size) for at in (0, HEADER_COPY_AT)]
        header = mended(*copies)
        if header is not None:
            disk.headers[name] = header
            found.append(place.serial)
    return found
