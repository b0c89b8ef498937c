"""Archive, compress, remove, export and repair, killed at every system call that changes a file.

Nothing of the log is lost, and what was half done is finished or undone: by the next start, and by
the same command once more. All calls with scripts/test-all, some with scripts/test.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.engine import Acked, Engine, compare, demand, goes_on, judge, play
from tests.torture.target import Job
from tests.torture.tracing import Target, count_calls, needs_strace, scratch, target, tell, traced
from zbroker.errors import StorageError
from zbroker.log.archive import tidy
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces
from zbroker.log.segments import segment_name

pytestmark = [pytest.mark.process, needs_strace, pytest.mark.timeout(1_800)]

ROUNDS = 30
EXCEPT = ("write",)  # to the terminal and of the interpreter


@pytest.fixture(scope="module")
def program() -> Iterator[Target]:
    with target() as made:
        yield made


@pytest.fixture(scope="module")
def base() -> Iterator[tuple[Path, Acked]]:
    """A data directory with some sealed segments."""
    with scratch() as directory:
        journal = directory / "data" / "journal"
        journal.mkdir(parents=True)
        disk = RealDisk(journal)
        engine = Engine(disk)
        play(engine, ROUNDS, lambda _: None)
        disk.close()
        yield directory / "data", dict(engine.acked)


#: what is run
COMMANDS = {
    "archive": ("journal", "archive", "--all-sealed"),
    "compress": ("journal", "compress", "--all-sealed"),
    "remove": ("journal", "remove", "--through", "3"),
    "export": ("journal", "export", "--output", "OUT"),
    "repair": ("journal", "repair", "--output", "OUT"),
}


class Case:
    """One copy of the data directory, and the command on it."""

    def __init__(self, directory: Path, base: Path, what: str) -> None:
        self.what = what
        self.data = directory / "data"
        self.out = directory / "out"
        shutil.copytree(base, self.data)
        words = [str(self.out) if word == "OUT" else word for word in COMMANDS[what]]
        command = ["--data-dir", str(self.data), *words]
        self.job = Job(str(self.data), str(directory / "acks"), command=command)

    def disks(self, data: Path | None = None) -> tuple[RealDisk, RealDisk]:
        data = data or self.data
        return RealDisk(data / "journal"), RealDisk(data / "archive")

    def judge(self, acked: Acked) -> None:
        """The next start has everything that was not removed; nothing unfinished is left."""
        disk, archive = self.disks()
        engine = compare(disk, acked, archive=archive)
        places = SegmentPlaces(disk, archive)
        for place in engine.recovered.leftovers:
            places.unlink(place)
        tidy(places)
        left = [p.name for p in self.data.rglob("*.part")]
        demand(not left, f"{left} are left over")
        oldest = engine.recovered.oldest
        demand(self.what == "remove" or not oldest, f"removed below {oldest}")
        goes_on(engine)
        disk.close()
        archive.close()

    def judge_output(self, acked: Acked) -> None:
        """A directory that has its name is whole."""
        if self.out.exists():
            disk, archive = self.disks(self.out)
            places = SegmentPlaces(disk, archive)
            end = compare(disk, acked, archive=archive).recovered.next_position
            judge(disk, end, archive=archive)
            places.close()


def kill_at_each(program: Target, base: tuple[Path, Acked], what: str, *, everything: bool) -> int:
    data, acked = base
    done = 0
    for name, counted in counts(program, base, what).items():
        for k in range(1, counted + 1) if everything else [(counted + 1) // 2]:
            with scratch() as directory:
                case = Case(directory, data, what)
                code, _ = traced(program, case.job, f"{name}:signal=SIGKILL:when={k}")
                assert code == -signal.SIGKILL, f"{what}, {name} {k}: exit code {code}"
                try:
                    case.judge(acked)
                    case.judge_output(acked)
                    again(program, case, acked)
                except (AssertionError, StorageError) as error:
                    pytest.fail(f"{what} killed at {name} {k} of {counted}: {error}")
                done += 1
    return done


def again(program: Target, case: Case, acked: Acked) -> None:
    """The same command once more: it comes to its end, unless the start removed all it names."""
    shutil.rmtree(case.out, ignore_errors=True)
    code, _ = traced(program, case.job)
    removed = case.what == "remove" and not (case.data / "journal" / segment_name(3)).exists()
    demand(code == 0 or removed, f"once more: exit code {code}")
    case.judge(acked)
    case.judge_output(acked)


def counts(program: Target, base: tuple[Path, Acked], what: str) -> dict[str, int]:
    data, acked = base
    with scratch() as directory:
        case = Case(directory, data, what)
        code, calls = traced(program, case.job)
        assert code == 0, f"{what}: exit code {code}"
        case.judge(acked)
        case.judge_output(acked)
    counted = count_calls(calls)
    assert counted["rename"] or counted["unlink"], f"{what} did nothing: {counted}"
    return {name: number for name, number in counted.items() if name not in EXCEPT}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_killed_action_loses_nothing(
    program: Target, base: tuple[Path, Acked], what: str
) -> None:
    assert kill_at_each(program, base, what, everything=False) >= 2


@pytest.mark.long
@pytest.mark.parametrize("what", COMMANDS)
def test_an_action_killed_at_every_call_loses_nothing(
    program: Target, base: tuple[Path, Acked], what: str
) -> None:
    done = kill_at_each(program, base, what, everything=True)
    tell(f"{what}: killed at {done} system calls")
