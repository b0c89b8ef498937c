"""zbroker/admin/leases.py: a lease outlives the journal process and this one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.admin.desk import Clock, Journal
from zbroker.admin.leases import HoldLeases
from zbroker.errors import ClientError
from zbroker.wire import internal as m

LOG = logging.getLogger("test")
HOLDING = m.Holding("backup", "copies", 7, 0)


class Bench:
    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        journal: Any = Journal(lambda: pytest.fail("nobody asks for files"))
        self.journal = journal
        self.path = path
        self.leases = self.reopened()

    def reopened(self) -> HoldLeases:
        return HoldLeases(self.path, self.clock, LOG)

    def told(self) -> list[tuple[str, int]]:
        asked = [ask for ask in self.journal.asked if isinstance(ask, m.Lease)]
        self.journal.asked.clear()
        return [(ask.holding.who, ask.ttl_ms) for ask in asked]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "leases.json")


def test_a_lease_outlives_the_admin(bench: Bench) -> None:
    bench.leases.hold(bench.journal, HOLDING, 60)
    bench.told()
    bench.clock.seconds += 20
    bench.reopened().secure(bench.journal)
    assert bench.told() == [("backup", 40_000)]


def test_a_journal_is_told_once(bench: Bench) -> None:
    bench.leases.hold(bench.journal, HOLDING, 60)
    bench.leases.secure(bench.journal)
    bench.told()
    bench.leases.secure(bench.journal)
    assert bench.told() == []


def test_a_lease_ends_with_its_time(bench: Bench) -> None:
    bench.leases.hold(bench.journal, HOLDING, 60)
    bench.told()
    bench.clock.seconds += 60
    bench.leases.secure(bench.journal)
    assert bench.told() == []


def test_a_lease_can_be_ended(bench: Bench) -> None:
    bench.leases.hold(bench.journal, HOLDING, 60)
    bench.leases.hold(bench.journal, HOLDING, 0)
    assert bench.told() == [("backup", 60_000), ("backup", 0)]
    bench.reopened().secure(bench.journal)
    assert bench.told() == []


def test_a_lease_that_is_refused_is_not_kept(bench: Bench) -> None:
    bench.journal.refuse[m.Lease] = ("bookmark_expired", "gone")
    with pytest.raises(ClientError, match="gone"):
        bench.leases.hold(bench.journal, HOLDING, 60)
    bench.journal.refuse.clear()
    bench.told()
    bench.leases.secure(bench.journal)
    assert bench.told() == []


def test_a_lease_that_is_void_is_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.leases.hold(bench.journal, HOLDING, 60)
    bench.journal.refuse[m.Lease] = ("bookmark_expired", "gone")
    bench.reopened().secure(bench.journal)
    assert "the lease of backup is void: gone" in caplog.text


def test_without_a_journal_nothing_is_secured(bench: Bench) -> None:
    bench.journal.welcome = None
    with pytest.raises(ClientError, match="not_ready"):
        bench.leases.secure(bench.journal)


def test_a_damaged_file_is_told_and_begun_anew(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.path.write_bytes(b"{")
    again = bench.reopened()
    assert "leases of an earlier run are lost" in caplog.text
    again.hold(bench.journal, HOLDING, 60)
    bench.told()
    bench.reopened().secure(bench.journal)
    assert bench.told() == [("backup", 60_000)]
