"""The contract of a Disk, real and simulated; then what only one of them can show."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.sim.disk import SimDisk
from zbroker.errors import StorageError
from zbroker.limits import GROUP_BUFFERS_MAX
from zbroker.log.disk import Buffer, Disk, RealDisk
from zbroker.log.segments import read_around


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made: Disk = RealDisk(tmp_path) if request.param == "real" else SimDisk(random.Random(1))
    yield made
    made.close()


def test_a_new_file_is_listed_with_its_size(disk: Disk) -> None:
    disk.create("a")
    disk.create("b", 5_000)
    assert sorted(disk.list()) == [("a", 0), ("b", 5_000)]
    assert [disk.exists(name) for name in ("a", "b", "c")] == [True, True, False]


def test_reserved_space_reads_as_zeros(disk: Disk) -> None:
    disk.create("b", 5_000)
    assert disk.read("b", 0, 6_000) == bytes(5_000)


def test_an_existing_file_is_not_created_again(disk: Disk) -> None:
    disk.create("a")
    with pytest.raises(StorageError, match="exists"):
        disk.create("a")


def test_buffers_are_written_one_after_the_other(disk: Disk) -> None:
    disk.create("a")
    disk.write("a", 3, [b"one", memoryview(b"two"), b"", bytearray(b"three")])
    assert disk.read("a", 0, 100) == b"\0\0\0onetwothree"


def test_more_buffers_than_one_call_takes_are_all_written(disk: Disk) -> None:
    buffers = [bytes([i % 251]) for i in range(2 * GROUP_BUFFERS_MAX + 7)]
    disk.create("a")
    disk.write("a", 0, buffers)
    assert disk.read("a", 0, len(buffers)) == b"".join(buffers)


def test_a_read_at_the_end_is_short(disk: Disk) -> None:
    disk.create("a")
    disk.write("a", 0, [b"12345"])
    assert disk.read("a", 3, 10) == b"45"
    assert disk.read("a", 9, 10) == b""


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 20_000), (1, 4_095), (4_097, 9_000), (9_990, 100), (20_000, 5)]
)
def test_a_direct_read_shows_the_same_bytes(disk: Disk, offset: int, size: int) -> None:
    content = random.Random(2).randbytes(10_001)
    disk.create("a")
    disk.write("a", 0, [content])
    disk.sync("a")
    assert disk.read_direct("a", offset, size) == content[offset : offset + size]


def test_a_renamed_file_has_its_content_under_the_new_name(disk: Disk) -> None:
    disk.create("a")
    disk.write("a", 0, [b"x"])
    disk.rename("a", "b")
    disk.sync_dir()
    disk.write("b", 1, [b"y"])
    assert (disk.list(), disk.read("b", 0, 9)) == ([("b", 2)], b"xy")


def test_a_rename_never_replaces_a_file(disk: Disk) -> None:
    disk.create("a")
    disk.create("b")
    with pytest.raises(StorageError, match="exists"):
        disk.rename("a", "b")


def test_a_removed_file_is_missing(disk: Disk) -> None:
    disk.create("a")
    disk.unlink("a")
    with pytest.raises(StorageError) as caught:
        disk.read("a", 0, 1)
    assert (caught.value.code, disk.list()) == ("file_missing", [])


def test_a_second_writer_is_refused(disk: Disk) -> None:
    disk.lock()
    with pytest.raises(StorageError) as caught:
        disk.lock()
    assert caught.value.code == "second_writer"


def test_the_lock_ends_with_close(disk: Disk) -> None:
    disk.lock()
    disk.close()
    disk.lock()


def test_there_is_free_space(disk: Disk) -> None:
    assert disk.free_bytes() > 1_000_000


# -- the real one --


def test_the_refusal_names_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from zbroker.log.disk import RealDisk\n"
        "disk = RealDisk(Path(sys.argv[1])); disk.lock()\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(StorageError, match=f"process {other.pid}"):
            RealDisk(tmp_path).lock()
        other.communicate(timeout=10)


class Stingy(RealDisk):
    """Writes at most seven bytes at once."""

    def _write_some(self, fd: int, offset: int, buffers: Sequence[Buffer]) -> int:
        return super()._write_some(fd, offset, [b"".join(buffers)[:7]])


def test_a_short_write_is_continued(tmp_path: Path) -> None:
    disk = Stingy(tmp_path)
    disk.create("a")
    disk.write("a", 0, [b"0123456789", b"ab", b"cdefghijk"])
    assert disk.read("a", 0, 100) == b"0123456789abcdefghijk"


class Full(RealDisk):
    def _write_some(self, fd: int, offset: int, buffers: Sequence[Buffer]) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_missing_space_has_a_code_of_its_own(tmp_path: Path) -> None:
    disk = Full(tmp_path)
    disk.create("a")
    with pytest.raises(StorageError) as caught:
        disk.write("a", 0, [b"x"])
    assert caught.value.code == "disk_full"


def test_many_files_need_few_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    for number in range(150):
        disk.create(f"{number}")
        disk.write(f"{number}", 0, [b"x"])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(150):
        assert disk.read(f"{number}", 0, 1) == b"x"
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


# -- the simulator's --


def synced(disk: SimDisk, content: bytes) -> None:
    disk.create("a")
    disk.write("a", 0, [content])
    disk.sync("a")
    disk.sync_dir()


def test_a_crash_of_the_process_loses_nothing_that_was_written() -> None:
    disk = SimDisk(random.Random(1))
    disk.create("a")
    disk.write("a", 0, [b"x" * 5_000])
    disk.crash()
    assert disk.read("a", 0, 5_000) == b"x" * 5_000


def test_a_power_cut_keeps_what_was_synced() -> None:
    for seed in range(50):
        disk = SimDisk(random.Random(seed))
        synced(disk, b"x" * 5_000)
        disk.write("a", 2_560, [b"y" * 700])
        disk.power_cut()
        found = disk.read("a", 0, 5_000)
        assert found[:2_560] == b"x" * 2_560
        assert found[2_560 + 1_024 :] == b"x" * (5_000 - 2_560 - 1_024)


def test_a_power_cut_may_lose_what_was_not_synced() -> None:
    def content_after_cut(seed: int) -> bytes:
        disk = SimDisk(random.Random(seed))
        synced(disk, bytes(2_048))
        disk.write("a", 0, [b"y" * 2_048])
        disk.power_cut()
        return disk.read("a", 0, 2_048)

    found = {content_after_cut(seed) for seed in range(50)}
    assert bytes(2_048) in found
    assert b"y" * 2_048 in found
    assert len(found) > 10


def test_a_name_that_was_not_synced_may_vanish() -> None:
    found = set()
    for seed in range(50):
        disk = SimDisk(random.Random(seed))
        synced(disk, b"x")
        disk.rename("a", "b")
        disk.power_cut()
        found.add(disk.list()[0][0])
    assert found == {"a", "b"}


def test_a_failed_fsync_is_not_made_good_by_a_second_one() -> None:
    lost = 0
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        synced(disk, bytes(512))
        disk.write("a", 0, [b"y" * 512])
        disk.fail_at = disk.operations + 1
        with pytest.raises(StorageError):
            disk.sync("a")
        disk.sync("a")
        lost += disk.read_direct("a", 0, 512) == bytes(512)
    assert 0 < lost < 20


def test_a_sticky_fault_stays() -> None:
    disk = SimDisk(random.Random(1))
    disk.fail_at, disk.sticky = 1, True
    for _ in range(3):
        with pytest.raises(StorageError):
            disk.create("a")


def test_a_full_disk_refuses_with_its_code() -> None:
    disk = SimDisk(random.Random(1), capacity=1_000)
    disk.create("a", 900)
    with pytest.raises(StorageError) as caught:
        disk.create("b", 200)
    assert caught.value.code == "disk_full"


def test_only_unreadable_pages_are_read_as_zeros() -> None:
    disk = SimDisk(random.Random(1))
    synced(disk, b"x" * 20_000)
    disk.unreadable = {("a", 9)}
    with pytest.raises(StorageError):
        disk.read("a", 0, 20_000)
    found = read_around(disk.read, "a", 100, 19_900)
    assert found == b"x" * 3_996 + bytes(4_096) + b"x" * (20_000 - 8_192)


def test_a_file_that_is_renamed_during_the_listing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "0000000001.journal").write_bytes(b"x")
    stop = threading.Event()

    def rename() -> None:
        while not stop.is_set():
            (tmp_path / "next.prepared").write_bytes(b"y")
            (tmp_path / "next.prepared").rename(tmp_path / "0000000002.journal")
            (tmp_path / "0000000002.journal").unlink()

    thread = threading.Thread(target=rename)
    thread.start()
    try:
        for _ in range(3_000):
            assert ("0000000001.journal", 1) in RealDisk(tmp_path, read_only=True).list()
    finally:
        stop.set()
        thread.join(10)
