"""A new data directory with a copy of a log in it: DIR.part until everything in it is durable.

    DIR/instance.json     whose log it is, so that an instance can be started on it
    DIR/journal/          segments, acked-through note, and of an export: that it is a copy

A leftover DIR.part has the file `unfinished` in it and is deleted by the next try.
The file goes last: a DIR that has it is whole, too, only its maker was ended before it said so.

`Output` writes batches as segments, each batch at the position that it has. A segment has the size
of its content; the last one is the open one for an instance that starts on it. Missing positions
are between two segments: one ends, and the next begins at a higher position.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from zbroker import durable_files
from zbroker.clock import Clock
from zbroker.durable_files import sync_directory
from zbroker.errors import StorageError, ZBrokerError
from zbroker.limits import MIB
from zbroker.log.disk import Disk
from zbroker.log.format import (
    DATA_AT,
    HEADER_COPY_AT,
    AckedNote,
    Batch,
    SegmentHeader,
    encode_group,
    pad,
)
from zbroker.log.segments import NOTE_FILE, NOTE_FILE_BYTES, give_up, random_salt, segment_name
from zbroker.supervisor.directory import identity

UNFINISHED: Final = "unfinished"
_SLACK_BYTES: Final = 16 << 20
GROUP_BYTES: Final = 1 * MIB  # batches that are written at once
_PAGE: Final = 4096


@contextmanager
def fresh(output: Path, instance: int, needed_bytes: int) -> Iterator[Path]:
    """The journal directory to fill; `output` appears when the block ends without an error.

    Raises: ZBrokerError exists, StorageError disk_full.
    """
    output = output.absolute()
    part = output.with_name(output.name + ".part")
    try:
        _begin(output, part, needed_bytes)
        journal = part / "journal"
        journal.mkdir(mode=0o700)
        durable_files.write(part / "instance.json", identity(instance).encode())
        yield journal
        _finish(output, part)
    except OSError as error:
        reason = f"{error.filename or output}: {error.strerror}"
        raise StorageError("disk_error", reason, "choose another --output") from None
    finally:
        if (part / UNFINISHED).exists():
            _throw_away(part, ignore_errors=True)  # what stays is thrown away next time


def _begin(output: Path, part: Path, needed_bytes: int) -> None:
    if output.exists():
        raise ZBrokerError("exists", f"{output} is there already", "choose another --output")
    if not output.parent.is_dir():
        raise ZBrokerError("not_found", f"there is no directory {output.parent}", "make it first")
    if part.exists():
        if any(part.iterdir()) and not (part / UNFINISHED).exists():
            reason = f"{part} is there and was not made by this command"
            raise ZBrokerError("exists", reason, "choose another --output, or move it away")
        _throw_away(part)
    free = shutil.disk_usage(output.parent).free
    if free < needed_bytes + _SLACK_BYTES:
        reason = f"{output.parent} has {free} bytes free, {needed_bytes + _SLACK_BYTES} are needed"
        raise StorageError("disk_full", reason, "choose an --output on a larger disk")
    part.mkdir(mode=0o700)
    (part / UNFINISHED).touch()


def _finish(output: Path, part: Path) -> None:
    """Files are synced by their writers; this syncs their names, then the name of the directory."""
    sync_directory(part / "journal")
    sync_directory(part)
    part.rename(output)
    sync_directory(output.parent)
    (output / UNFINISHED).unlink()


def _throw_away(part: Path, *, ignore_errors: bool = False) -> None:
    """The file `unfinished` goes last, so that an interrupted one goes on next time."""
    for path in part.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=ignore_errors)
        elif path.name != UNFINISHED:
            path.unlink(missing_ok=True)
    shutil.rmtree(part, ignore_errors=ignore_errors)


class Output:
    """A new journal in an empty directory.

    position: the next one. serial: of the first segment. segments, bytes: written so far.
    """

    def __init__(self, disk: Disk, instance: int, position: int, serial: int, clock: Clock) -> None:
        self.segments = 0
        self.bytes = 0
        self.position = position
        self._disk = disk
        self._instance = instance
        self._serial = serial
        self._clock = clock
        self._open: _Segment | None = None
        self._previous = (0, 0)  # last position and end offset of the segment before

    def skip_to(self, position: int) -> None:
        """Positions up to this one are missing. Raises: StorageError."""
        self._seal()
        self.position = position

    def add(self, batch: Batch, generation: int, *, begin: bool) -> None:
        """Appends a batch; `begin`: in a new segment. Raises: StorageError."""
        assert batch.position == self.position, "missing positions are skipped"
        if begin or (self._open is not None and self._open.header.generation != generation):
            self._seal()
        segment = self._open or self._begin(generation)
        segment.add(batch)
        self.position = batch.end_position

    def finish(self, generation: int) -> None:
        """Makes all of it durable, with an acked-through note. Raises: StorageError."""
        if self._open is None or self._open.header.generation != generation:
            self._seal()
            self._begin(generation)
        self._seal()
        newest = self._serial + self.segments - 1
        oldest = self._serial if self._serial > 1 else 0
        self._disk.create(NOTE_FILE, NOTE_FILE_BYTES)
        note = AckedNote(0, self._instance, generation, self.position, newest, oldest)
        give_up(self._disk, note)
        self._disk.sync_dir()

    def _begin(self, generation: int) -> _Segment:
        header = SegmentHeader(
            self._instance, generation, self._serial + self.segments, self.position,
            *self._previous, random_salt(), self._clock.wall_ns(), 0,
        )  # fmt: skip
        self.segments += 1
        self._open = _Segment(self._disk, header)
        return self._open

    def _seal(self) -> None:
        if self._open is not None:
            end = self._open.close()
            self._previous = (self.position - 1, end)
            self.bytes += pad(end, _PAGE)
            self._open = None


class _Segment:
    """One file. Its header is written last: without one it is not a segment yet."""

    def __init__(self, disk: Disk, header: SegmentHeader) -> None:
        self.header = header
        self._disk = disk
        self._name = segment_name(header.serial)
        self._end = DATA_AT
        self._crc = 0
        self._group: list[Batch] = []
        self._group_bytes = 0
        disk.create(self._name)

    def add(self, batch: Batch) -> None:
        self._group.append(batch)
        self._group_bytes += batch.body_length
        if self._group_bytes >= GROUP_BYTES:
            self._write()

    def close(self) -> int:
        """Writes the rest and the header, syncs. Returns: the offset after the last group."""
        if self._group:
            self._write()
        size = pad(self._end, _PAGE)
        self._disk.write(self._name, self._end, [bytes(size - self._end)])
        header = self.header._replace(size=size)
        for at in (0, HEADER_COPY_AT):
            self._disk.write(self._name, at, [header.encode()])
        self._disk.sync(self._name)
        return self._end

    def _write(self) -> None:
        """One group of what was added."""
        batches, self._group, self._group_bytes = self._group, [], 0
        log_time = max(batch.log_time for batch in batches)
        buffers, group, self._crc = encode_group(
            batches, self._end, self.header.seed, log_time, batches[0].position, self._crc
        )
        self._disk.write(self._name, group.offset, buffers)
        self._end = group.offset + group.length
