"""Every system call that changes the journal's directory: killed before it, or made to fail.

All of them with scripts/test-all, some with scripts/test.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.engine import Violation, compare, goes_on
from tests.torture.target import Job
from tests.torture.tracing import (
    CALLS,
    Call,
    Target,
    acked,
    count_calls,
    needs_strace,
    scratch,
    target,
    tell,
    traced,
)
from zbroker.errors import StorageError
from zbroker.log.disk import RealDisk
from zbroker.log.segments import PLAIN, SPARE
from zbroker.server.process import EX_STORAGE

pytestmark = [pytest.mark.process, needs_strace, pytest.mark.timeout(1_800)]

FAILING = ("pwritev2", "fdatasync", "fsync", "fallocate", "rename", "unlink")
SAMPLE = 2  # points of each call in scripts/test
ROUNDS, LIVES = 12, 3
TORN_ROUNDS = 3


@pytest.fixture(scope="module")
def program() -> Iterator[Target]:
    with target() as made:
        yield made


@pytest.fixture
def directory() -> Iterator[Path]:
    with scratch() as made:
        yield made


def job_in(directory: Path, name: str, history: str) -> Job:
    """A journal to go on with: left-overs only, or one whose open segment has a torn tail."""
    data = directory / name
    data.mkdir()
    job = Job(str(data), str(directory / f"{name}.acks"), ROUNDS, LIVES)
    for left_over in (SPARE, PLAIN):  # of a process that was killed while it filled them
        (data / left_over).write_bytes(b"\x77" * 9_000)
    if history == "torn":
        shutil.copytree(directory / "torn", data, dirs_exist_ok=True)
        job.rounds = TORN_ROUNDS
    return job


def make_torn(program: Target, directory: Path) -> None:
    """What a power cut may leave: a group, then one without its middle, then a whole one."""
    job = Job(str(directory / "torn"), str(directory / "torn.acks"), 2, 1)
    Path(job.directory).mkdir()
    pid = program.start(job)
    os.kill(pid, signal.SIGUSR1)
    assert program.exit_code() == 0
    disk = RealDisk(Path(job.directory))
    end = compare(disk, acked(job), segment_bytes=job.segment_bytes).writer.end
    disk.write("0000000001.journal", end + 700, [b"torn" * 400])
    disk.close()


def judge(job: Job) -> None:
    """The next start has everything that was acknowledged, and goes on."""
    disk = RealDisk(Path(job.directory))
    try:
        goes_on(compare(disk, acked(job), segment_bytes=job.segment_bytes))
    finally:
        disk.close()


def points(counted: int, *, everything: bool) -> list[int]:
    """Which of `counted` calls to take: all, or some with the first and the last among them."""
    if everything or counted <= SAMPLE:
        return list(range(1, counted + 1))
    return sorted({1 + (counted - 1) * n // (SAMPLE - 1) for n in range(SAMPLE)})


def expected_calls(program: Target, directory: Path, history: str) -> dict[str, int]:
    job = job_in(directory, "count", history)
    code, calls = traced(program, job)
    assert code == 0
    judge(job)
    counted = count_calls(calls)
    assert history == "torn" or all(counted[name] for name in CALLS), counted
    return counted


def kill_at_each(program: Target, directory: Path, history: str, *, everything: bool) -> int:
    if history == "torn":
        make_torn(program, directory)
    done = 0
    for name, counted in expected_calls(program, directory, history).items():
        for k in points(counted, everything=everything):
            job = job_in(directory, f"{name}-{k}", history)
            code, _ = traced(program, job, f"{name}:signal=SIGKILL:when={k}")
            assert code == -signal.SIGKILL, f"{name} {k}: exit code {code}"
            explain(f"killed at {name} {k} of {counted}", job)
            done += 1
    return done


def explain(what: str, job: Job) -> None:
    """Judges; a failure says where it was, and the directory stays there to be looked at."""
    try:
        judge(job)
    except (Violation, StorageError) as error:
        pytest.fail(f"{what}: {error}")
    shutil.rmtree(job.directory)


@pytest.mark.parametrize("history", ["fresh", "torn"])
def test_a_kill_at_some_calls_costs_nothing_acknowledged(
    program: Target, directory: Path, history: str
) -> None:
    assert kill_at_each(program, directory, history, everything=False) >= 2 * SAMPLE


@pytest.mark.long
@pytest.mark.parametrize("history", ["fresh", "torn"])
def test_a_kill_at_every_call_costs_nothing_acknowledged(
    program: Target, directory: Path, history: str
) -> None:
    done = kill_at_each(program, directory, history, everything=True)
    tell(f"{history}: killed at {done} system calls")
    assert done >= {"fresh": 150, "torn": 40}[history]


def fail_at_each(
    program: Target, directory: Path, error: str, *, sticky: bool, everything: bool
) -> int:
    counted, done = expected_calls(program, directory, "fresh"), 0
    for name in FAILING:
        for k in points(counted[name], everything=everything):
            job = job_in(directory, f"{name}-{k}", "fresh")
            when = f"{k}+" if sticky else str(k)
            code, calls = traced(program, job, f"{name}:error={error}:when={when}")
            what = f"{error} at {name} {when} of {counted[name]}"
            assert code in (0, EX_STORAGE), f"{what}: exit code {code}"
            assert code or not must_stop(calls), f"{what}: the failure was not noticed"
            touched = touched_again(calls) if error != "ENOSPC" else []
            assert not touched, f"{what}: tried again: {touched}"
            explain(what, job)
            done += 1
    return done


def must_stop(calls: list[Call]) -> bool:
    """A write or sync of what stands for data failed: not of a spare file, which is thrown away."""
    failed = [call for call in calls if call.failed]
    return any(
        call.name == "fsync" or (call.file.endswith(".journal") and call.name == "fdatasync")
        for call in failed
    )


def touched_again(calls: list[Call]) -> list[Call]:
    """Writes and syncs of a file after its first failed one: they may succeed without the data."""
    broken: set[str] = set()
    again = []
    for call in calls:
        if call.name in ("pwritev2", "fdatasync", "fsync") and call.file in broken:
            again.append(call)
        if call.failed and call.name in ("pwritev2", "fdatasync", "fsync"):
            broken.add(call.file)
    return again


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_errors_of_some_calls_make_no_false_ack(
    program: Target, directory: Path, error: str
) -> None:
    assert fail_at_each(program, directory, error, sticky=False, everything=False) > 5


@pytest.mark.long
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_errors_of_every_call_make_no_false_ack(
    program: Target, directory: Path, error: str, sticky: bool
) -> None:
    done = fail_at_each(program, directory, error, sticky=sticky, everything=True)
    tell(f"{error}, sticky {sticky}: {done} system calls failed")
    assert done >= 150


# -- the rig must be able to fail --


def test_an_ack_before_the_write_is_found(program: Target, directory: Path) -> None:
    for k in range(20, 60):
        job = job_in(directory, str(k), "fresh")
        job.bug = "ack before write"
        traced(program, job, f"pwritev2:signal=SIGKILL:when={k}")
        try:
            judge(job)
        except Violation:
            return
    pytest.fail("was not found at any of 40 writes")


def test_a_sync_that_is_tried_again_is_found(program: Target, directory: Path) -> None:
    job = job_in(directory, "again", "fresh")
    job.bug = "sync retried"
    _, calls = traced(program, job, "fdatasync:error=EIO:when=12")
    assert touched_again(calls)
