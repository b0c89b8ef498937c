"""What the journal keeps of exchanges, who is found what of it, and when a binding counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest
from msgspec import Raw, msgpack
from msgspec.structs import replace

from tests.journal.build import publish
from tests.journal.whole import LISTENER, MINE, PROCESS, WALL, Whole, control
from zbroker.checksums import crc32c
from zbroker.errors import Bug, ClientError
from zbroker.exchanges import BindingRow, DeclaredQueue, Exchange, ExchangeRow, ExchangeTable
from zbroker.exchanges.exchange import Binding
from zbroker.exchanges.exchange_follower import ExchangeFollower
from zbroker.exchanges.exchange_rows import Row, UsedExchange, record_of
from zbroker.ids import Origin, publisher_id
from zbroker.journal import exchange_records, snapshot
from zbroker.journal.effects import PublishWatermarks
from zbroker.journal.exchange_records import ExchangeRecords
from zbroker.journal.fold import LogFold
from zbroker.journal.sessions import Sessions
from zbroker.log.format import COLUMN_ROUTES, KIND_EXCHANGE, Batch
from zbroker.log.queue_records import QueueDeclaration, Version
from zbroker.wire.exchange_messages import AskExchanges, ExchangeRows, ExchangesUsed
from zbroker.wire.internal import Append, Entry
from zbroker.wire.units import CommitUnits

LIFE, OTHER = QueueDeclaration(5, 9, 1), QueueDeclaration(6, 9, 1)
FIRST = Version(1, 9, 1)
EVENTS = ExchangeRow("events", LIFE, FIRST, Exchange("events", "topic"))
BILLS = DeclaredQueue("bills", OTHER)
BOUND = BindingRow(Binding("events", LIFE, "bills", OTHER, "order.#"), FIRST)
ROWS: list[Row] = [EVENTS, BILLS, BOUND]


def record(*rows: Row) -> Batch:
    found = publish(7, msgpack.encode(record_of(rows)))
    found.kind = KIND_EXCHANGE
    return found


def learned(*rows: Row) -> ExchangeTable:
    table = ExchangeTable()
    for row in rows:
        table.learn(row)
    return table


def test_rows_are_folded_from_records() -> None:
    records = ExchangeRecords()
    records.fold(record(*ROWS))
    assert records.rows() == learned(*ROWS).rows()
    assert records.changes == 3
    records.fold(record(*ROWS))
    assert records.changes == 3  # nothing new


@pytest.mark.parametrize(
    "row",
    [
        ExchangeRow("amq.mine", LIFE, FIRST, Exchange("amq.mine", "topic")),
        ExchangeRow("events", LIFE, FIRST, Exchange("other", "topic")),
        ExchangeRow("events", LIFE, Version(-1, 9, 1), Exchange("events", "topic")),
        ExchangeRow("", LIFE, FIRST),
        BindingRow(Binding("events", LIFE, "bills", OTHER, "x" * 256), FIRST),
        BindingRow(Binding("events", LIFE, "", OTHER), FIRST),
        BindingRow(Binding("events", LIFE, "q", OTHER, "", {"x-match": "no"}), FIRST),
        BindingRow(Binding("events", LIFE, "q", OTHER, ".".join("#a" * 9)), FIRST),
        DeclaredQueue("q" * 256, OTHER),
        DeclaredQueue("q", QueueDeclaration(5, 1, 1 << 32)),
    ],
)
def test_what_an_instance_may_not_say_is_stepped_over(row: Row) -> None:
    records = ExchangeRecords()
    records.fold(record(row, EVENTS))
    assert records.rows() == [EVENTS]


def test_a_row_of_a_newer_release_is_stepped_over() -> None:
    records = ExchangeRecords()
    body = msgpack.encode({"rows": [{"row": "later"}, Raw(b"\xc0"), EVENTS], "more": 1})
    batch = publish(7, body)
    records.fold(batch)
    assert records.rows() == [EVENTS]
    records.fold(publish(8, b"\xc1"))
    assert records.rows() == [EVENTS]


def test_they_are_in_state_snapshots_and_come_back() -> None:
    sessions, again = Sessions(), Sessions()
    sessions.exchanges.fold(record(*ROWS))
    body = snapshot.decode(snapshot.Cutter(snapshot.folds(sessions), 9).cut())
    assert body is not None
    snapshot.learn(body, snapshot.folds(again))
    assert again.exchanges.rows() == sessions.exchanges.rows()


THERE = Version(2, 4, 1)  # of another instance


def end(version: Version) -> ExchangeRow:
    return ExchangeRow("events", LIFE, version)


def gone(*, local: bool) -> DeclaredQueue:
    return DeclaredQueue("bills", OTHER, ended=True, local=local)


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([EVENTS, end(Version(2, 9, 1))], []),
        ([EVENTS, end(Version(2, 9, 2))], []),
        ([end(Version(2, 9, 1))], []),
        ([EVENTS, end(THERE)], []),
        ([end(THERE)], [end(THERE)]),
        ([end(THERE), EVENTS], []),
        ([DeclaredQueue("bills", OTHER, local=True), gone(local=True)], []),
        ([DeclaredQueue("bills", OTHER), gone(local=False)], [gone(local=False)]),
        ([*ROWS, gone(local=True)], [EVENTS, UsedExchange("events", LIFE)]),
        ([*ROWS, end(THERE)], [BILLS]),
    ],
    ids=[
        "by its own instance", "in a newer generation of that", "declared before the log begins",
        "by another one", "by another one and not declared yet", "which is declared then",
        "a local queue", "a queue of several instances", "with a binding", "with its binding",
    ],
)  # fmt: skip
def test_a_snapshot_leaves_out_ends_that_nothing_can_come_after(
    rows: list[Row], left: list[Row]
) -> None:
    records = ExchangeRecords()
    for row in rows:
        records.learn(row)
    records.lasting()
    assert records.lasting() == left
    assert len(records.rows()) >= len(left), "those who ask now are told of the end"


def test_an_end_outlives_the_snapshot_that_its_declaration_is_read_in() -> None:
    """A start reads the log again from the first part of a snapshot on, so the declaration may come
    again after a part without the end."""
    records = ExchangeRecords()
    records.learn(end(THERE))
    records.lasting()
    records.learn(EVENTS)  # between the first part of a snapshot and the one with exchanges
    again = ExchangeRecords()
    for row in (*records.lasting(), EVENTS):
        again.learn(row)
    assert again._table.exchanges() == records._table.exchanges() == ExchangeTable().exchanges()
    assert records.lasting() == []


def test_exchanges_that_come_and_go_leave_snapshots_as_they_were() -> None:
    sessions = Sessions()
    for number in range(100):
        life = QueueDeclaration(100 + number, 9, 1)
        rows = [
            ExchangeRow("e", life, FIRST, Exchange("e", "fanout")),
            DeclaredQueue("q", life, local=True),
            BindingRow(Binding("e", life, "q", life), FIRST),
            DeclaredQueue("q", life, ended=True, local=True),
            ExchangeRow("e", life, Version(2, 9, 1)),
        ]
        sessions.exchanges.fold(record(*rows))
    body = snapshot.decode(snapshot.Cutter(snapshot.folds(sessions), 9).cut())
    assert body is not None
    assert "exchanges" not in body.folds


def test_of_ends_that_are_kept_the_newest_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_records, "ENDS_MAX", 2)
    records = ExchangeRecords()
    ends = [ExchangeRow("e", QueueDeclaration(at, 9, 1), THERE) for at in (5, 7, 6)]
    for row in [EVENTS, *ends]:
        records.learn(row)
    assert {row.life for row in records.lasting() if isinstance(row, ExchangeRow)} == {
        LIFE, ends[1].life, ends[2].life,
    }  # fmt: skip


class Streams:
    """Rows that three instances write, each as far as it has read those of the others."""

    def __init__(self, seed: int) -> None:
        self.rng, self.origins = Random(seed), (1, 2, 3)
        self.rows: dict[int, list[Row]] = {origin: [] for origin in self.origins}
        self._tables = {origin: ExchangeTable() for origin in self.origins}
        self._read = {(at, of): 0 for at in self.origins for of in self.origins}
        for step in range(60):
            at = self.rng.choice(self.origins)
            with suppress(ClientError):
                self._write(at, step)
            self._catch_up(at, self.rng.choice(self.origins))

    def _catch_up(self, at: int, of: int) -> None:
        for row in self.rows[of][self._read[at, of] :]:
            self._tables[at].learn(row)
        self._read[at, of] = len(self.rows[of])

    def _say(self, at: int, *rows: Row | None) -> None:
        self.rows[at] += [row for row in rows if row is not None]
        self._catch_up(at, at)

    def _write(self, at: int, step: int) -> None:
        table, here, roll = self._tables[at], Origin(at, 1), self.rng.random()
        if roll < 0.4:
            self._say(at, table.declare(Exchange("e", "fanout"), here, step))
        elif roll < 0.6:
            self._say(at, *table.delete("e", here))
        else:
            name, life = f"q{at}", QueueDeclaration(step, at, 1)
            self._say(at, DeclaredQueue(name, life, local=True))
            self._say(at, table.bind("e", name, "", {}, here, life))
            if roll < 0.9:
                self._say(at, DeclaredQueue(name, life, ended=True, local=True))

    def merged(self) -> Iterator[Row]:
        """In the order of each origin, and in no order with those of others."""
        left = {origin: list(rows) for origin, rows in self.rows.items() if rows}
        while left:
            origin = self.rng.choice(list(left))
            yield left[origin].pop(0)
            if not left[origin]:
                del left[origin]


@pytest.mark.parametrize("seed", range(200))
def test_after_starts_from_snapshots_there_is_what_there_would_be_without(seed: int) -> None:
    streams, steady, restarted = Streams(seed), ExchangeRecords(), ExchangeRecords()
    for row in streams.merged():
        steady.learn(row)
        restarted.learn(row)
        if streams.rng.random() < 0.2:
            kept, restarted = restarted.lasting(), ExchangeRecords()
            for each in kept:
                restarted.learn(each)
    assert restarted._table.exchanges() == steady._table.exchanges()
    assert in_order(restarted._table.bindings("e")) == in_order(steady._table.bindings("e"))


def in_order(bindings: list[Binding]) -> list[Binding]:
    return sorted(bindings, key=lambda one: (one.exchange_life, one.queue, one.queue_life))


def test_a_log_without_exchanges_has_the_snapshots_of_before() -> None:
    body = snapshot.decode(snapshot.Cutter(snapshot.folds(Sessions()), 9).cut())
    assert body is not None
    assert "exchanges" not in body.folds


def test_a_start_learns_them_from_the_log() -> None:
    fold = LogFold()
    fold(record(*ROWS), 1)
    assert fold.sessions.exchanges.rows() == learned(*ROWS).rows()


def test_who_asked_before_gets_what_has_changed() -> None:
    records = ExchangeRecords()
    records.fold(record(EVENTS, BILLS))
    assert records.since(0).whole
    records.fold(record(BOUND))
    assert records.since(2) == ([BOUND], False)
    assert records.since(3) == ([], False)
    assert records.since(4).whole  # of another journal: that is not possible here


def test_who_was_away_too_long_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_records, "RECENT_MAX", 2)
    records = ExchangeRecords()
    records.fold(record(*ROWS))
    assert records.since(1) == ([BILLS, BOUND], False)
    records.fold(record(DeclaredQueue("bills", OTHER, ended=True)))
    found = records.since(1)
    assert found.whole
    assert BOUND not in found.rows


# -- in the journal -------------------------------------------------------------------------------


def answer(whole: Whole, ask: AskExchanges) -> ExchangeRows:
    whole.hear(PROCESS, ask)
    [found] = [each.message for each in whole.commit() if isinstance(each.message, ExchangeRows)]
    return found


def test_a_process_learns_what_is_durable_and_then_what_changes() -> None:
    whole, follower = Whole(), ExchangeFollower()
    whole.units([control(KIND_EXCHANGE, bytes(record(EVENTS, BILLS).body))])
    said = answer(whole, follower.welcome(MINE))
    assert follower.learn(said) == learned(EVENTS, BILLS).changes()
    assert follower.known
    assert follower.watermarks(whole.core.watermarks().message) is None
    whole.units([control(KIND_EXCHANGE, bytes(record(BOUND).body))])
    ask = follower.watermarks(whole.core.watermarks().message)
    assert ask is not None
    assert follower.watermarks(whole.core.watermarks().message) is None  # it is under way
    said = answer(whole, ask)
    assert not said.whole
    [change] = follower.learn(said)
    assert change in learned(*ROWS).changes()
    assert follower.table == learned(*ROWS)
    assert said.position == follower.position == whole.core.next_position


def test_watermarks_of_another_journal_are_no_news() -> None:
    follower = ExchangeFollower()
    follower.welcome(MINE)
    follower.learn(ExchangeRows(0, 1, 5, []))
    marks = Whole().core.watermarks().message
    assert follower.watermarks(replace(marks, exchanges=2)) is not None
    follower.learn(ExchangeRows(0, 2, 6, [], whole=False))
    assert follower.watermarks(replace(marks, exchanges=9, incarnation=MINE + 1)) is None


def test_a_journal_that_was_restarted_says_everything() -> None:
    """What it lost was not durable."""
    whole, follower = Whole(), ExchangeFollower()
    whole.units([control(KIND_EXCHANGE, bytes(record(EVENTS).body))])
    follower.learn(answer(whole, follower.welcome(MINE)))
    follower.table.learn(BILLS)
    whole.restart()
    follower.learn(answer(whole, follower.welcome(MINE)))
    assert follower.table == learned(EVENTS)


def test_all_hear_how_far_ingest_routes() -> None:
    core = Whole().core
    assert core.watermarks().message.routed == 0
    found = core.receive(LISTENER, ExchangesUsed(MINE, 5), [])
    assert [one.of_commit for one in found if isinstance(one, PublishWatermarks)] == [True, False]
    assert core.receive(LISTENER, ExchangesUsed(MINE, 4), []) == []  # one that was late
    assert core.watermarks().message.routed == 5
    with pytest.raises(Bug):
        core.receive(PROCESS, ExchangesUsed(MINE, 9), [])


def test_a_change_is_said_on_the_beat_topic_at_once() -> None:
    """ingest does not follow each commit."""
    core = Whole().core
    part, body = control(KIND_EXCHANGE, bytes(record(EVENTS).body))
    core.receive(PROCESS, CommitUnits(MINE, 1, 0, [[part]]), [body])
    group = core.group(WALL)
    assert group is not None
    core.written_to(group.end, core.serial)
    found = [one for one in core.synced(group.end) if isinstance(one, PublishWatermarks)]
    assert [(one.of_commit, one.message.exchanges) for one in found] == [(True, 1), (False, 1)]


def test_a_batch_of_ingest_keeps_its_routes() -> None:
    whole = Whole()
    whole.publish("p", 1)
    known = whole.core.sessions.get(publisher_id("p"))
    assert known is not None
    body = msgpack.encode([b"a", b"b"])
    entry = Entry(
        known.id, known.session, 1, 2, None, crc32c(body), None, ["t"], routes=b"\0\0\1\0\0\0"
    )
    whole.hear(LISTENER, Append(MINE, 2, 0, [entry]), [body])
    whole.commit()
    last = whole.batches()[-1]
    assert (last.skip, last.extra) == (1, [(COLUMN_ROUTES, entry.routes)])
