"""Real power cuts: what was acknowledged before the cut is there after it.

And without syncs it is not: a rig that loses nothing then would prove nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.engine import Violation, compare, goes_on
from tests.torture.rig import KINDS, Rig, load, needs_rig, pause, rig
from tests.torture.target import Job
from tests.torture.tracing import Target, acked, target, tell
from zbroker.errors import StorageError
from zbroker.log.disk import RealDisk

pytestmark = [pytest.mark.powercut, needs_rig, pytest.mark.timeout(3_600)]

CUTS_PER_LOG = 25  # then a fresh one, so that reading it stays short
CONTROL_LOST_MIN = 0.8
ACKED_WAIT_S = 20.0


@pytest.fixture(scope="module")
def program() -> Iterator[Target]:
    with target() as made:
        yield made


def wait_for_acks(job: Job) -> None:
    deadline = time.monotonic() + ACKED_WAIT_S
    while not acked(job):
        assert time.monotonic() < deadline, "nothing is acknowledged"
        time.sleep(0.005)


def cut_once(power: Rig, job: Job, *, further: bool) -> int:
    """How many messages had been promised by then.

    Raises: Violation, StorageError if any of them is missing.
    """
    promised = acked(job)
    with power.cut() as found:
        disk = RealDisk(found / Path(job.directory).name)
        try:
            engine = compare(disk, promised, segment_bytes=job.segment_bytes)
            if further:
                goes_on(engine)
        finally:
            disk.close()
    return sum(promised.values())


def cuts(power: Rig, program: Target, count: int, seed: int, bug: str = "") -> tuple[int, int]:
    """How many cuts lost something, and how many messages were acknowledged before the cuts."""
    rng, lost, promised, before = random.Random(seed), 0, 0, 0
    for log in range(-(-count // CUTS_PER_LOG)):
        with load(power, program, f"log-{log}", bug) as job:
            wait_for_acks(job)
            for number in range(min(CUTS_PER_LOG, count - log * CUTS_PER_LOG)):
                pause(rng)
                try:
                    before = cut_once(power, job, further=number % 5 == 0)
                except (Violation, StorageError) as error:
                    if not bug:
                        raise Violation(f"cut {number} of log {log}: {error}") from error
                    lost += 1
            promised += before
    return lost, promised


def test_a_power_cut_costs_nothing_acknowledged(program: Target) -> None:
    with rig() as power:
        assert cuts(power, program, 8, seed=1)[1] > 100


def test_without_syncs_a_power_cut_does(program: Target) -> None:
    with rig() as power:
        assert cuts(power, program, 5, seed=1, bug="no sync")[0] >= 5 * CONTROL_LOST_MIN


@pytest.mark.long
def test_five_hundred_power_cuts_cost_nothing_acknowledged(program: Target) -> None:
    with rig() as power:
        _, promised = cuts(power, program, 500, seed=2)
    tell(f"500 cuts, {promised} messages acknowledged before them, 0 lost")


@pytest.mark.long
def test_a_hundred_cuts_without_syncs_lose_in_most(program: Target) -> None:
    with rig() as power:
        lost, _ = cuts(power, program, 100, seed=3, bug="no sync")
    tell(f"without syncs: {lost} of 100 cuts lost something")
    assert lost >= 100 * CONTROL_LOST_MIN


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ext4"])
def test_a_hundred_cuts_of_other_file_systems_cost_nothing(program: Target, kind: str) -> None:
    with rig(kind) as power:
        _, promised = cuts(power, program, 100, seed=4)
    tell(f"{kind}: 100 cuts, {promised} messages acknowledged before them")
