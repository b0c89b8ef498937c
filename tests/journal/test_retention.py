"""Who holds what, which segments may go, and when their files may."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.journal import build
from tests.journal.build import INSTANCE, append, start, writer
from tests.sim.disk import SimDisk
from tests.sim.journal_process import JournalProcess, Start
from zbroker.config import Config, DeliveryConfig, log_readers
from zbroker.engine.contract import Now
from zbroker.engine.effects import Answer
from zbroker.errors import ClientError, StorageError
from zbroker.journal.background import Background
from zbroker.journal.core import JournalSettings
from zbroker.journal.effects import MeasureSegments, RebuildIndex
from zbroker.journal.events import IndexRebuilt
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.retention import (
    LEASES_MAX,
    RETRY_MS,
    Kept,
    LogStart,
    RemovalLimits,
    RemovalPlan,
)
from zbroker.journal.stages import (
    OF_TRANSACTIONS,
    STAGED_MS,
    TRANSACTION_MS,
    LinkRow,
    StageRow,
)
from zbroker.journal.startup import OpenJournal
from zbroker.limits import BEAT_MS, STAGED_BYTES, U63_MAX
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.references import Reference
from zbroker.log.segments import list_segments, read_note, segment_name
from zbroker.wire import internal as m
from zbroker.wire.internal import Holding, Holds

LOG = [Kept(serial, serial * 100, serial * 100 + 100, 10) for serial in range(1, 6)]
ALL = RemovalLimits(through=99, stated=5, open=5)
READERS = ("delivery",)


def holds(log_start: int, lowest: int = U63_MAX, *holdings: Holding) -> Holds:
    return Holds(7, log_start, lowest, list(holdings))


def heard(lowest: int = U63_MAX, *holdings: Holding) -> LogStart:
    log_start = LogStart(100, READERS)
    log_start.heard("delivery", holds(100, lowest, *holdings))
    return log_start


def serials(plan: RemovalPlan) -> list[int]:
    return [one.serial for one in plan.segments]


def test_the_oldest_go_up_to_the_wanted_one() -> None:
    plan = heard().plan(LOG, ALL._replace(through=3))
    assert (serials(plan), plan.log_start, plan.blocked, list(plan.held_by)) == (
        [1, 2, 3],
        400,
        "",
        [],
    )


def test_a_plan_without_a_queue_is_what_its_purge_would_make_removable() -> None:
    work, trades = Holding("queues", "work", 150, 0), Holding("queues", "trades", 350, 0)
    log_start = LogStart(100, ("queues",))
    log_start.heard("queues", holds(100, 150, work, trades))
    plan = log_start.plan(LOG, ALL)
    assert (serials(plan), plan.held_by) == ([], [work])
    plan = log_start.plan(LOG, ALL._replace(without="work"))
    assert (serials(plan), plan.held_by) == ([1, 2], [trades])
    assert plan.blocked == "segment 3 is still needed"
    log_start.heard("queues", holds(100, 150, work))
    assert serials(log_start.plan(LOG, ALL._replace(without="work"))) == [1, 2, 3, 4]


def test_a_plan_without_a_queue_leaves_others_of_that_name_out_of_it() -> None:
    """A reader that names no queue, a lease, or a process that did not say what it needs."""
    job = Holding("job", "work", 150, 0)
    log_start = heard(150, job)
    assert log_start.plan(LOG, ALL._replace(without="work")).held_by == [job]
    assert serials(heard(150).plan(LOG, ALL._replace(without="work"))) == []


def replicated(lowest: int) -> LogStart:
    """A log whose destinations lack what is at `lowest` and after it."""
    log_start = LogStart(100, ("replication",))
    log_start.heard("replication", holds(100, lowest))
    return log_start


@pytest.mark.parametrize(
    ("lowest", "expected"),
    [(U63_MAX, [1, 2, 3]), (350, [1]), (300, [1]), (299, []), (150, [])],
)
def test_one_segment_before_what_destinations_lack_stays(lowest: int, expected: list[int]) -> None:
    """Its snapshot is before that, so a new instance begins with it and gets the rest."""
    plan = replicated(lowest).plan(LOG, ALL)
    assert serials(plan) == expected
    if 300 <= lowest < U63_MAX:
        assert plan.blocked == "segment 2 has the state that an empty instance begins with"


@pytest.mark.parametrize("empty", [1, 2])
@pytest.mark.parametrize(("lowest", "expected"), [(300, [1]), (350, [1]), (299, [])])
def test_a_segment_without_positions_is_not_the_one_with_the_state(
    lowest: int, expected: list[int], empty: int
) -> None:
    """A generation that ends before its first group leaves one, and its snapshot was never
    written."""
    nothing = [Kept(3 + n, 300, 300, 10) for n in range(empty)]
    after = [one._replace(serial=one.serial + empty) for one in LOG[2:]]
    limits = RemovalLimits(through=99, stated=5 + empty, open=5 + empty)
    plan = replicated(lowest).plan([*LOG[:2], *nothing, *after], limits)
    assert serials(plan) == expected
    if lowest >= 300:
        assert plan.blocked == "segment 2 has the state that an empty instance begins with"


def test_segments_without_positions_go_if_no_state_is_before_them() -> None:
    nothing = Kept(2, 300, 300, 10)
    assert serials(replicated(300).plan([nothing, *LOG[2:]], ALL)) == [2]


def test_a_segment_without_a_snapshot_keeps_only_what_is_needed_anyway() -> None:
    """The newest snapshot is in an older segment: that one stays because of it."""
    plan = replicated(U63_MAX).plan(LOG, ALL._replace(stated=3))
    assert serials(plan) == [1, 2]
    assert plan.blocked == "no complete state snapshot is after segment 3 yet"


def test_a_log_of_one_segment_keeps_it() -> None:
    assert serials(replicated(U63_MAX).plan(LOG[:1], ALL._replace(stated=1, open=1))) == []


def test_what_is_gone_already_is_no_reason_to_complain() -> None:
    plan = heard().plan(LOG[2:], ALL._replace(through=2))
    assert (serials(plan), plan.log_start, plan.blocked) == ([], 100, "")


def test_the_open_segment_never_goes() -> None:
    plan = heard().plan(LOG, ALL._replace(stated=99))
    assert serials(plan) == [1, 2, 3, 4]
    assert plan.blocked == "segment 5 is the open one"


def test_the_segment_of_the_newest_snapshot_stays() -> None:
    plan = heard().plan(LOG, ALL._replace(stated=3))
    assert serials(plan) == [1, 2]
    assert "snapshot" in plan.blocked


def test_without_any_snapshot_everything_stays() -> None:
    assert serials(heard().plan(LOG, ALL._replace(stated=0))) == []


def test_a_reader_that_is_silent_holds_everything() -> None:
    plan = LogStart(100, READERS).plan(LOG, ALL)
    assert (serials(plan), plan.blocked) == ([], "delivery did not say yet what it needs")
    assert LogStart(100, READERS).silent == ["delivery"]


def test_a_reader_that_begins_again_is_silent_again() -> None:
    log_start = heard()
    log_start.hello("delivery")
    assert serials(log_start.plan(LOG, ALL)) == []


def test_removal_waits_for_every_reader() -> None:
    log_start = LogStart(100, ("delivery", "delivery-2"))
    log_start.heard("delivery", holds(100))
    assert log_start.plan(LOG, ALL).blocked == "delivery-2 did not say yet what it needs"
    log_start.heard("delivery-2", holds(100, 250))
    plan = log_start.plan(LOG, ALL)
    assert (serials(plan), plan.held_by) == ([1], [Holding("delivery-2", "", 250, 0)])


def test_queues_hold_everything_until_they_say_what_they_need() -> None:
    log_start = LogStart(100, log_readers(Config()))
    log_start.heard("delivery", holds(100))
    assert (log_start.plan(LOG, ALL).segments, log_start.silent) == ([], ["queues"])
    needs = Holding("queue work", "orders", 250, 5)
    log_start.heard("queues", holds(100, 250, needs))
    plan = log_start.plan(LOG, ALL)
    assert (serials(plan), plan.held_by) == ([1], [needs])


def test_files_wait_for_the_slowest_reader() -> None:
    log_start = LogStart(100, ("delivery", "delivery-2"))
    for name in log_start.readers:
        log_start.heard(name, holds(100))
    log_start.raise_to(log_start.plan(LOG, ALL._replace(through=2)))
    log_start.heard("delivery", holds(300))
    assert (log_start.due(), log_start.silent) == ([], ["delivery-2"])
    log_start.heard("delivery-2", holds(300))
    assert log_start.due() == [1, 2]
    log_start.hello("delivery-2")
    assert log_start.due() == [], "one that begins again is waited for, whatever the other says"


def test_a_process_that_reads_nothing_is_not_waited_for() -> None:
    log_start = heard()
    log_start.hello("ingest")
    log_start.heard("ingest", holds(0, 1))
    assert serials(log_start.plan(LOG, ALL)) == [1, 2, 3, 4]


@pytest.mark.seed("004-97")
@pytest.mark.parametrize(
    ("lowest", "expected"), [(100, []), (199, []), (200, [1]), (350, [1, 2]), (500, [1, 2, 3, 4])]
)
def test_what_a_reader_needs_stays(lowest: int, expected: list[int]) -> None:
    needs = Holding("a client", "orders", lowest, 5)
    plan = heard(lowest, needs).plan(LOG, ALL)
    assert serials(plan) == expected
    if expected != [1, 2, 3, 4]:
        assert plan.blocked == f"segment {len(expected) + 1} is still needed"
        assert plan.held_by == [needs]


def test_a_reader_that_names_no_one_is_named_itself() -> None:
    assert heard(150).plan(LOG, ALL).held_by == [Holding("delivery", "", 150, 0)]


def test_who_needs_only_newer_segments_is_not_to_blame() -> None:
    low, high = Holding("low", "", 150, 0), Holding("high", "", 450, 0)
    assert heard(150, high, low).plan(LOG, ALL).held_by == [low]


def test_a_lease_holds_until_it_ends() -> None:
    log_start = heard()
    lease = Holding("backup", "export", 250, 0)
    log_start.lease(lease, 1_000, now_ms=0)
    assert serials(log_start.plan(LOG, ALL)) == [1]
    log_start.tick(999)
    assert log_start.plan(LOG, ALL).held_by == [lease]
    log_start.tick(1_000)
    assert serials(log_start.plan(LOG, ALL)) == [1, 2, 3, 4]


def test_a_lease_can_be_renewed_elsewhere() -> None:
    log_start = heard()
    log_start.lease(Holding("backup", "", 250, 0), 1_000, now_ms=0)
    log_start.lease(Holding("backup", "", 350, 0), 1_000, now_ms=900)
    log_start.tick(1_500)
    assert serials(log_start.plan(LOG, ALL)) == [1, 2]


def test_a_lease_can_be_given_back() -> None:
    log_start = heard()
    log_start.lease(Holding("backup", "", 250, 0), 1_000, now_ms=0)
    log_start.lease(Holding("backup", "", 0, 0), 0, now_ms=1)
    assert log_start.holdings == []


def test_no_lease_is_given_below_the_log_start() -> None:
    log_start = heard()
    log_start.raise_to(log_start.plan(LOG, ALL._replace(through=1)))
    with pytest.raises(ClientError, match="bookmark_expired"):
        log_start.lease(Holding("backup", "", 199, 0), 1_000, now_ms=0)
    log_start.lease(Holding("backup", "", 200, 0), 1_000, now_ms=0)


def test_leases_are_bounded() -> None:
    log_start = heard()
    for number in range(LEASES_MAX):
        log_start.lease(Holding(str(number), "", 200, 0), 1_000, now_ms=0)
    with pytest.raises(ClientError, match="too_many"):
        log_start.lease(Holding("one more", "", 200, 0), 1_000, now_ms=0)
    log_start.lease(Holding("0", "", 300, 0), 1_000, now_ms=0)


@pytest.mark.parametrize(("share", "expected"), [(100, 4), (60, 3), (59, 2), (20, 1), (19, 0)])
def test_one_run_removes_a_share_of_the_bytes_at_most(share: int, expected: int) -> None:
    plan = heard().plan(LOG, ALL._replace(share_max=share))
    assert len(plan.segments) == expected
    if share < 100:
        assert f"{share} percent" in plan.blocked


def test_a_plan_changes_nothing() -> None:
    log_start = heard()
    log_start.plan(LOG, ALL)
    assert (log_start.position, log_start.going, log_start.due()) == (100, [], [])


def test_files_wait_until_the_reader_knows_the_log_start() -> None:
    log_start = heard()
    log_start.raise_to(log_start.plan(LOG, ALL._replace(through=2)))
    assert (log_start.position, log_start.going, log_start.due()) == (300, [1, 2], [])
    assert log_start.silent == ["delivery"]
    log_start.heard("delivery", holds(300))
    assert (log_start.silent, log_start.due()) == ([], [1, 2])


def test_a_cursor_below_a_raised_log_start_pins_its_segment_and_the_newer_ones() -> None:
    log_start = heard()
    log_start.raise_to(log_start.plan(LOG, ALL._replace(through=3)))
    log_start.heard("delivery", holds(400, 250))  # it was opened before the log start was heard of
    assert log_start.due() == [1]
    log_start.gone(1)
    log_start.heard("delivery", holds(400, 399))
    assert (log_start.going, log_start.due()) == ([2, 3], [2])
    log_start.heard("delivery", holds(400, 400))
    assert log_start.due() == [2, 3]


def test_a_reader_that_restarts_is_waited_for_again() -> None:
    log_start = heard()
    log_start.raise_to(log_start.plan(LOG, ALL._replace(through=2)))
    log_start.heard("delivery", holds(300))
    log_start.hello("delivery")
    assert log_start.due() == []


def test_a_second_removal_adds_to_the_first() -> None:
    log_start = heard()
    log_start.raise_to(log_start.plan(LOG, ALL._replace(through=1)))
    log_start.heard("delivery", holds(200))
    log_start.raise_to(log_start.plan(LOG[1:], ALL._replace(through=2)))
    assert (log_start.going, log_start.due()) == ([1, 2], [1])


def test_holders_are_reported_lowest_first() -> None:
    log_start = heard(300, Holding("b", "", 500, 0), Holding("a", "", 300, 0))
    log_start.lease(Holding("c", "", 400, 0), 1, 0)
    assert [holding.who for holding in log_start.holdings] == ["a", "c", "b"]


def test_nothing_that_anybody_needs_ever_goes() -> None:
    for seed in range(300):
        _history(random.Random(seed))


def _history(rng: random.Random) -> None:
    """A reader that opens cursors from the log start on that it knows, while a journal removes."""
    log_start, log, cursors, known, unlinked = LogStart(100, READERS), list(LOG), [100], 100, 0
    for _ in range(60):
        match rng.randrange(5):
            case 0:
                log_start.heard("delivery", holds(known, min(cursors, default=U63_MAX)))
            case 1:
                known = log_start.position
            case 2:
                cursors.append(rng.randint(known, 600))
            case 3 if cursors:
                at = rng.randrange(len(cursors))
                cursors[at] += rng.choice((0, 50, 1_000))
                cursors = [cursor for cursor in cursors if cursor < 600]
            case _:
                plan = log_start.plan(log, ALL._replace(through=rng.randint(1, 5)))
                log_start.raise_to(plan)
                log = [one for one in log if one not in plan.segments]
        due = log_start.due()
        if due and rng.random() < 0.5:
            unlinked = due[-1]
            log_start.gone(unlinked)
        log_start.check()
        assert all(cursor >= unlinked * 100 + 100 for cursor in cursors if unlinked)


ADMIN, DELIVERY, QUEUES, STRANGER = b"a", b"d", b"q", b"s"
MINE = 7


class Index:
    """Remembers what it was asked to forget."""

    forgot = 0

    def forget_before(self, log_start: int) -> None:
        self.forgot = log_start


class Process(JournalProcess):
    """What removes files is the product's own, with a helper thread."""

    archive: SimDisk
    now_ms = 0

    def performers(self) -> dict[type, Any]:
        self.index, self.rebuilds = Index(), list[RebuildIndex]()
        self.woken = threading.Semaphore(0)
        self.janitor = Helpers("test", 1, self.woken.release)
        log = Log(places=SegmentPlaces(self.disk, self.archive))
        opened = OpenJournal(
            self.core, self.writer, log, cast(Any, None), cast(Any, self.index),
            cast(Any, self.disk), cast(Any, self.archive), [],
        )  # fmt: skip
        process = SimpleNamespace(
            log=logging.getLogger("test"), paths=SimpleNamespace(conflicts=Path("/nowhere"))
        )
        done = Background(cast(Any, process), opened, self.janitor, self.janitor).performers
        own = ("MeasureSegments", "Unlink", "ForgetRemoved", "RetireCopy")
        return {
            **super().performers(),
            **{kind: do for kind, do in done.items() if kind.__name__ in own},
            RebuildIndex: self.rebuilds.append,
        }

    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms * 1_000_000)


class Bench:
    """A log of five segments with a snapshot in the newest one, an admin, delivery and queues."""

    def __init__(self, workers: int = 1) -> None:
        self.config = Config(delivery=DeliveryConfig(workers=workers))
        self.disk, self.archive = SimDisk(random.Random(1)), SimDisk(random.Random(2))
        self.writer = writer(self.disk, start(self.disk))
        while self.writer.serial < 5:
            append(self.writer, b"x" * 2_000)
        self.life()
        self.commit.state_serial = 5

    def life(self, staged_max_bytes: int = STAGED_BYTES) -> None:
        """The process starts, on what is there."""
        self.disk.crash()
        given = Start(build.Clock(), build.SEGMENT_BYTES, random.Random(3).getrandbits(64).__int__)
        settings = JournalSettings(INSTANCE, MINE, staged_max_bytes=staged_max_bytes)
        Process.archive = self.archive
        self.process = Process(self.disk, settings, given, log_readers(self.config))
        self.commit, self.requests = self.process.core.commit, self.process.core.retention
        self.writer = self.process.writer
        processes = {ADMIN: "admin", DELIVERY: "delivery", QUEUES: "queues", STRANGER: "ingest"}
        for rid, name in processes.items():
            self.hello(name, rid)
        self.process.commit()

    def hello(self, name: str, rid: bytes) -> None:
        self.process.hear(rid, m.Hello(name, 1))
        self.process.taken()

    def ask(self, ask: Any, rid: bytes = ADMIN) -> Any:
        """The answer, if there is one at once."""
        self.process.taken()
        self.process.hear(rid, ask)
        answers = [send.message for send in self.process.sent if send.rid == rid]
        return answers[0] if answers else None

    def remove(self, through: int, **more: Any) -> m.Removal:
        removal = self.ask(m.Remove(1, MINE, through, **more))
        assert isinstance(removal, m.Removal)
        return removal

    def holds(self, lowest: int = U63_MAX) -> None:
        """Queues need nothing; delivery what is said."""
        self.ask(m.Holds(MINE, self.commit.log_start, U63_MAX), QUEUES)
        self.ask(m.Holds(MINE, self.commit.log_start, lowest), DELIVERY)

    def step(self, now_ms: int | None = None) -> None:
        self.process.now_ms = self.process.now_ms if now_ms is None else now_ms
        self.process.turn()

    def work(self) -> None:
        """Lets the helper thread end what it does."""
        assert self.process.woken.acquire(timeout=10)
        for event in self.process.janitor.finish():
            self.process.done.put(event)
        self.process.turn()

    def close(self) -> None:
        self.process.janitor.close()

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
    made.close()


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
            unknown = m.UnknownRequester() if rid == b"nobody" else None
            assert bench.ask(ask, rid) == unknown
    assert bench.commit.log_start == 1
    assert bench.requests.log_start.holdings == []
    assert bench.process.rebuilds == []


def test_only_readers_may_say_what_they_hold(bench: Bench) -> None:
    bench.remove(2)
    for rid in (ADMIN, STRANGER, b"nobody"):
        bench.ask(m.Holds(MINE, U63_MAX, U63_MAX), rid)
    bench.step()
    assert bench.requests.log_start.silent == ["delivery", "queues"]


def test_queues_are_a_reader(bench: Bench) -> None:
    bench.hello("queues", QUEUES)
    assert bench.remove(2).blocked == "queues did not say yet what it needs"


def test_every_delivery_worker_is_a_reader() -> None:
    bench = Bench(workers=2)
    bench.hello("delivery-2", STRANGER)
    bench.holds()
    assert bench.remove(2).blocked == "delivery-2 did not say yet what it needs"
    bench.ask(m.Holds(MINE, bench.commit.log_start, U63_MAX), STRANGER)
    assert bench.remove(2).serials == [1, 2]
    bench.close()


def test_what_was_said_to_another_journal_is_not_heard(bench: Bench) -> None:
    assert bench.ask(m.Remove(1, MINE + 1, 3)) is None
    bench.remove(2)
    bench.ask(m.Holds(MINE + 1, U63_MAX, U63_MAX), DELIVERY)
    assert bench.requests.log_start.silent == ["delivery", "queues"]


def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    before = [*bench.process.published]
    reported = bench.remove(3, dry_run=True)
    assert reported.serials == [1, 2, 3]
    assert reported.log_start > 1
    assert (bench.commit.log_start, bench.serials[0], bench.oldest) == (1, 1, 0)
    assert bench.process.published == before


def test_the_log_start_is_announced_first(bench: Bench) -> None:
    bench.process.published.clear()
    reported = bench.remove(2)
    assert [each.log_start for each in bench.process.published] == [reported.log_start]
    bench.step()
    assert (bench.commit.log_start, bench.oldest, bench.serials[0]) == (reported.log_start, 0, 1)


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


def test_the_index_forgets_after_the_files(bench: Bench) -> None:
    reported = bench.remove(2)
    bench.holds()
    bench.step()
    assert bench.process.index.forgot == 0
    bench.work()
    assert bench.process.index.forgot == reported.log_start
    assert bench.requests.log_start.going == []


def test_a_cursor_below_the_log_start_keeps_its_file_until_it_has_passed(bench: Bench) -> None:
    reported = bench.remove(3)
    bench.holds(lowest=reported.log_start - 1)
    bench.step()
    bench.work()
    assert bench.serials == [3, 4, 5]
    holders = bench.ask(m.AskHolders(1, MINE))
    assert (holders.removing, holders.silent) == ([3], [])
    bench.holds(lowest=reported.log_start)
    bench.step()
    bench.work()
    assert bench.serials == [4, 5]


def test_a_delivery_that_begins_again_is_waited_for(bench: Bench) -> None:
    bench.remove(2)
    bench.holds()
    bench.hello("delivery", DELIVERY)
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
    assert bench.requests.log_start.going == [3]
    bench.step(RETRY_MS - 1)
    assert bench.serials == [3, 4, 5]
    bench.disk.hook = lambda _: None
    bench.step(RETRY_MS + BEAT_MS)
    bench.work()
    assert bench.serials == [4, 5]


def no_unlink(boundary: str) -> None:
    if boundary.startswith("before:unlink"):
        raise StorageError("disk_error", "a read-only file system")


def test_what_an_interrupted_removal_left_goes_at_once(bench: Bench) -> None:
    bench.writer.keep_from(3)
    bench.close()
    bench.life()
    bench.step()
    bench.work()
    assert bench.serials == [3, 4, 5]


def test_a_lease_blocks_a_removal_and_ends_by_itself(bench: Bench) -> None:
    assert bench.ask(m.Lease(1, MINE, m.Holding("backup", "x", 2, 0), 1_000)) == m.Done(1)
    reported = bench.remove(3)
    assert (reported.serials, [one.who for one in reported.held_by]) == ([], ["backup"])
    bench.step(1_000)
    assert bench.remove(3).serials == [1, 2, 3]


def test_a_lease_below_the_log_start_is_refused_with_a_code(bench: Bench) -> None:
    bench.remove(3)
    done = bench.ask(m.Lease(1, MINE, m.Holding("backup", "x", 2, 0), 1_000))
    assert done.code == "bookmark_expired"


def test_only_segments_before_the_snapshot_go(bench: Bench) -> None:
    bench.commit.state_serial = 3
    reported = bench.remove(4)
    assert (reported.serials, "snapshot" in reported.blocked) == ([1, 2], True)


def test_retiring_is_answered_when_it_is_done(bench: Bench) -> None:
    bench.archive.plant(segment_name(1), bench.disk.content(segment_name(1)))
    asks = [m.Retire(n, MINE, n, archived=False, packed=False) for n in (1, 2)]
    answers: list[Answer] = []
    for ask in asks:
        assert bench.ask(ask) is None
        bench.work()
        answers += bench.process.taken()
    done = [send.message for send in answers]
    assert [(one.cid, one.code) for one in done] == [(1, ""), (2, "segment_held")]
    assert bench.serials == [2, 3, 4, 5]


def test_a_reindex_is_answered_at_its_end(bench: Bench) -> None:
    assert bench.ask(m.Reindex(1, MINE)) is None
    assert bench.ask(m.Reindex(2, MINE)).code == "too_many"
    assert bench.process.rebuilds == [RebuildIndex(ADMIN, 1)]
    bench.process.done.put(IndexRebuilt(ADMIN, m.Done(1)))
    bench.process.taken()
    bench.process.turn()
    assert bench.process.taken() == [Answer(ADMIN, m.Done(1))]
    assert bench.ask(m.Reindex(3, MINE)) is None, "another one may begin"


def test_a_stage_holds_back_so_much_of_the_log_and_no_more(bench: Bench) -> None:
    stages = bench.commit.sessions.stages
    for serial, token in ((2, "old"), (5, "new")):
        part = Reference(serial, serial, 4096, 1)
        stages.learn(StageRow(token, 0, 10, ["t"], [part], "eve"))
    assert bench.remove(4, dry_run=True).serials == [1]
    assert bench.commit.backlog == 0, "a dry run ends nothing"
    bench.remove(4)
    assert bench.commit.backlog == 0, "it may hold back that much"
    ask = MeasureSegments(ADMIN, m.Remove(1, MINE, 4))
    newest = bench.process.performers()[MeasureSegments](ask).segments[-1].bytes
    bench.requests._settings = bench.requests._settings._replace(staged_max_bytes=newest)
    bench.remove(4)
    bench.process.commit()
    assert [key.token for key in stages.held_before(100)] == ["new"], "ended by a record"
    bench.remove(4)
    assert stages.removable(4) == 4


def test_a_stage_of_a_day_is_ended_by_a_record(bench: Bench) -> None:
    stages = bench.commit.sessions.stages
    stages.learn(StageRow("old", 0, 10, ["t"], [Reference(1, 2, 4096, 1)], "eve"))
    for now_ms in (BEAT_MS, BEAT_MS + STAGED_MS - 1, 2 * BEAT_MS + STAGED_MS):
        assert len(stages) == 1
        bench.step(now_ms)
        bench.process.commit()
    assert len(stages) == 0


def test_a_transaction_without_a_new_message_for_a_minute_is_ended_quietly(bench: Bench) -> None:
    """Each one that is rolled back ends like this: it warns no operator."""
    stages = bench.commit.sessions.stages
    row = StageRow(f"{OF_TRANSACTIONS}1", 0, 10, ["t"], [Reference(1, 2, 4096, 1)], "eve")
    stages.learn(row)
    for now_ms in (BEAT_MS, BEAT_MS + TRANSACTION_MS - 1, 2 * BEAT_MS + TRANSACTION_MS):
        assert len(stages) == 1
        bench.step(now_ms)
        bench.process.commit()
    assert len(stages) == 0
    stages.learn(row)
    [note] = bench.requests._end_stages(stages.known("eve", [row.token]))
    assert (note.name, note.level) == ("journal.transactions_ended", "info")


def test_segments_that_a_commit_needs_stay_with_it(bench: Bench) -> None:
    stages = bench.commit.sessions.stages
    stages.learn_link(LinkRow(serial=4, lowest=2))
    removal = bench.remove(3)
    assert removal.serials == [1]
    assert "segment 2 has staged messages" in removal.blocked
    bench.step()
    bench.holds()
    assert bench.remove(4).serials == [2, 3, 4], "together they may go"
