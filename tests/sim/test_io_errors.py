"""The k-th operation on the disk fails, for every k, once and for good; the k-th write is short.

Nothing is acknowledged falsely, no failed file is synced or written again by the same process, the
writer refuses everything from then on, and the next start has all that was acknowledged.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.sim.disk import SimDisk
from tests.torture.engine import SEGMENT_BYTES, Acked, Engine, Violation, compare, goes_on, play
from zbroker.errors import Bug, StorageError
from zbroker.log.disk import Buffer, RealDisk

ROUNDS = 24  # over several roll-overs and unfinished spare files


class WatchedDisk(SimDisk):
    """Tells when a file is touched again whose write or sync failed. A full disk is no failure."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed))
        self.broken: set[str] = set()

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        self._watched(name, "written")
        try:
            super().write(name, offset, buffers)
        except StorageError as error:
            self._fails_for_good(name, error)
            raise

    def sync(self, name: str) -> None:
        self._watched(name, "synced")
        try:
            super().sync(name)
        except StorageError as error:
            self._fails_for_good(name, error)
            raise

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if old in self.broken:
            raise Violation(f"{old} became {new} after it failed")

    def unlink(self, name: str) -> None:
        super().unlink(name)
        self.broken.discard(name)

    def crash(self) -> None:
        super().crash()
        self.broken.clear()
        self.count_reads = False

    def _watched(self, name: str, what: str) -> None:
        if name in self.broken:
            raise Violation(f"{name} is {what} again after it failed")

    def _fails_for_good(self, name: str, error: StorageError) -> None:
        if error.code != "disk_full":
            self.broken.add(name)


class RetryingDisk(WatchedDisk):
    """A planted bug: tries a failed sync again."""

    def sync(self, name: str) -> None:
        try:
            super().sync(name)
        except StorageError:
            super().sync(name)


def live(disk: SimDisk, acked: Acked, rounds: int = ROUNDS) -> StorageError | None:
    """One life; the error that ended it."""
    engine = None
    try:
        engine = Engine(disk, salt=random.Random(5).getrandbits(64).__int__)
        play(engine, rounds, acked.update)
    except StorageError as error:
        if engine is not None and error.code != "disk_full":
            fail_stop(engine)
        return error
    return None


def fail_stop(engine: Engine) -> None:
    """A writer that failed does nothing any more, unless it was the filling ahead that failed."""
    if not engine.writer._failed:
        return
    operations = engine.disk.operations  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        engine.writer.sync()
    with pytest.raises(Bug, match="has failed before"):
        engine.process.turn()
    assert engine.disk.operations == operations  # type: ignore[attr-defined]


def operations_of_a_life(*, reads: bool = False) -> int:
    disk = SimDisk(random.Random(1))
    disk.count_reads = reads
    assert live(disk, {}) is None
    return disk.operations


def fails_at(k: int, number: int, *, sticky: bool, power: bool, make: type[WatchedDisk]) -> None:
    disk, acked = make(k), Acked()
    disk.fail_at, disk.fail_errno, disk.sticky = k, number, sticky
    error = live(disk, acked)
    expected = "disk_full" if number == errno.ENOSPC else "disk_error"
    assert error is None or error.code == expected, error
    assert error is not None or number == errno.ENOSPC, "the failure was not noticed"
    if power:
        disk.power_cut()
    else:
        disk.crash()
    goes_on(compare(disk, acked))


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_no_failing_operation_makes_a_false_ack(number: int, sticky: bool, power: bool) -> None:
    count = operations_of_a_life()
    assert count > 80
    for k in range(1, count + 1):
        try:
            fails_at(k, number, sticky=sticky, power=power, make=WatchedDisk)
        except (Violation, StorageError) as error:
            pytest.fail(f"operation {k} of {count}: {error}")


def test_a_disk_that_is_full_from_any_operation_on_refuses_only() -> None:
    """No more space from the k-th operation on, for every k: whatever grows fails, nothing else."""
    count, refusals = operations_of_a_life(), 0
    for k in range(1, count + 1):
        disk, acked = WatchedDisk(1), Acked()
        engine = Engine(disk, salt=random.Random(5).getrandbits(64).__int__)
        disk.hook = lambda _, disk=disk, k=k: disk.operations >= k and fill_up(disk)
        play(engine, ROUNDS, acked.update)
        refusals += len(engine.refused)
        disk.hook = lambda _: None
        _goes_on_when_there_is_space(disk, engine, acked)
    assert refusals > 100, "the disk was never full"


def fill_up(disk: SimDisk) -> None:
    disk.capacity -= disk.free_bytes()


def _goes_on_when_there_is_space(disk: WatchedDisk, engine: Engine, acked: Acked) -> None:
    assert all(item.code in ("disk_full", "sequence_gap") for item in engine.refused)
    disk.fail_at, disk.capacity = 0, 1 << 30
    refused = len(engine.refused)
    play(engine, ROUNDS, acked.update)
    assert len(engine.refused) == refused, "space is back, and publishers are refused"
    disk.power_cut()
    goes_on(compare(disk, acked))


def test_a_disk_that_fills_up_at_any_byte_refuses_only() -> None:
    refusals = 0
    for free in range(0, 4 * SEGMENT_BYTES, 977):
        disk, acked = WatchedDisk(free), Acked()
        engine = Engine(disk)
        disk.capacity = disk.capacity - disk.free_bytes() + free
        play(engine, ROUNDS, acked.update)
        refusals += len(engine.refused)
        _goes_on_when_there_is_space(disk, engine, acked)
    assert refusals > 100, "the disk was never full"


def test_a_failing_read_never_costs_what_was_acknowledged() -> None:
    """Recovery refuses, or takes it for damage that the next start may find whole."""
    acked = Acked()
    disk = WatchedDisk(1)
    live(disk, acked)
    disk.crash()
    disk.count_reads, disk.operations = True, 0
    Engine(disk)
    for k in range(1, disk.operations + 1):
        _fails_to_read(k)


def _fails_to_read(k: int) -> None:
    disk, acked = WatchedDisk(1), Acked()
    live(disk, acked)
    disk.crash()
    disk.count_reads, disk.operations, disk.fail_at = True, 0, k
    error = _error_of(lambda: Engine(disk))
    assert error is None or error.code in ("disk_error", "tail_damaged"), f"operation {k}: {error}"
    disk.crash()
    goes_on(compare(disk, acked))


def _error_of(act: Callable[[], object]) -> StorageError | None:
    try:
        act()
    except StorageError as error:
        return error
    return None


def test_a_sync_that_is_tried_again_is_noticed() -> None:
    """Or else the watching proves nothing."""
    with pytest.raises(Violation, match="again"):
        all_retried()


def all_retried() -> None:
    for k in range(1, operations_of_a_life() + 1):
        fails_at(k, errno.EIO, sticky=False, power=False, make=RetryingDisk)


class ShortDisk(RealDisk):
    """The k-th write to it is short; the one that continues it may fail."""

    def __init__(self, directory: Path, k: int, then: int = 0) -> None:
        super().__init__(directory)
        self.writes = 0
        self._k = k
        self._then = then

    def _write_some(self, fd: int, offset: int, buffers: Sequence[Buffer]) -> int:
        self.writes += 1
        if self.writes == self._k:
            data = b"".join(buffers)
            return os.pwrite(fd, data[: 1 + self._k * 977 % len(data)], offset)
        if self.writes > self._k and self._then:
            raise OSError(self._then, os.strerror(self._then))
        return super()._write_some(fd, offset, buffers)

    def sync(self, name: str) -> None:
        """Nothing loses power here."""

    def sync_dir(self) -> None:
        """Likewise."""


EXPECTED = {0: "none: it is continued", errno.EIO: "disk_error", errno.ENOSPC: "disk_full"}


@pytest.mark.parametrize("then", EXPECTED)
def test_no_short_write_makes_a_false_ack(then: int, tmp_path: Path) -> None:
    first = ShortDisk(_made(tmp_path / "count"), 0)
    play(Engine(first), ROUNDS, lambda _: None)
    count = first.writes
    first.close()
    for k in range(1, count + 1):
        directory, acked = _made(tmp_path / str(k)), Acked()
        disk = ShortDisk(directory, k, then)
        error = _error_of(lambda: play(Engine(disk), ROUNDS, acked.update))  # noqa: B023 - at once
        if error is None:
            assert then != errno.EIO, f"write {k}: the error was not noticed"
        else:
            assert error.code == EXPECTED[then], f"write {k}: {error}"
        disk.close()
        again = ShortDisk(directory, 0)
        goes_on(compare(again, acked))
        again.close()
        for path in directory.iterdir():
            path.unlink()


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


assert SEGMENT_BYTES < 32 * 1024, "small enough that a short life rolls over"
