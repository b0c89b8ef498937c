"""The one writer of the log: encodes groups, syncs them, rolls over to the next segment.

    write(batches) --> sync() --> what was written may be acknowledged

`write` and `sync` are called one after the other, never at the same time; `sync` may run in a
helper thread, and `prepare_step` may run in one beside both. After an error the writer refuses
everything: recovery decides about the bytes on the disk. One error is harmless: "disk_full" when
a new segment was to be made; nothing was written then and the same group may be tried again.

That one is prevented: a caller with data of publishers asks `secure` first. Publishers fill
the open segment down to a reserve; beyond it they may write only when the next segment exists on
the disk, filled or at least allocated. So a roll-over with their data in hand finds its file, and
what the broker itself has to write goes on in the reserve while publishers are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

from msgspec import Struct

from zbroker.clock import Clock, SystemClock
from zbroker.errors import StorageError
from zbroker.limits import MIB, SEGMENT_BYTES
from zbroker.log.disk import Buffer, Disk
from zbroker.log.format import (
    DATA_AT,
    GROUP_ALIGN,
    AckedNote,
    Batch,
    GroupHeader,
    SegmentHeader,
    encode_group,
    pad,
)
from zbroker.log.segments import (
    FILL_SYNC_BYTES,
    NOTE_FILE,
    PLAIN,
    SPARE,
    discard,
    fill_step,
    give_up,
    publish,
    random_salt,
    segment_name,
    spare_names,
    write_note,
)

SHORT_BYTES: Final = 4 * MIB  # the least that a segment made in a hurry has
RESERVE_BYTES: Final = 1 * MIB  # for state snapshots, later acks and transfers, on a full disk
RESERVE_SHARE: Final = 8  # of a small segment the reserve is this part at most


class LogTail(Struct, frozen=True):
    """Where the log goes on: recovery's answer and the writer's start. All of it is durable."""

    header: SegmentHeader  # of the open segment
    end: int  # offset after its last group; its next one begins at the next multiple of 512
    position: int  # the next one to give
    group_crc: int  # of its last group; 0 if it has none
    note_counter: int  # of the newest acked-through note
    oldest: int = 0  # serial of the oldest segment that is kept, 0 if nothing was ever removed
    allocated: int = 0  # bytes of a next segment that an earlier run left, and that is kept


class Writer:
    """Appends groups after `tail`. files: so many are there ahead, with the open one.

    position: the next one; everything below is written. synced: everything below is durable.
    header, end: of the open segment; `end` is the offset after its last group. oldest: serial of
    the oldest segment that is kept. unprepared: roll-overs to a segment that was not filled with
    zeros in time; with `files` = 0 none is.
    """

    def __init__(
        self,
        disk: Disk,
        tail: LogTail,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        files: int = 1,
        clock: Clock | None = None,
        salt: Callable[[], int] = random_salt,
    ) -> None:
        self.position = self.synced = tail.position
        self.oldest = tail.oldest
        self.unprepared = 0
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._reserve = min(RESERVE_BYTES, segment_bytes // RESERVE_SHARE)
        self._files = files
        self._clock = clock or SystemClock()
        self._salt = salt
        self._notes = tail.note_counter
        self._failed = False
        for name, _ in disk.list():
            if name.startswith(SPARE) or (name == PLAIN and not tail.allocated):
                discard(disk, name)  # of an earlier run: never announced or trusted, takes space
        self._spares = [
            _Spare(disk, segment_bytes, name) for name in spare_names(max(files - 1, 1))
        ]
        self._allocated = tail.allocated  # size of a next segment, not filled; 0: there is none
        self._open(tail.header, tail.end, tail.group_crc)

    def _open(self, header: SegmentHeader, end: int, group_crc: int) -> None:
        self.header = header
        self._seed = header.seed
        self._name = segment_name(header.serial)
        self.end = end
        self._group_crc = group_crc

    @property
    def group_crc(self) -> int:
        """The CRC of the newest group in the open segment; 0 if it has none."""
        return self._group_crc

    @property
    def serial(self) -> int:
        """The serial of the open segment."""
        return self.header.serial

    def write(self, batches: list[Batch], log_time: int) -> None:
        """One group of `batches`, whose positions follow on; sets their offset and header_length.

        Raises: StorageError.
        """
        self._check()
        assert batches[0].position == self.position, "positions have no gaps"
        buffers, group, crc = self._encode(batches, log_time)
        if group.offset + group.length > self.header.size:
            self._roll_over(group.length)
            buffers, group, crc = self._encode(batches, log_time)
        self._failed = True  # until it worked
        self._disk.write(self._name, group.offset, buffers)
        self._failed = False
        self.end = group.offset + group.length
        self._group_crc = crc
        self.position += group.positions

    def sync(self) -> int:
        """Makes everything written durable; the position below which that is so.

        Raises: StorageError.
        """
        self._check()
        target, header = self.position, self.header
        self._failed = True
        self._disk.sync(self._name)
        self._notes += 1
        write_note(self._disk, self._note(header, target))
        self.synced = target
        self._failed = False
        return target

    def begin_generation(self, generation: int) -> None:
        """Seals the open segment; what follows is in a new one, of this generation. Durable when
        it returns, so that no start can draw a lower number.

        Raises: StorageError; "disk_full": nothing has changed.
        """
        self._check()
        self._roll_over(0, generation)
        self._failed = True
        self._notes += 1
        write_note(self._disk, self._note(self.header, self.synced))
        self._disk.sync(NOTE_FILE)
        self._failed = False

    def _note(self, header: SegmentHeader, position: int) -> AckedNote:
        return AckedNote(
            self._notes, header.instance, header.generation, position, header.serial, self.oldest
        )

    def keep_from(self, oldest: int) -> None:
        """Notes durably that segments below `oldest` are given up: only then may they go.

        Raises: StorageError.
        """
        self._check()
        assert self.oldest <= oldest <= self.serial, "the open segment stays"
        self._failed = True
        self.oldest = oldest
        self._notes = give_up(self._disk, self._note(self.header, self.synced))
        self._failed = False

    def has_space(self, length: int) -> bool:
        """True if a group of `length` needs no new file and leaves the reserve."""
        left, next_left = self._left()
        if length > left:
            return next_left - length >= self._reserve
        return next_left >= self._reserve or left - length >= self._reserve

    @property
    def left_bytes(self) -> int:
        """Bytes of the largest group that needs no new file; it may use up the reserve."""
        return max(self._left())

    def _left(self) -> tuple[int, int]:
        """Bytes for one group in the open segment, and in the next one as far as it exists."""
        next_left = max(self._spares[0].certain, self._allocated) - DATA_AT
        return self.header.size - pad(self.end, GROUP_ALIGN), next_left

    def secure(self, length: int) -> bool:
        """Sees to it that a group of `length` has space; False when the disk is too full for that.

        The next segment is allocated for it when it is not filled in time, or never filled.
        Raises: StorageError (never "disk_full").
        """
        if self.has_space(length):
            return True
        self._check()
        needed = pad(DATA_AT + length + self._reserve, 4096)
        try:
            self._allocate(max(self._segment_bytes, needed))
        except StorageError as error:
            if error.code != "disk_full":
                raise
            return False
        return True

    def allocate_next(self) -> None:
        """Reserves the space of the next segment. Raises: StorageError."""
        self._allocate(self._segment_bytes)

    def reuse(self, serial: int, size: int) -> bool:
        """Makes the file of a segment that is given up the next one; False if there is one.

        Its content counts for nothing there: each segment's checksums have a seed of their own.
        Only for logs whose reader takes the first bytes that are not a group for the end.
        """
        if self._allocated:
            return False
        self._disk.rename(segment_name(serial), PLAIN)
        self._allocated = size
        return True

    def prepare_step(self) -> bool:
        """Does one short step towards the next segment; True if there is more to do now.

        Raises: StorageError (never "disk_full": the roll-over is the place to find that out).
        """
        if not self.wants_preparing:
            return False
        spare = next((one for one in self._spares if one.can_step(self.serial)), None)
        return spare is not None and (spare.step(self.serial) or self.wants_preparing)

    @property
    def wants_preparing(self) -> bool:
        """True if a next segment should be made: always one of `files` ahead, or else when this one
        is half full, or a small first one."""
        if not self._files or not any(one.can_step(self.serial) for one in self._spares):
            return False
        size, spare = self.header.size, self._spares[0]
        soon = self.end * 2 >= size or size < self._segment_bytes or spare.begun
        return soon or self._files > 1

    @property
    def must_hurry(self) -> bool:
        """True if the filling should hurry: two bytes for each one that is written.

        So a segment that is half full gets its successor in time, and after the small first
        segment each one is twice as large, until they have the size that is asked for.
        """
        size = self.header.size
        used = self.end if size < self._segment_bytes else self.end - size // 2
        return self._spares[0].filled < min(2 * used, self._segment_bytes)

    def _check(self) -> None:
        if self._failed:
            raise StorageError(
                "disk_error", "this journal failed before", "start again: recovery decides"
            )

    def _encode(self, batches: list[Batch], log_time: int) -> tuple[list[Buffer], GroupHeader, int]:
        return encode_group(batches, self.end, self._seed, log_time, self.synced, self._group_crc)

    def _roll_over(self, length: int, generation: int = 0) -> None:
        """Opens the next segment, with space for a group of `length`; 0: of this generation."""
        if self.synced < self.position:
            self.sync()
        needed = pad(DATA_AT + length, 4096)
        first = self._spares[0]
        spare, size = first.name, first.take(max(needed, min(self._segment_bytes, SHORT_BYTES)))
        if not size:
            if self._allocated < needed:
                self._allocate(max(self._segment_bytes, needed))
            spare, size = PLAIN, self._allocated
        header = self._next_header(size, generation or self.header.generation)
        self._failed = True
        publish(self._disk, spare, header)
        self._failed = False
        if spare == first.name:
            fresh = _Spare(self._disk, self._segment_bytes, first.name)
            self._spares = [*self._spares[1:], fresh]
        else:
            self._allocated = 0
            self.unprepared += bool(self._files)
        self._open(header, DATA_AT, 0)

    def _next_header(self, size: int, generation: int) -> SegmentHeader:
        last = self.header
        return SegmentHeader(
            last.instance, generation, last.serial + 1, self.position, self.position - 1,
            self.end, self._salt(), self._clock.wall_ns(), size,
        )  # fmt: skip

    def _allocate(self, size: int) -> None:
        self._allocated = 0
        discard(self._disk, PLAIN)
        try:
            self._disk.create(PLAIN, size)
        except StorageError:
            discard(self._disk, PLAIN)  # what there is of it takes space that others need
            raise
        self._allocated = size


class _Spare:
    """The next segment while it is being filled with zeros.

        waiting --step--> filling --step...--> ready        filling --disk full--> given up

    A roll-over takes what there is: when the writer is faster than the filling, segments become
    shorter, which costs less than writing to space that was never written. The same on a full disk
    where what was filled until then is enough. The lock lets a step end before the file is taken;
    a step is short.
    certain: bytes that a roll-over finds whatever becomes of the filling, 0 if too few.
    """

    def __init__(self, disk: Disk, size: int, name: str) -> None:
        self.name = name
        self._disk = disk
        self._size = size
        self._short = min(size, SHORT_BYTES)
        self.filled = 0
        self.certain = 0
        self._lock = Lock()
        self.begun = False
        self.ready = False  # nothing more to fill: full, or taken
        self._given_up = 0  # the serial during which there was no space

    def can_step(self, serial: int) -> bool:
        """False when it is ready, or when there was no space during this segment."""
        return not self.ready and self._given_up != serial

    def take(self, least: int) -> int:
        """Ends the filling; the bytes that are filled and durable, 0 if less than `least`."""
        with self._lock:
            if self.filled < least:
                return 0
            if not self.ready:
                self._disk.sync(self.name)
            self.ready = True
            return self.filled

    def step(self, serial: int) -> bool:
        with self._lock:
            if not self.can_step(serial):
                return False
            try:
                self._fill()
            except StorageError as error:
                if error.code != "disk_full":
                    raise
                self._give_up(serial)
            return self.begun and not self.ready

    def _give_up(self, serial: int) -> None:
        """Synced bytes are kept; the rest cannot be trusted after a failure."""
        self.filled, self.ready = self.certain, self.certain > 0
        if not self.certain:
            discard(self._disk, self.name)
            self.begun, self._given_up = False, serial

    def _fill(self) -> None:
        if not self.begun:
            self._disk.create(self.name)
            self.begun = True
        self.filled = fill_step(self._disk, self.name, self.filled, self._size)
        self.ready = self.filled == self._size
        if self.filled >= self._short and (self.ready or self.filled % FILL_SYNC_BYTES == 0):
            self.certain = self.filled  # fill_step synced it
