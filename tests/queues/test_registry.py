"""zbroker/queues/registry.py: queues from definitions, folded from the log, committed to it."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.queues.bench import AFTER_LEASE_MS, BOB, HERE, Bench, bench, replayable, work
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import BlockRead
from zbroker.clock import format_time
from zbroker.config import QueueConfig, RecordConfig
from zbroker.errors import ConfigError
from zbroker.ids import Origin, format_vector
from zbroker.log import records
from zbroker.log.format import KIND_PUBLISH, KIND_PURGE, KIND_QUEUE, KIND_WIRING
from zbroker.log.reader import Cursor, Gap
from zbroker.log.records import (
    WIRING,
    DefinitionRecord,
    MessagesGone,
    QueueRecord,
    encode,
    pack_positions,
)
from zbroker.queues.changes import Changes
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.saved_queue import SavedQueue
from zbroker.queues.snapshots import Snapshots
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Outcome
from zbroker.recording import Recording
from zbroker.topics import TopicType
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.internal import Watermarks
from zbroker.wire.queue_surveys import Define, SetPoint
from zbroker.wire.units import NamedRows

OTHER = Origin(0xDEF, 1)


def _records(at: Bench) -> list[DefinitionRecord]:
    return [WIRING.decode(one.body) for one in at.log if one.kind == KIND_WIRING]


def _again(at: Bench, *configs: QueueConfig) -> Bench:
    """The same log with another config."""
    at.configs = list(configs)
    at.restart()
    return at


def _gone(*positions: int, queue: str = "q", life: int = 1, by: int = 0) -> bytes:
    fact = MessagesGone(pack_positions(BitMap64(positions)))
    return encode(QueueRecord(queue, life, by, 1, [fact]))


# -- definitions ------------------------------------------------------------------------------


def test_a_queue_of_the_config_is_written_down_once() -> None:
    at = bench(work("a"), work("b"))
    assert [(one.name, one.life, one.source) for one in _records(at)] == [
        ("a", 1, "config"),
        ("b", 1, "config"),
    ]
    _again(at, work("a"), work("b"))
    assert len(_records(at)) == 2
    assert sorted(at.manager.running) == ["a", "b"]
    assert at.one("b").definition.created == 2


def test_what_a_config_changes_is_written_down() -> None:
    at = bench(work())
    _again(at, work(lease=5_000))
    old, new = _records(at)
    assert (new.life, new.created, new.definition) == (1, 1, to_builtins(work(lease=5_000)))
    assert old.definition != new.definition
    assert at.one().definition.config.lease == 5_000
    _again(at, work(lease=5_000))
    assert len(_records(at)) == 2


def test_what_a_config_cannot_change_is_refused() -> None:
    at = bench(work())
    at.configs = [work(topic="u")]
    with pytest.raises(ConfigError) as caught:
        at.restart()
    assert "topic" in caught.value.reason


def test_a_queue_that_is_not_in_the_config_any_more_is_not_run() -> None:
    at = bench(work("a"), work("b"))
    positions = at.many(2)
    _again(at, work("a"))
    assert list(at.manager.running) == ["a"]
    assert [note.name for note in at.notes] == ["queues.not_configured"]
    assert [one.what for one in at.holds(0).holdings] == ["a"]
    _again(at, work("a"), work("b"))
    assert at.here("b") == positions


def test_a_queue_of_the_admin_is_run_whatever_the_config_says() -> None:
    at = bench()
    at.ask(Define(1, "create", "mine", {"topic": "t"}))
    _again(at)
    assert list(at.manager.running) == ["mine"]
    assert at.one("mine").definition.source == "admin"


def test_a_queue_of_the_admin_that_comes_into_the_config_goes_on() -> None:
    at = Bench()
    at.ask(Define(1, "create", "mine", {"topic": "t", "lease": 5_000}))
    _again(at, work("mine", lease=5_000))
    assert len(_records(at)) == 1
    _again(at, work("mine", lease=6_000))
    assert len(_records(at)) == 2
    assert at.one("mine").definition.config.lease == 6_000
    assert at.one("mine").definition.declaration == 1


def test_a_deleted_queue_that_comes_into_the_config_begins_a_new_life() -> None:
    at = Bench()
    at.ask(Define(1, "create", "mine", {"topic": "t"}))
    at.ask(Define(1, "delete", "mine"))
    _again(at, work("mine"))
    assert at.one("mine").definition.declaration == 2


def test_what_is_named_again_changes_no_queue_that_runs() -> None:
    at = bench()
    one = at.one()
    at.die()
    at.come_back()
    assert at.one() is one
    assert at.manager.rows["q"].created == 1


def test_a_queue_that_begins_now_begins_there_also_after_a_restart() -> None:
    at = Bench()
    at.many(3)
    _again(at, work(recovery_point="now"))
    positions = at.many(2)
    assert at.here() == positions
    _again(at, work(recovery_point="now"))
    assert at.here() == positions


def test_a_queue_of_the_config_begins_where_its_recovery_point_says() -> None:
    at = Bench()
    positions = at.many(2) + at.many(2)
    config = work(recovery_point=at.bookmark(positions[0]))
    _again(at, config)
    assert at.here() == positions[1:]
    _again(at, config)
    assert at.here() == positions[1:]


def test_a_recovery_point_is_looked_for_until_the_journal_answers() -> None:
    at = Bench()
    positions = at.many(2)
    at.silent = True
    _again(at, work(recovery_point=format_time(at.log[0].log_time)))
    assert at.manager.running == {}
    at.pass_ms(10_000)
    at.answer()
    assert at.here() == positions


def test_a_recovery_point_that_the_log_does_not_hold_is_an_error_of_the_config() -> None:
    at = Bench()
    at.many(2)
    at.configs = [work(recovery_point="5|5|")]
    with pytest.raises(ConfigError):
        at.restart()


# -- fold -------------------------------------------------------------------------------------


def test_what_the_process_before_had_under_way_is_read_first() -> None:
    manager = QueueRegistry(1, [], Recording([]))
    manager.named(NamedRows(0, 9, [], []))
    assert manager.following.persisted == 9


def test_after_a_restart_a_queue_is_what_the_log_says() -> None:
    at = bench()
    positions = at.many(4)
    at.consume()
    at.ack(positions[1])
    at.release(positions[2])
    at.restart()
    assert at.here() == [positions[0], *positions[2:]]
    assert at.one().queue.where(positions[2], at.now).failures == 1


def test_queues_of_one_topic_are_folded_alone() -> None:
    at = bench(work("a"), work("b"), work("c", "u"))
    positions = at.many(2)
    others = at.many(2, "u")
    at.ack(*positions, sid=None, queue="a")
    assert (at.here("a"), at.here("b"), at.here("c")) == ([], positions, others)


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        b"\x80",
        encode({"queue": 1}),
        encode({"queue": "q", "life": 1, "by": 0, "unit": 1, "facts": [[99, b""]]}),
    ],
)
def test_a_record_of_a_newer_release_is_stepped_over(body: bytes) -> None:
    at = bench()
    positions = at.many(2)
    at.record_of(KIND_QUEUE, body)
    assert at.here() == positions


def test_facts_of_another_life_or_queue_do_not_count() -> None:
    at = bench()
    positions = at.many(2)
    at.record_of(KIND_QUEUE, _gone(*positions, life=2))
    at.record_of(KIND_QUEUE, _gone(*positions, queue="p"))
    assert at.here() == positions
    at.record_of(KIND_QUEUE, _gone(*positions))
    assert at.here() == []


def test_facts_of_another_instance_do_not_count() -> None:
    at = bench()
    positions = at.many(2)
    at.record_of(KIND_QUEUE, _gone(*positions), OTHER)
    assert at.here() == positions


def test_facts_that_were_folded_do_not_count_twice() -> None:
    at = bench(work(max_cancels=3))
    [position] = at.many(1)
    at.consume()
    at.release(position)
    saved = Snapshots().take(at.manager).many
    key = "q", 1
    at.release(position)
    at.restart({key: saved[key]})
    assert at.one().queue.where(position, at.now).failures == 2


def test_a_purge_is_of_one_replayable_queue() -> None:
    at = bench(replayable("a"), replayable("b"), work("c"))
    positions = at.many(4)
    for name in "ac":
        vector = format_vector({HERE: positions[1], OTHER: 10_000})
        at.record_of(KIND_PURGE, records.encode(records.PurgeRecord(name, vector)))
    assert at.here("a") == positions[2:]
    assert at.here("b") == positions
    assert at.here("c") == positions


def test_a_purge_of_an_earlier_life_does_not_count() -> None:
    at = Bench()
    positions = at.many(2)
    vector = format_vector({HERE: positions[-1]})
    at.record_of(KIND_PURGE, records.encode(records.PurgeRecord("q", vector)))
    at.ask(Define(1, "create", "q", {"topic": "t", "kind": "replayable"}))
    assert at.here() == positions


def test_a_queue_that_catches_up_reads_what_others_have_read() -> None:
    at = bench(work("a"))
    positions = at.many(5)
    at.ask(Define(1, "create", "b", {"topic": "t"}))
    assert at.here("b") == positions
    more = at.many(1)
    assert (at.here("a"), at.here("b")) == (positions + more, positions + more)


def test_points_are_placed_by_this_origin() -> None:
    at = bench()
    positions = at.many(2)
    at.ask(SetPoint(1, "p", positions[1]))
    assert at.manager.points["p"].position == positions[1]
    assert at.manager.position_of(format_vector({OTHER: 5})) == 1
    at.manager.here = None
    assert at.manager.position_of(format_vector({HERE: 5})) == 0


# -- tables -----------------------------------------------------------------------------------


def _saved(at: Bench) -> dict[tuple[str, int], SavedQueue]:
    return Snapshots().take(at.manager).many


def test_a_queue_goes_on_where_its_tables_are() -> None:
    at = bench()
    positions = at.many(4)
    at.consume()
    at.ack(positions[0])
    at.release(positions[1])
    at.reject(positions[2])
    saved = _saved(at)
    more = at.many(1)
    at.ack(positions[3])
    before = at.one().queue.dump()
    at.restart(saved)
    one = at.one()
    assert at.here() == [positions[1], *more]
    assert list(one.dead) == positions[2:3]
    assert one.queue.dump() == before
    assert one.oldest_ns is not None
    assert one.queue.deliveries_of(BitMap64(at.here())) == [3, 2]


def test_tables_of_another_life_are_not_used() -> None:
    at = bench()
    empty = _saved(at)["q", 1]
    positions = at.many(2)
    at.restart({("q", 2): empty._replace(position=at.position)})
    assert at.here() == positions


@pytest.mark.parametrize(
    ("row", "data"),
    [
        *((row, data) for row in ("ages", "dead", "here", "format") for data in (None, b"nope")),
        ("dead", b""),
        ("failures.0", b""),
    ],
)
def test_tables_that_are_damaged_are_not_used(row: str, data: bytes | None) -> None:
    at = bench()
    positions = at.many(3)
    at.consume()
    at.ack(positions[0])
    at.release(positions[1])
    before = at.one().queue.dump()
    saved = _saved(at)
    rows = saved["q", 1].rows
    if data is None:
        rows.pop(row)
    else:
        rows[row] = data
    at.restart(saved)
    assert at.here() == positions[1:]
    assert [note.name for note in at.notes] == ["queues.tables_unusable"]
    assert at.one().queue.dump() == before


def test_tables_that_end_before_the_log_begins_are_not_used() -> None:
    at = bench()
    saved = _saved(at)
    at.many(2)
    positions = at.many(2)
    at.log_start = positions[0]
    at.log = [one for one in at.log if one.kind == KIND_WIRING or one.position >= at.log_start]
    at.restart(saved)
    assert at.here() == positions
    assert at.notes == []


def test_where_the_horizon_may_be_removed_everything_is_flagged() -> None:
    at = bench()
    at.many(2)
    positions = at.many(2)
    at.log_start = positions[0]
    at.log = [one for one in at.log if one.kind == KIND_WIRING or one.position >= at.log_start]
    at.restart()
    assert at.one().queue.deliveries_of(BitMap64(positions)) == [2, 2]


def test_what_the_tables_held_is_let_go_after_the_start() -> None:
    at = bench()
    at.restart(_saved(at))
    assert not at.manager._saved


def test_a_queue_that_is_being_read_is_not_saved() -> None:
    at = bench()
    at.many(3)
    at.reading = False
    at.restart()
    assert Snapshots().take(at.manager).many == {}


# -- commit -----------------------------------------------------------------------------------


def test_what_one_turn_decides_is_one_unit_for_each_queue() -> None:
    at = bench(work("a"), work("b"))
    positions = at.many(4)
    at.consume("a", "a")
    at.consume("b", "b")
    at.holding = True
    at.release(positions[0], sid="a")
    at.land()
    before = at.position
    at.send(
        q.Settle(sid="a", ends=[positions[1], positions[2]]),
        q.RejectMessages(sid="a", ends=[positions[2], positions[3]]),
        q.Settle(sid="b", ends=[positions[3], positions[3] + 1]),
    )
    assert len(at.under_way) == 2
    at.land()
    assert at.position == before + 2


def test_one_unit_is_about_so_many_messages_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbroker.queues.queue_state.FACTS_MAX", 2)
    at = bench()
    positions = at.many(6)
    at.holding = True
    at.send(*[q.Settle(queue="q", ends=[one, one + 1]) for one in positions])
    assert len(at.under_way) == 3
    at.land()
    assert at.here() == []


@pytest.mark.parametrize(
    ("fate", "why", "counted"),
    [
        ("gone", "acked", {"acked": 2}),
        ("gone", "sent", {"acked": 2}),
        ("gone", "purged", {}),
        ("gone", "time_limit", {"expired": 2, "dead": 2}),
        ("gone", "max_deliveries", {"dead": 2}),
        ("gone", "rejected", {"dead": 2}),
        ("gone", "unreadable", {"dead": 2}),
        ("failed", "cancelled", {"failed": 2}),
        ("noted", "acked", {"acked": 2}),
    ],
)
def test_what_has_landed_is_counted(fate: str, why: str, counted: dict[str, int]) -> None:
    at = bench()
    one = at.one()
    one.entries.append((Outcome(BitMap64([900, 901]), fate, why), None))
    at.core.shared.touch(one)
    at.run()
    found = {name: getattr(one.counts, name) for name in ("acked", "expired", "dead", "failed")}
    assert {name: count for name, count in found.items() if count} == counted


def test_a_queue_of_the_config_that_cannot_be_made_is_missing_and_that_is_said() -> None:
    at = Bench(work(), welcome=False)
    at.holding = True
    at.welcome()
    assert not at.manager.ready
    at.refuse("too_large")
    assert "queues.not_made" in [note.name for note in at.notes]
    assert at.manager.ready
    assert at.manager.running == {}
    assert at.manager.rows == {}


def test_a_replayable_queue_can_be_altered() -> None:
    at = Bench()
    table: dict[str, Any] = {"topic": "t", "kind": "replayable"}
    at.ask(Define(1, "create", "q", table))
    at.ask(Define(1, "alter", "q", {"size_alarm": 5}))
    assert at.one().definition.config.size_alarm == 5
    positions = at.many(1)
    assert at.here() == positions


def test_a_tombstone_of_what_does_not_run_changes_nothing() -> None:
    at = bench()
    at.manager.define(DefinitionRecord("other", 3, "admin"))
    at.run()
    assert at.manager.rows["other"].life == 3
    assert list(at.manager.running) == ["q"]


@pytest.mark.parametrize("first", [1, 5])
def test_what_was_folded_already_is_not_folded_again(first: int) -> None:
    """first: which of both walks is read first; that from 1 on reaches the other one."""
    at = bench(work("a"), work("b"))
    positions = at.many(2)
    saved = {("a", 1): _saved(at)["a", 1]}
    positions += at.many(2)
    at.consume("b")
    at.release(positions[0])
    at.reading = False
    at.restart(saved)
    read = next(
        read for _ in range(2) if (read := at.core.next_read()) and read.cursor.position == first
    )
    at.turn.hear(at._block(read))
    at.reading = True
    at.run()
    assert (at.here("a"), at.here("b")) == (positions, positions)
    assert (at.one("a").counts.entered, at.one("b").counts.entered) == (2, 4)
    assert at.one("b").queue.where(positions[0], at.now).failures == 1


def test_who_repeats_an_ack_is_answered_when_the_queue_has_read_it() -> None:
    at = bench()
    positions = at.many(2)
    at.holding = True
    at.ack(*positions, sid=None, queue="q", cid="1")
    at.ack(*positions, sid=None, queue="q", cid="2")
    at.reading = False
    at.land()
    assert [one.cid for one in at.of(q.Settled)] == ["1"]
    at.reading = True
    at.run()
    assert [one.cid for one in at.of(q.Settled)] == ["1", "2"]


def test_records_that_are_about_nothing_here_are_passed_over() -> None:
    at = bench()
    at.noop()
    first = at.position
    at.turn.hear(Watermarks(at.journal, *HERE, 1, first + 5, first + 5, 1, 0))
    read = at.core.next_read()
    assert read is not None
    gap = Gap(first, first + 5, "damaged")
    block = Block(read.cursor, [gap], Cursor(1, first + 5, first + 5))
    at.turn.hear(BlockRead(read, block))
    assert at.here() == []
    assert at.one().folded == first + 5


def test_points_are_known_after_a_restart() -> None:
    at = bench()
    at.ask(SetPoint(1, "p"))
    before = dict(at.manager.points)
    at.restart()
    assert at.manager.points == before


def test_a_refused_unit_is_undone_and_whoever_waits_is_informed() -> None:
    at = bench()
    positions = at.many(2)
    at.holding = True
    at.ack(*positions, sid=None, queue="q", cid="1")
    at.ack(*positions, sid=None, queue="q", cid="2")
    at.refuse("too_large")
    assert [note.name for note in at.notes] == ["queues.refused"]
    assert at.one().queue.going == BitMap64()
    assert at.errors() == [("too_large", "1", None), ("too_large", "2", None)]


def test_dead_letters_are_before_the_facts_of_their_unit() -> None:
    at = bench(work(dead_letter="dead"))
    positions = at.many(1)
    at.reject(*positions, sid=None, queue="q")
    assert [one.kind for one in at.log[-2:]] == [KIND_PUBLISH, KIND_QUEUE]


def test_a_queue_begins_where_the_log_began_when_it_was_made() -> None:
    at = bench(work("other"))
    old, new = at.many(2), at.many(2)
    at.log_start = new[0]
    at.watermarks()
    at.ask(Define(1, "create", "q", {"topic": "t"}))
    at.log_start = 1  # what is below it may be there again after a crash
    at.restart()
    assert at.here() == new
    assert old


@pytest.mark.parametrize("kind", ["work", "replayable"])
def test_what_retention_removed_while_a_queue_was_defined_leaves_it(kind: str) -> None:
    at = bench(work("other", topic="else"))
    old, new = at.many(2), at.many(2)
    at.ask(Define(1, "create", "q", {"topic": "t", "kind": kind}))
    assert at.here() == [*old, *new]
    at.log_start = new[0]
    at.persist()
    assert at.here() == new
    assert [note.name for note in at.notes] == ["queues.removed_early"]
    at.restart()
    assert at.here() == new


def test_what_a_consumer_has_of_removed_messages_is_not_waited_for() -> None:
    at = bench(work("other", topic="else"))
    at.many(2)
    new = at.many(2)
    at.ask(Define(1, "create", "q", {"topic": "t"}))
    at.consume(credit=4)
    at.log_start = new[0]
    at.persist()
    one = at.one("q").queue
    assert isinstance(one, Queue)
    assert list(one.leased(None)) == new
    one.check()


def test_a_reader_of_removed_messages_is_informed() -> None:
    at = bench(work("other", topic="else"))
    at.many(2)
    new = at.many(2)
    at.ask(Define(1, "create", "q", {"topic": "t", "kind": "replayable"}))
    at.consume(since="epoch", credit=0)
    at.log_start = new[0]
    at.persist()
    assert [code for code, *_ in at.errors()] == ["bookmark_expired"]


def test_a_purge_that_cannot_be_read_is_stepped_over() -> None:
    at = bench(replayable())
    [first, *_] = at.many(2)
    at.record_of(KIND_PURGE, b"\xc1")
    at.restart()
    assert first in at.here()


# -- types of topics --------------------------------------------------------------------------


def _typed(type_: Literal["json", "fix", "nvfix"], topic: str = "t", **more: Any) -> Recording:
    return Recording([RecordConfig(topic, type=type_, **more)])


@pytest.mark.parametrize("tables", [True, False])
def test_another_type_of_a_topic_leaves_what_is_in_a_filtered_queue(tables: bool) -> None:
    at = bench(work(filter="/p > 1"), record=_typed("json"))
    positions = at.publish(b'{"p": 1}', b'{"p": 2}', b'{"p": 3}')
    saved = _saved(at) if tables else None
    at.record = _typed("fix")
    at.restart(saved)
    assert at.here() == positions[1:]
    positions += at.publish(b'{"p": 4}')
    assert at.here() == positions[1:]


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ({"priority": "/p"}, [2, 1, 0]),
        ({"group_key": "/g"}, [0, 1]),
        ({"barrier": "/p = 1"}, [0]),
    ],
)
def test_another_type_of_a_topic_changes_no_order(
    setting: dict[str, str], given: list[int]
) -> None:
    at = bench(work(**setting), record=_typed("json"))
    positions = at.publish(*(b'{"p": %d, "g": %d}' % (p, p % 2) for p in range(3)))
    at.record = _typed("fix")
    at.restart()
    at.logon()
    at.consume()
    assert at.got() == [positions[i] for i in given]


def test_a_queue_of_many_topics_keeps_the_type_of_each() -> None:
    rules = [RecordConfig("a", type="nvfix"), RecordConfig(".*", regex=True, type="json")]
    at = bench(work(topic="a|b", regex=True, filter="/p > 1"), record=Recording(rules))
    first = at.publish(b"p=2\x01", topic="a") + at.publish(b'{"p": 2}', topic="b")
    at.record = Recording([])
    at.restart()
    assert at.here() == first


def test_a_definition_without_types_records_those_of_the_config_once() -> None:
    at = Bench(work(filter="/p > 1"), record=_typed("json"), welcome=False)
    table = to_builtins(at.configs[0])
    at.record_of(KIND_WIRING, encode(DefinitionRecord("q", 1, "config", 0, 1, table)))
    at.welcome()
    assert [one.types for one in _records(at)] == [None, [TopicType("t", type="json")]]
    positions = at.publish(b'{"p": 2}')
    assert at.here() == positions
    at.record = _typed("fix")
    at.restart()
    assert len(_records(at)) == 2
    assert len(at.here()) == 1


def test_a_run_time_queue_without_types_records_those_of_the_config_once() -> None:
    at = Bench(record=_typed("json"), welcome=False)
    table = {"topic": "t", "name": "q", "filter": "/p > 1"}
    at.record_of(KIND_WIRING, encode(DefinitionRecord("q", 1, "admin", 0, 1, table)))
    at.welcome()
    assert _records(at)[-1].types == [TopicType("t", type="json")]
    at.ask(Define(1, "alter", "q", {"lease": "5s"}))
    assert _records(at)[-1].types == [TopicType("t", type="json")]


def test_a_queue_that_looks_into_no_message_records_no_types() -> None:
    at = bench(record=_typed("json"))
    assert [one.types for one in _records(at)] == [None]
    at.restart()
    assert len(_records(at)) == 1


def test_types_that_differ_from_the_config_are_named_at_a_start() -> None:
    at = bench(work(filter="/p > 1"), record=_typed("json"))
    at.record = _typed("fix")
    at.restart()
    [note] = at.notes
    assert note.name == "queues.types_kept"
    assert "reads t as json" in note.text
    assert "t as fix now" in note.text


def test_a_queue_that_is_made_again_has_the_types_of_the_config() -> None:
    at = Bench(record=_typed("json"))
    at.ask(Define(1, "create", "q", {"topic": "t", "filter": "/p > 1"}))
    at.ask(Define(1, "delete", "q"))
    at.record = _typed("fix")
    at.restart()
    at.ask(Define(1, "create", "q", {"topic": "t", "filter": "/p > 1"}))
    assert _records(at)[-1].types == [TopicType("t", type="fix")]


def test_what_changed_after_a_look_is_found() -> None:
    changes = Changes()
    changes.note("a")
    changes.note("b")
    first = changes.look()
    assert changes.since(first) == []
    changes.note("a")
    second = changes.look()
    changes.note("c")
    assert (changes.since(first), changes.since(second)) == (["c", "a"], ["c"])
    assert sorted(changes.since(0)) == ["a", "b", "c"]


class Watching:
    """An admin that asks only for what changed. `rows`: what it knows by that."""

    def __init__(self, at: Bench) -> None:
        self.at = at
        self.rows: dict[str, s.QueueRow] = {}
        self.look = self.incarnation = 0
        self.reported: list[str] = []

    def ask(self) -> None:
        answer = self.at.ask(s.AskQueues(1, since=self.look, of=self.incarnation))
        self.look, self.incarnation = answer.look, answer.incarnation
        if answer.whole:
            self.rows = {}
        for name in answer.gone:
            self.rows.pop(name, None)
        self.rows |= {row.name: replace(row) for row in answer.rows}
        self.reported = sorted(row.name for row in answer.rows)


def _lasting(row: s.QueueRow) -> s.QueueRow:
    """Without what follows from the time or from the end of the log alone."""
    return replace(row, behind=0, idle_ms=None, holding=row.holding if row.depth else 0)


def test_a_queue_that_stands_still_is_not_reported_again() -> None:
    at = bench(work("busy"), *(work(f"idle{i}", topic=f"x{i}") for i in range(20)))
    admin = Watching(at)
    admin.ask()
    assert len(admin.reported) == 21
    admin.ask()
    assert admin.reported == [], "nothing happened"
    at.many(3)
    at.pass_ms(1_000)
    admin.ask()
    assert admin.reported == ["busy"]
    admin.ask()
    assert admin.reported == []


def test_a_queue_that_is_gone_is_reported_once() -> None:
    at = Bench()
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    admin = Watching(at)
    admin.ask()
    at.ask(s.Define(1, "delete", "q"))
    answer = at.ask(s.AskQueues(1, since=admin.look, of=admin.incarnation))
    assert (answer.gone, answer.rows) == (["q"], [])
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    admin.ask()
    assert admin.rows["q"].life == 2


def test_a_queue_that_is_altered_is_reported() -> None:
    at = Bench()
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    admin = Watching(at)
    admin.ask()
    at.ask(s.Define(1, "alter", "q", {"lease": "5s"}))
    admin.ask()
    assert admin.rows["q"].definition["lease"] == 5_000


def test_after_a_restart_everything_is_reported() -> None:
    at = bench(work("a"), work("b", topic="x"))
    admin = Watching(at)
    admin.ask()
    at.restart()
    admin.ask()
    assert admin.reported == ["a", "b"]
    admin.look = 0
    admin.ask()
    assert admin.reported == ["a", "b"]


def test_whoever_asks_for_one_queue_gets_it() -> None:
    at = bench(work("a"), work("b", topic="x"))
    look = at.ask(s.AskQueues(1)).look
    answer = at.ask(s.AskQueues(1, "a", since=look, of=at.incarnation))
    assert [row.name for row in answer.rows] == ["a"]


STEPS: dict[str, Any] = {
    "publish": lambda at: at.many(3),
    "publish to the other": lambda at: at.publish(b"{}", topic="x"),
    "consume": lambda at: at.consume("a", sid="a"),
    "consume the other": lambda at: at.consume("b", sid="b", since="0"),
    "of another client": lambda at: at.consume("a", sid="z", rid=BOB),
    "ack": lambda at: [at.ack(one, sid="a") for one in at.got("a")[:1]],
    "release": lambda at: [at.release(one, sid="a") for one in at.got("a")[-1:]],
    "release later": lambda at: [
        at.send(q.Release("c", "a", ends=[one, one + 1], delay_ms=500)) for one in at.got("a")[-1:]
    ],
    "reject": lambda at: [at.reject(one, sid="a") for one in at.got("a")[-1:]],
    "lose": lambda at: at.lose(BOB),
    "cancel": lambda at: at.send(q.Cancel("a")),
    "time": lambda at: at.pass_ms(700),
    "leases end": lambda at: at.pass_ms(AFTER_LEASE_MS),
    "units wait": lambda at: setattr(at, "holding", True),
    "units land": lambda at: (setattr(at, "holding", False), at.land()),
    "units are refused": lambda at: at.refuse() if at.under_way else None,
    "purge": lambda at: at.ask(s.Purge(1, "a")) if not at.holding else None,
    "requeue": lambda at: at.ask(s.Requeue(1, "a")) if not at.holding else None,
    "cannot be read": lambda at: at.unreadable.update(at.here("a")[:1]),
    "restart": lambda at: at.restart(),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=25))
def test_what_changed_adds_up_to_what_is(steps: list[str]) -> None:
    """Whatever happens: nothing that changes a row goes unnoticed."""
    at = bench(work("a", dead_letter="dead", max_deliveries=2), replayable("b", topic="x"))
    admin = Watching(at)
    for step in steps:
        if step in ("consume", "of another client") and len(at.core.shared.of.get("a", ())) > 1:
            continue
        STEPS[step](at)
        at.run()
        admin.ask()
        all_rows = {row.name: _lasting(row) for row in at.ask(s.AskQueues(1)).rows}
        assert {name: _lasting(row) for name, row in admin.rows.items()} == all_rows, step
