"""Claims about the benchmarks' own arithmetic and about the raw limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf import limits
from perf.harness import Result, check_disk, checksum, file_system, payloads


def test_payloads_differ_and_have_their_size() -> None:
    bodies = payloads(3_000, 100)
    assert len(set(bodies)) == 3_000
    assert {len(body) for body in bodies} == {100}


def test_the_checksum_is_what_a_reader_adds_up() -> None:
    bodies = payloads(50)
    read = sum(body[11] + 700 + index for index, body in enumerate(bodies))
    assert checksum(bodies, 700) == read


def test_the_share_is_the_median_of_the_rounds() -> None:
    faster = Result("x", "messages/s", [50, 10, 99], [100, 100, 100], "raw", "")
    assert faster.ratio == 0.5
    slower = Result("x", "us", [200, 400, 100], [100, 100, 100], "raw", "", lower_is_better=True)
    assert slower.ratio == 0.5


def test_a_file_system_in_memory_is_refused() -> None:
    if not Path("/dev/shm").exists() or file_system(Path("/dev/shm")) != "tmpfs":
        pytest.skip("other system: /dev/shm is no tmpfs")
    with pytest.raises(SystemExit):
        check_disk(Path("/dev/shm"))


def test_raw_writes_leave_nothing_behind(tmp_path: Path) -> None:
    assert len(limits.synced_writes(tmp_path, 5_000, 7)) == 7
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_raw_frames_arrive_from_another_process() -> None:
    assert limits.raw_frames(100, 10_000, 50) > 0
