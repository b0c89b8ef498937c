"""Who may ask for what, and in which order a removal happens."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.journal.build import INSTANCE, append, start, writer
from tests.sim.disk import SimDisk
from zbroker.config import Config, DeliveryConfig, LimitsConfig
from zbroker.errors import ClientError, StorageError
from zbroker.journal.core import JournalCore, Send, Settings
from zbroker.journal.fold import Fold
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.requests import RETRY_MS, Requests
from zbroker.journal.stages import STAGED_MS, LinkRow, StageRow
from zbroker.journal.startup import Opened
from zbroker.limits import U63_MAX
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.references import Reference
from zbroker.log.segments import list_segments, read_note, segment_name
from zbroker.wire import internal as m

ADMIN, DELIVERY, QUEUES, STRANGER = b"a", b"d", b"q", b"s"
MINE = 7


class Index:
    """Remembers what it was told to forget."""

    forgot = 0

    def forget_before(self, floor: int) -> None:
        self.forgot = floor


class Reindexing:
    """Begins what the test ends."""

    told: Callable[[Exception | None], None] | None = None

    def begin(self, told: Callable[[Exception | None], None]) -> None:
        if self.told is not None:
            raise ClientError("too_many", "one at a time")
        self.told = told


class Bench:
    """A log of five segments with a snapshot in the newest one, an admin, delivery and queues."""

    def __init__(self, workers: int = 1) -> None:
        self.config = Config(delivery=DeliveryConfig(workers=workers))
        self.disk, self.archive = SimDisk(random.Random(1)), SimDisk(random.Random(2))
        self.writer = writer(self.disk, start(self.disk))
        while self.writer.serial < 5:
            append(self.writer, b"x" * 2_000)
        self.core = JournalCore(
            Settings(INSTANCE, MINE), Fold(INSTANCE).sessions, 1, self.writer.position, 0
        )
        self.core.serial = self.core.state_serial = 5
        rooms = {ADMIN: "admin", DELIVERY: "delivery", QUEUES: "queues", STRANGER: "ingest"}
        for rid, room in rooms.items():
            self.core.receive(rid, m.Hello(room, 1), [])
        self.sent: list[Send] = []
        self.now_ms = 0
        self.index, self.reindexing = Index(), Reindexing()
        self.woken = threading.Semaphore(0)
        self.janitor = Helpers("test", 1, self.woken.release)
        self.requests = self.made([])

    def made(self, leftovers: list[Any]) -> Requests:
        log = Log(places=SegmentPlaces(self.disk, self.archive))
        opened = Opened(
            self.core, self.writer, log, cast(Any, None), cast(Any, self.index),
            cast(Any, self.disk), cast(Any, self.archive), [], leftovers,
        )  # fmt: skip
        clock = SimpleNamespace(
            mono_ms=lambda: self.now_ms, wall_ns=lambda: self.now_ms * 1_000_000
        )
        process = SimpleNamespace(clock=clock, log=logging.getLogger("test"), config=self.config)
        return Requests(
            cast(Any, process), opened, self.sent.append, self.janitor, cast(Any, self.reindexing)
        )

    def ask(self, ask: Any, rid: bytes = ADMIN) -> Any:
        """The answer, if there is one at once."""
        before = len(self.sent)
        self.requests.handle(rid, ask)
        answers = [send.message for send in self.sent[before:] if send.rid == rid]
        return answers[0] if answers else None

    def remove(self, through: int, **more: Any) -> m.Removal:
        removal = self.ask(m.Remove(1, MINE, through, **more))
        assert isinstance(removal, m.Removal)
        return removal

    def holds(self, lowest: int = U63_MAX) -> None:
        """Queues need nothing; delivery what is said."""
        self.ask(m.Holds(MINE, self.core.floor, U63_MAX), QUEUES)
        self.ask(m.Holds(MINE, self.core.floor, lowest), DELIVERY)

    def step(self) -> None:
        if self.requests.due:
            self.requests.step(self.now_ms)

    def work(self) -> None:
        """Lets the helper thread end what it does."""
        assert self.woken.acquire(timeout=10)
        self.janitor.finish()

    @property
    def serials(self) -> list[int]:
        return [serial for serial, _ in list_segments(self.disk)]

    @property
    def oldest(self) -> int:
        note = read_note(self.disk)
        assert note is not None
        return note.oldest


@pytest.fixture
def bench() -> Any:
    made = Bench()
    made.holds()
    yield made
    made.janitor.close()


def test_only_the_admin_may_ask(bench: Bench) -> None:
    asks: list[Any] = [
        m.AskHolders(1, MINE),
        m.Remove(1, MINE, 3),
        m.Retire(1, MINE, 1, archived=False, packed=False),
        m.Reindex(1, MINE),
        m.Lease(1, MINE, m.Holding("a", "", 1, 0), 1_000),
    ]
    for ask in asks:
        for rid in (DELIVERY, QUEUES, STRANGER, b"nobody"):
            assert bench.ask(ask, rid) is None
    assert bench.core.floor == 1
    assert bench.requests.floor.holdings == []
    assert bench.reindexing.told is None


def test_only_readers_may_say_what_they_hold(bench: Bench) -> None:
    bench.remove(2)
    for rid in (ADMIN, STRANGER, b"nobody"):
        bench.ask(m.Holds(MINE, U63_MAX, U63_MAX), rid)
    bench.step()
    assert bench.requests.floor.silent == ["delivery", "queues"]


def test_queues_are_a_reader(bench: Bench) -> None:
    bench.requests.hello("queues")
    assert bench.remove(2).blocked == "queues did not say yet what it needs"


def test_every_delivery_worker_is_a_reader() -> None:
    bench = Bench(workers=2)
    bench.core.receive(STRANGER, m.Hello("delivery-2", 1), [])
    bench.holds()
    assert bench.remove(2).blocked == "delivery-2 did not say yet what it needs"
    bench.ask(m.Holds(MINE, bench.core.floor, U63_MAX), STRANGER)
    assert bench.remove(2).serials == [1, 2]
    bench.janitor.close()


def test_what_was_said_to_another_journal_is_not_heard(bench: Bench) -> None:
    assert bench.ask(m.Remove(1, MINE + 1, 3)) is None
    bench.remove(2)
    bench.ask(m.Holds(MINE + 1, U63_MAX, U63_MAX), DELIVERY)
    assert bench.requests.floor.silent == ["delivery", "queues"]


def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    told = bench.remove(3, dry_run=True)
    assert told.serials == [1, 2, 3]
    assert told.floor > 1
    assert (bench.core.floor, bench.serials[0], bench.oldest) == (1, 1, 0)
    assert all(send.rid is not None for send in bench.sent)


def test_the_floor_is_announced_first(bench: Bench) -> None:
    told = bench.remove(2)
    marks = [send.message for send in bench.sent if send.rid is None]
    assert [mark.floor for mark in marks if isinstance(mark, m.Watermarks)] == [told.floor]
    bench.step()
    assert (bench.core.floor, bench.oldest, bench.serials[0]) == (told.floor, 0, 1)


def test_the_note_is_durable_before_the_first_file_goes(bench: Bench) -> None:
    bench.remove(2)
    bench.holds()
    seen: list[str] = []
    bench.disk.hook = seen.append
    bench.step()
    bench.work()
    changes = [name for name in seen if name.startswith(("before:unlink", "after:sync:note"))]
    assert changes[-2:] == ["before:unlink:segment"] * 2
    assert changes[:-2] == ["after:sync:note"] * (len(changes) - 2) != []
    assert (bench.oldest, bench.serials) == (3, [3, 4, 5])
    assert "after:sync_dir:directory" in seen[seen.index("after:unlink:segment") :]


def test_the_index_forgets_behind_the_files(bench: Bench) -> None:
    told = bench.remove(2)
    bench.holds()
    bench.step()
    assert bench.index.forgot == 0
    bench.work()
    assert bench.index.forgot == told.floor
    assert bench.requests.floor.going == []


def test_a_cursor_below_the_floor_keeps_its_file_until_it_has_passed(bench: Bench) -> None:
    told = bench.remove(3)
    bench.holds(lowest=told.floor - 1)
    bench.step()
    bench.work()
    assert bench.serials == [3, 4, 5]
    holders = bench.ask(m.AskHolders(1, MINE))
    assert (holders.removing, holders.silent) == ([3], [])
    bench.holds(lowest=told.floor)
    bench.step()
    bench.work()
    assert bench.serials == [4, 5]


def test_a_delivery_that_begins_anew_is_waited_for(bench: Bench) -> None:
    bench.remove(2)
    bench.holds()
    bench.requests.hello("delivery")
    bench.step()
    assert bench.oldest == 0


def test_files_that_cannot_be_unlinked_are_tried_again(bench: Bench) -> None:
    bench.remove(2)
    bench.holds()
    bench.step()  # the note
    bench.work()
    bench.remove(3)
    bench.holds()
    bench.disk.hook = no_unlink
    bench.step()
    bench.work()
    assert bench.serials == [3, 4, 5]
    assert bench.requests.floor.going == [3]
    bench.now_ms += RETRY_MS - 1
    bench.requests.step(bench.now_ms)
    assert bench.serials == [3, 4, 5]
    bench.now_ms += 1
    bench.disk.hook = lambda _: None
    bench.requests.step(bench.now_ms)
    bench.work()
    assert bench.serials == [4, 5]


def no_unlink(boundary: str) -> None:
    if boundary.startswith("before:unlink"):
        raise StorageError("disk_error", "a read-only file system")


def test_what_an_interrupted_removal_left_goes_at_once(bench: Bench) -> None:
    bench.writer.keep_from(3)
    bench.requests = bench.made(leftovers=[None])
    bench.work()
    assert bench.serials == [3, 4, 5]


def test_a_lease_blocks_a_removal_and_ends_by_itself(bench: Bench) -> None:
    assert bench.ask(m.Lease(1, MINE, m.Holding("backup", "x", 2, 0), 1_000)) == m.Done(1)
    told = bench.remove(3)
    assert (told.serials, [one.who for one in told.held_by]) == ([], ["backup"])
    bench.requests.step(1_000)
    assert bench.remove(3).serials == [1, 2, 3]


def test_a_lease_below_the_floor_is_refused_with_a_code(bench: Bench) -> None:
    bench.remove(3)
    done = bench.ask(m.Lease(1, MINE, m.Holding("backup", "x", 2, 0), 1_000))
    assert done.code == "bookmark_expired"


def test_only_segments_before_the_snapshot_go(bench: Bench) -> None:
    bench.core.state_serial = 3
    told = bench.remove(4)
    assert (told.serials, "snapshot" in told.blocked) == ([1, 2], True)


def test_retiring_is_answered_when_it_is_done(bench: Bench) -> None:
    bench.archive.plant(segment_name(1), bench.disk.content(segment_name(1)))
    asks = [m.Retire(n, MINE, n, archived=False, packed=False) for n in (1, 2)]
    for ask in asks:
        assert bench.ask(ask) is None
        bench.work()
    done = [send.message for send in bench.sent if isinstance(send.message, m.Done)]
    assert [(one.cid, one.code) for one in done] == [(1, ""), (2, "segment_held")]
    assert bench.serials == [2, 3, 4, 5]


def test_a_reindex_is_answered_at_its_end(bench: Bench) -> None:
    assert bench.ask(m.Reindex(1, MINE)) is None
    assert bench.ask(m.Reindex(2, MINE)).code == "too_many"
    assert bench.reindexing.told is not None
    bench.reindexing.told(None)
    assert bench.sent[-1].message == m.Done(1)


def test_a_stage_holds_back_so_much_of_the_log_and_no_more(bench: Bench) -> None:
    stages = bench.core.sessions.stages
    for serial, token in ((2, "old"), (5, "new")):
        part = Reference(serial, serial, 4096, 1)
        stages.learn(StageRow(token, 0, 10, ["t"], [part], "eve"))
    assert bench.remove(4, dry_run=True).serials == [1]
    assert bench.core.backlog == 0, "a dry run ends nothing"
    bench.remove(4)
    assert bench.core.backlog == 0, "it may hold back that much"
    newest = bench.requests._kept()[-1].bytes
    bench.config = Config(limits=LimitsConfig(staged_per_principal=newest))
    bench.requests = bench.made([])
    bench.remove(4)
    bench.core.group(1)
    assert list(stages.held_before(100)) == [("eve", "new")], "ended by a record"
    bench.remove(4)
    assert stages.removable(4) == 4


def test_a_stage_of_a_day_is_ended_by_a_record(bench: Bench) -> None:
    stages = bench.core.sessions.stages
    stages.learn(StageRow("old", 0, 10, ["t"], [Reference(1, 2, 4096, 1)], "eve"))
    for now_ms in (1, STAGED_MS, STAGED_MS + 1):
        assert len(stages) == 1
        bench.requests.step(now_ms)
        bench.core.group(1)
    assert len(stages) == 0


def test_segments_that_a_commit_needs_stay_with_it(bench: Bench) -> None:
    stages = bench.core.sessions.stages
    stages.learn_link(LinkRow(serial=4, lowest=2))
    removal = bench.remove(3)
    assert removal.serials == [1]
    assert "segment 2 has staged messages" in removal.blocked
    bench.step()
    bench.holds()
    assert bench.remove(4).serials == [2, 3, 4], "together they may go"
