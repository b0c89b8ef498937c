"""zbroker/queues/core.py: logons, refusals, the journal's word, time, the end of a turn."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.queues.bench import (
    AFTER_LEASE_MS,
    ANN,
    BOB,
    HERE,
    KEY_A,
    KEY_B,
    Bench,
    bench,
    replayable,
    rules,
    work,
)
from zbroker.access.core import Access
from zbroker.engine.effects import Exit, Note, NoteDisconnected, Tell
from zbroker.engine.events import (
    Asked,
    Commands,
    ReadFailed,
    RulesChanged,
    StopAsked,
    Unauthenticated,
)
from zbroker.errors import StorageError
from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log.format import KIND_POINT, KIND_PURGE, KIND_WIRING
from zbroker.log.records import ends_of
from zbroker.queues import full_queue_tracker, journal_client
from zbroker.queues.commits import RETRY_MS
from zbroker.queues.core import AGAIN_MS, TICK_MS
from zbroker.queues.effects import Inspect, InspectedMessage, SaveTables, TablesSaved
from zbroker.server.peers import Received
from zbroker.wire import codec, token
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.internal import UnknownRequester, Watermarks
from zbroker.wire.surveys import AskClients, AskRefusals, Disconnect, Disconnected

# -- logons -----------------------------------------------------------------------------------


def test_a_logon_is_answered_with_the_origin_of_positions() -> None:
    at = bench()
    [ack] = at.of(m.Ack)
    assert (ack.type, ack.cid, ack.version, ack.origin) == ("processed", "logon", 1, HERE)


def test_a_token_of_another_key_is_refused() -> None:
    at = bench()
    said = token.Token("ann", "ann", "i", 1, 10**10, "")
    at.send(m.ListenerLogon(token.make(b"x" * 32, said), "1"), rid=BOB)
    assert at.errors() == [("auth_failed", "1", None)]
    [row] = at.ask(AskRefusals(7, 0)).rows
    assert (row.what, row.code) == ("logon", "auth_failed")


def test_a_routing_id_that_the_client_chose_is_refused() -> None:
    at = bench()
    at.logon(b"mine!", "ann")
    assert at.codes() == ["auth_failed"]


def test_only_so_many_are_connected() -> None:
    at = bench(clients_max=1)
    at.logon(BOB)
    assert at.errors() == [("too_many", "logon", None)]
    at.logon(ANN)
    assert at.last().type == "processed", "who is there may log on again"


def test_who_logs_on_again_is_a_new_connection() -> None:
    at = bench()
    [position] = at.many(1)
    at.consume()
    at.logon()
    at.consume(holding=[position, position + 1])
    assert at.of(q.Consuming)[-1].kept == [position, position + 1]


def test_a_logoff_gives_back_what_is_held() -> None:
    at = bench()
    positions = at.many(1)
    at.consume()
    at.send(m.Logoff("bye"))
    assert at.last() == m.Ack("processed", "bye")
    assert at.core.shared.connections == {}
    at.logon(BOB)
    at.consume(sid="b", rid=BOB)
    assert at.got("b") == positions


def test_a_heartbeat_is_not_answered() -> None:
    at = bench()
    count = len(at.answers)
    at.send(m.Heartbeat())
    assert len(at.answers) == count


# -- frames -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "over", "code", "cid"),
    [
        ([], False, "bad_frame", None),
        ([codec.encode(q.Cancel("s", "c")), b"body"], False, "bad_frame", "c"),
        ([codec.encode(q.Cancel("s", "c"))], True, "bad_frame", "c"),
        ([b"\xc1"], False, "bad_frame", None),
        ([codec.encode({"cmd": "nope", "cid": "c"})], False, "bad_command", "c"),
        ([codec.encode({"cmd": "consume", "cid": "c", "sid": "s"})], False, "bad_field", "c"),
    ],
)
def test_what_is_no_command_is_refused(
    frames: list[bytes], over: bool, code: str, cid: str | None
) -> None:
    at = bench()
    at.frames([frames], over=over)
    assert at.errors() == [(code, cid, None)]
    assert at.core.connections.errors == 1


def test_who_is_not_logged_on_is_informed() -> None:
    at = bench()
    at.send(q.Consume("s", "q", "c"), rid=BOB)
    assert at.errors() == [("not_logged_on", "c", "s")]


def test_an_error_of_a_heartbeat_has_no_cid() -> None:
    at = bench()
    at.send(m.Heartbeat(), m.Flow("s", 1), rid=BOB)
    assert at.errors() == [("not_logged_on", None, None), ("not_logged_on", None, "s")]


def test_a_command_with_another_key_is_refused() -> None:
    at = Bench(work(), access=rules("q"))
    at.logon(key=KEY_A)
    at.keys[ANN] = KEY_B
    at.consume()
    assert at.errors() == [("auth_failed", "c-s", "s")]
    [row] = at.ask(AskRefusals(7, 0)).rows
    assert (row.who, row.what) == ("ann", "consume q")


# -- rules that change ------------------------------------------------------------------------


def test_rules_that_change_end_consumers() -> None:
    at = Bench(work("a"), work("b"), access=rules("a", "b"))
    at.logon(key=KEY_A)
    at.consume("a", "a")
    at.consume("b", "b")
    at.turn.hear(RulesChanged(rules("b")))
    at.run()
    assert at.errors() == [("not_entitled", None, "a")]
    assert [one.sid for one in at.core.shared.consumers.values()] == ["b"]
    [row] = at.ask(AskRefusals(7, 0)).rows
    assert (row.who, row.what, row.code) == ("ann", "keep consuming a", "not_entitled")


def test_rules_that_change_end_connections() -> None:
    at = Bench(work(), access=rules("q"))
    at.logon(key=KEY_A)
    at.consume()
    at.turn.hear(RulesChanged(Access([], {})))
    at.run()
    assert at.errors() == [("auth_failed", None, None)]
    assert at.core.shared.connections == {}
    assert at.core.shared.consumers == {}
    [row] = at.ask(AskRefusals(7, 0)).rows
    assert row.what == "stay logged on"


@pytest.mark.parametrize("first", [ANN, BOB])
def test_rules_that_change_end_one_connection_after_the_other(first: bytes) -> None:
    """Ann keeps her session and loses a consumer; the rules know nothing of bob any more."""
    bob = f'[principal.bob]\nkeys = ["{KEY_B}"]\nroles = ["r"]\n'
    at = Bench(work("a"), access=rules("a", more=bob))
    for rid in sorted([ANN, BOB], key=lambda rid: rid != first):
        at.logon(rid, key={ANN: KEY_A, BOB: KEY_B}[rid])
        at.consume("a", "s", rid)
    at.answers.clear()
    at.turn.hear(RulesChanged(rules("b")))
    at.run()
    ends = {ANN: ("not_entitled", "s"), BOB: ("auth_failed", None)}
    second = BOB if first == ANN else ANN
    found = [(rid, (answer.code, answer.sid)) for rid, answer in at.answers]
    assert found == [(rid, ends[rid]) for rid in (first, second)]


# -- the journal ------------------------------------------------------------------------------


def test_a_queue_of_the_config_is_made_when_a_journal_is_there() -> None:
    at = Bench(work(), welcome=False)
    assert at.manager.running == {}
    at.welcome()
    assert list(at.manager.running) == ["q"]


def test_a_welcome_that_is_repeated_changes_nothing() -> None:
    at = bench()
    before = at.position
    at.welcome()
    assert at.position == before


def test_marks_before_a_welcome_are_not_listened_to() -> None:
    at = Bench(work(), welcome=False)
    at.persist()
    assert at.manager.here is None
    at.welcome()
    assert at.manager.here == HERE


def test_what_a_dead_journal_did_not_write_is_sent_to_the_next_one() -> None:
    at = bench()
    positions = at.many(2)
    at.consume()
    at.holding = True
    at.ack(*positions)
    at.die()
    at.come_back()
    at.land()
    assert at.settled() == [(2, 0)]
    assert at.here() == []


def test_what_a_dead_journal_did_write_is_found_in_the_log() -> None:
    at = bench()
    positions = at.many(2)
    at.consume()
    at.receipts = False
    at.ack(*positions)
    assert at.settled() == []
    at.die()
    at.receipts = True
    end = at.position
    at.come_back()
    assert at.settled() == [(2, 0)]
    assert at.position == end, "nothing was written twice"


def test_a_journal_that_knows_us_no_more_is_asked_what_it_took() -> None:
    """It lives: what it has written is not durable yet, and is not sent again."""
    at = bench()
    positions = at.many(2)
    at.consume()
    at.receipts, at.durable = False, False
    at.ack(*positions)
    end = at.position
    assert end > at.persisted
    at.turn.hear(UnknownRequester())
    at.receipts = at.durable = True
    at.welcome()
    assert at.settled() == []
    assert at.position == end, "nothing was written twice"
    at.persist()
    assert at.settled() == [(2, 0)]
    assert at.position == end


def test_a_journal_that_knows_us_no_more_gets_what_it_did_not_take() -> None:
    at = bench()
    positions = at.many(2)
    at.consume()
    at.holding = True
    at.ack(*positions)
    at.under_way.clear()
    at.turn.hear(UnknownRequester())
    at.welcome()
    at.land()
    assert at.settled() == [(2, 0)]


def test_look_ups_that_a_dead_journal_left_are_made_again() -> None:
    at = bench()
    positions = at.many(2)
    at.consume()
    at.silent = True
    at.ack(ends=[], bookmarks=[at.bookmark(positions[0])])
    at.die()
    at.silent = False
    at.come_back()
    assert at.settled() == [(1, 0)]


def test_a_generation_that_begins_behind_what_was_read_changes_nothing() -> None:
    at = bench()
    positions = at.many(3)
    at.raise_generation(9)
    assert at.manager.here == HERE._replace(generation=9)
    assert at.here() == positions


def test_a_log_that_has_lost_what_was_read_of_its_generation_is_read_again() -> None:
    at = bench()
    at.many(3)
    watermarks = Watermarks(
        at.journal, HERE.instance, HERE.generation + 1, 1, 9, 9, 1, 0,
        [(HERE.generation + 1, at.persisted - 1)],
    )  # fmt: skip
    with pytest.raises(StorageError) as caught:
        at.turn.hear(watermarks)
    assert caught.value.code == "damaged"


def test_definitions_may_come_before_the_generation_that_their_answer_is_of() -> None:
    """The answer comes by another socket than the watermarks, and may be faster."""
    at = Bench(work(), welcome=False)
    at.many(2)  # of the new generation, not reported yet
    at.persisted, at.durable, at.reading = 1, False, False
    at.welcome()
    assert at.manager.following.persisted == 3
    at.raised.append((9, 1))
    at.origin, at.reading = HERE._replace(generation=9), True
    at.persist()
    assert at.manager.here == HERE._replace(generation=9)
    assert at.here() == [1, 2]


def test_a_log_that_ends_before_what_was_read_is_read_again() -> None:
    at = bench()
    at.many(5)
    at.die()
    with pytest.raises(StorageError) as caught:
        at.welcome(persisted=at.persisted - 1)
    assert caught.value.code == "damaged"


def test_a_queue_holds_the_log_from_its_oldest_message_on() -> None:
    at = bench(work("a"), work("b"), replayable("c"))
    positions = at.many(3)
    at.consume("a")
    at.ack(*positions[:2])
    at.pass_ms(0)
    holds = at.holds(5_000)
    assert (holds.incarnation, holds.log_start, holds.lowest) == (at.journal, 1, positions[0])
    assert [(one.who, one.what, one.position) for one in holds.holdings] == [
        ("queues", "b", positions[0]),
        ("queues", "c", positions[0]),
        ("queues", "a", positions[2]),
    ]
    assert {one.since_ms for one in at.holds(9_000).holdings} == {5_000}


def test_as_long_as_the_queues_are_not_known_all_of_the_log_is_held() -> None:
    at = Bench(work(), welcome=False)
    assert at.holds(0).lowest == 0


def test_as_long_as_a_queue_is_read_all_of_the_log_is_held() -> None:
    at = bench()
    at.consume()
    at.ack(*at.many(3))
    at.reading = False
    at.restart()
    assert at.holds(0).lowest == 0, "dead letters that came back may be anywhere"
    at.reading = True
    at.run()
    assert at.holds(0).lowest > 0


def test_without_queues_nothing_is_held() -> None:
    assert Bench().holds(0).lowest == U63_MAX


# -- the admin --------------------------------------------------------------------------------


def test_connections_are_reported() -> None:
    at = bench()
    assert [row.client for row in at.ask(AskClients(7)).rows] == ["ann"]


def test_a_client_is_disconnected() -> None:
    at = bench()
    positions = at.many(1)
    at.consume()
    assert at.ask(Disconnect(7, "ann")) == Disconnected(7, 1)
    at.run()
    assert at.codes() == ["session_ended"]
    assert at.core.shared.connections == {}
    assert at.state(positions[0]) == "leased", "it may come back for what it has"
    assert at.ask(Disconnect(7, "ann")) == Disconnected(7, 0)


def test_a_session_that_is_ended_ends_after_what_it_is_sent_before() -> None:
    """The admin and the log hear of it at once."""
    at = bench()
    at.turn.hear(Commands([Received(ANN, [codec.encode(q.Consume("s", "q", "1"))])]))
    effects = at.core.handle(Asked(b"admin", Disconnect(7, "ann")), at.now)
    assert effects == [NoteDisconnected("ann", 1), Tell(b"admin", Disconnected(7, 1))]
    none = at.core.handle(Asked(b"admin", Disconnect(8, "ann")), at.now)
    assert none == [Tell(b"admin", Disconnected(8, 0))], "the log says nothing of it"
    assert [type(answer) for _, answer in at.answers] == [m.Ack], "of the logon"
    at.run()
    consuming, end = [answer for _, answer in at.answers[1:]]
    assert (type(consuming), end.code) == (q.Consuming, "session_ended")


def test_a_token_ends_when_an_operator_disconnects_its_client() -> None:
    at = bench()
    at.ask(Disconnect(7, "ann", 1))
    at.logon(ANN)
    assert at.codes() == ["session_ended", "auth_failed"]
    at.logon(BOB)
    assert at.last().type == "processed", "it is about ann"


# -- time -------------------------------------------------------------------------------------


def test_a_silent_peer_is_forgotten() -> None:
    at = bench()
    at.logon(heartbeat_s=1)
    at.pass_ms(500)
    assert at.of(m.Heartbeat)
    for _ in range(3):
        at.pass_ms(500)
    assert at.errors() == [("not_logged_on", None, None)]
    assert at.core.shared.connections == {}


@pytest.mark.seed("002-43")
def test_a_heartbeat_that_names_an_interval_begins_them() -> None:
    at = bench()
    at.send(m.Heartbeat(1.0))
    at.pass_ms(500)
    assert at.of(m.Heartbeat)
    for _ in range(3):
        at.pass_ms(500)
    assert at.core.shared.connections == {}


def test_a_peer_of_which_more_may_wait_is_not_silent() -> None:
    at = bench()
    at.logon(heartbeat_s=1)
    at.now = replace(at.now, mono_ms=5_000)
    at.drained = False  # type: ignore[misc]
    at.run()
    assert at.core.shared.connections


def test_a_peer_that_was_gone_already_is_no_matter() -> None:
    at = bench()
    at.lose(BOB)
    assert list(at.core.shared.connections) == [ANN]


def test_the_core_wakes_for_what_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_client, "HOLDS_MS", 60_000)
    at = Bench(work())
    at.pass_ms(0)
    assert at.core.next_wake_ms() == 60_000
    at.logon(heartbeat_s=10)
    assert at.core.next_wake_ms() == 5_000
    at.consume()
    positions = at.many(1)
    at.extend(*positions, lease_ms=3_000)
    wake_ms = at.core.next_wake_ms()
    assert wake_ms is not None
    assert 3_000 <= wake_ms <= 3_100
    at.silent = True
    at.ack(ends=[], bookmarks=[at.bookmark(positions[0])])
    assert at.core.next_wake_ms() == TICK_MS
    at.holding = True
    at.ack(*positions)
    at.refuse("not_ready")
    at.pass_ms(TICK_MS - RETRY_MS + 10)
    assert at.core.next_wake_ms() == RETRY_MS


def test_a_queue_that_is_being_read_is_not_woken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_client, "HOLDS_MS", 60_000)
    monkeypatch.setattr(full_queue_tracker, "BEAT_MS", 60_000)
    at = bench(work(expiration=1_000))
    at.many(1)
    at.reading = False
    at.restart()
    at.pass_ms(5_000)
    assert at.core.next_wake_ms() == 60_000
    at.reading = True
    at.run()
    at.pass_ms(0)
    assert at.here() == []


def test_a_fold_that_cannot_be_read_ends_the_process() -> None:
    at = bench()
    at.many(1)
    at.reading = False
    at.many(1)
    error = StorageError("damaged", "the disk fails")
    with pytest.raises(StorageError):
        at.turn.hear(ReadFailed(at.core.next_read(), error))


def test_readings_that_fail_are_tried_again_and_noted_once() -> None:
    at = bench()
    positions = BitMap64(at.many(2))
    error = StorageError("damaged", "the disk fails")
    seen: list[list[InspectedMessage]] = []
    for _ in range(2):
        at.core.shared.read(Inspect, lambda done: seen.append(done.rows), positions)
    at.later = (Inspect,)
    at.run()
    looks, at.waiting, at.later = at.waiting, [], ()
    for look in looks:
        at.turn.hear(ReadFailed(look, error))
    at.run()
    assert [(note.name, note.level) for note in at.notes] == [("queues.read_failed", "error")]
    at.pass_ms(AGAIN_MS - 1)
    assert seen == []
    at.pass_ms(1)
    assert [[row.position for row in rows] for rows in seen] == [list(positions)] * 2


def test_a_connection_without_a_known_key_is_in_the_audit_log() -> None:
    at = bench()
    at.turn.hear(Unauthenticated(KEY_A, "10.0.0.1"))
    [row] = at.ask(AskRefusals(7, 0)).rows
    assert (row.what, row.code) == ("connect", "auth_failed")


def test_the_process_ends_after_one_more_save() -> None:
    at = bench()
    at.later = (SaveTables, Exit)
    at.turn.hear(StopAsked())
    at.run()
    assert [type(effect) for effect in at.waiting] == [SaveTables]
    at.turn.hear(TablesSaved())
    at.turn.run({})
    assert [type(effect) for effect in at.waiting] == [SaveTables, Exit]


def test_a_process_that_knows_no_queues_yet_ends_at_once() -> None:
    at = Bench(work(), welcome=False)
    at.later = (SaveTables, Exit)
    at.turn.hear(StopAsked())
    at.turn.run({})
    assert [type(effect) for effect in at.waiting] == [Exit]


def test_an_extended_lease_of_a_lost_consumer_ends_even_where_leases_have_no_end() -> None:
    """The connection was found to be lost only after the client was back and extended leases."""
    at = bench(work(lease=0))
    positions = at.many(1)
    at.consume()
    at.lose()
    at.logon(BOB, "ann")
    at.send(q.Extend("c", queue="q", ends=ends_of(BitMap64(positions))), rid=BOB)
    assert at.settled() == [(1, 0)]
    assert at.state(positions[0]) == "leased"
    at.pass_ms(AFTER_LEASE_MS)
    assert at.state(positions[0]) == "ready"


def test_what_is_to_be_done_is_done_before_sleeping() -> None:
    at = bench()
    assert at.core.next_wake_ms() != 0
    at.core.shared.out.append(Note("a", "b"))
    assert at.core.next_wake_ms() == 0
    at.run()
    assert at.notes == [Note("a", "b")]


def test_what_waits_for_a_queue_that_is_deleted_is_reported() -> None:
    at = Bench()
    at.logon()
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    positions = at.many(2)
    at.consume()
    at.holding = True
    at.ask(s.Define(1, "delete", "q"))
    at.reading = False
    at.ack(*positions, sid=None, queue="q", cid="1")
    at.ack(*positions, sid=None, queue="q", cid="2")
    at.land()
    assert ("unknown_queue", None, "s") in at.errors()
    assert [one.cid for one in at.of(q.Settled)] == ["1"]
    assert ("unknown_queue", "2", None) in at.errors()


def test_check_finds_a_consumer_that_is_known_to_one_side_only() -> None:
    at = bench()
    at.consume()
    at.core.shared.consumers.clear()
    with pytest.raises(AssertionError):
        at.core.check()


def test_origins_are_compared_whole() -> None:
    at = bench()
    at.manager.here = Origin(1, 1)
    with pytest.raises(StorageError):
        at.watermarks()


def test_readings_are_answered_to_who_asked() -> None:
    at = bench()
    positions = at.publish(b'{"n": 1}', b'{"n": 2}')
    at.consume(filter="/n = 2")
    assert at.got() == positions[1:]
    at.reject(*positions[1:])
    at.send(q.Browse("q"))
    assert [row.position for row in at.last().rows] == positions[:1]
    at.ask(s.Requeue(7, "q"))
    assert at.here() == positions


def test_dead_letters_are_made_at_the_end_of_a_turn() -> None:
    at = bench(work(dead_letter="dead"))
    positions = at.many(1)
    at.reject(*positions, sid=None, queue="q")
    assert len(at.letters()) == 1


def test_a_consumer_that_may_go_on_has_no_sid_in_its_errors() -> None:
    at = bench()
    at.consume()
    at.consume()
    at.ack(1, sid="nope")
    assert at.errors() == [("sid_in_use", "c-s", None), ("unknown_sid", "c", None)]


def test_what_has_ended_by_itself_is_committed() -> None:
    at = bench(work(max_deliveries=1))
    at.many(1)
    at.consume()
    at.pass_ms(AFTER_LEASE_MS)
    assert at.here() == []


# -- units in doubt -------------------------------------------------------------------------------


def _landed_unseen(at: Bench, question: Any) -> None:
    """What the admin asked for is in the log, and the journal died before it said so."""
    at.holding, at.receipts = True, False
    assert at.ask(question) is None
    at.reading = False
    at.land()
    at.many(2)  # after it
    at.die()
    at.holding, at.receipts, at.reading = False, True, True
    at.come_back()


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        (s.Define(1, "create", "new", {"topic": "t", "recovery_point": "now"}), KIND_WIRING),
        (s.SetPoint(1, "noon"), KIND_POINT),
    ],
)
def test_a_name_that_landed_before_the_journal_died_is_written_once(
    question: Any, kind: int
) -> None:
    at = Bench()  # no queue reads the log
    at.many(3)
    _landed_unseen(at, question)
    [record] = [one for one in at.log if one.kind == kind]
    assert at.reported[-1][1].code == ""
    assert [one.definition.created for one in at.manager.running.values()] in (
        [], [record.position],
    )  # fmt: skip
    assert at.manager.commits.doubtful_from is None


def test_a_purge_that_landed_before_the_journal_died_is_written_once() -> None:
    at = bench(replayable())
    at.many(3)
    _landed_unseen(at, s.Purge(1, "q"))
    assert at.reported[-1][1] == s.Changed(
        1, 3, at.reported[-1][1].position, at.reported[-1][1].vector
    )
    assert [one.kind for one in at.log].count(KIND_PURGE) == 1


def test_what_did_not_land_before_the_journal_died_is_sent_again() -> None:
    at = Bench()
    at.holding = True
    assert at.ask(s.SetPoint(1, "noon")) is None
    at.die()
    at.come_back()
    at.land()
    assert at.reported[-1][1].code == ""
    assert [one.kind for one in at.log] == [KIND_POINT]


def test_the_log_is_held_where_a_unit_in_doubt_may_be() -> None:
    at = Bench()
    at.many(3)
    at.holding = True
    at.ask(s.SetPoint(1, "noon"))
    at.die()
    at.reading = False
    at.persisted = at.position = at.position + 5
    at.come_back()
    assert at.holds(0).lowest == 4
    assert at.core.next_read() is not None
