"""Records of other instances: first arrival wins, what is late is flagged, what is here is tied."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import msgspec
import pytest

from tests.journal import build
from tests.journal.linked import (
    HERE,
    LINK,
    LINK_NUMBER,
    LISTENER,
    MINE,
    THERE,
    WALL,
    P,
    commit,
    give,
    make,
    record,
    shape,
)
from tests.journal.whole import table
from zbroker.checksums import crc32c
from zbroker.errors import Bug
from zbroker.exchanges import BoundQueue, Routes, route_column
from zbroker.ids import Origin, publisher_id
from zbroker.journal.effects import PublishWatermarks
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.holes import Hole
from zbroker.journal.record_bounds import BOUNDS, EXTRA_COLUMNS_MAX, outside
from zbroker.journal.sessions import SESSION_MAX, PublisherRow, Sessions
from zbroker.log import records
from zbroker.log.format import (
    COLUMN_ORIGIN_TIME,
    COLUMN_ROUTES,
    FLAG_ZSTD,
    KIND_NOOP,
    KIND_ORIGIN,
    KIND_OUTCOMES,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_STATE,
    KIND_TIE,
    KIND_WIRING,
    STEP_OVER,
    Batch,
)
from zbroker.log.queue_records import QueueDeclaration
from zbroker.wire import internal as m
from zbroker.wire.internal import Record
from zbroker.wire.messages import Columns

OWNED = publisher_id(f"$broker.{THERE:016x}.1")


@pytest.fixture
def core() -> GroupCommit:
    return make()


def publish(core: GroupCommit, seq: int, count: int, prev: int | None = None) -> m.ReceiptItem:
    """From a publisher of this instance."""
    core.receive(LISTENER, m.Open(1, MINE, "p", ""), [])
    commit(core)
    known = core.sessions.get(P)
    assert known is not None
    entry = m.Entry(P, known.session, seq, count, prev, seq, None, ["t"])
    core.receive(LISTENER, m.Append(MINE, 1, 0, [entry]), [b"body"])
    return commit(core)[1][0]


def test_a_record_keeps_its_origin_and_is_acknowledged_after_the_sync(core: GroupCommit) -> None:
    [batch], [item] = give(core, record(1, 3, at=40))
    assert (batch.position, batch.origin_instance, batch.origin_position) == (1, THERE, 40)
    assert (batch.session, batch.prev, batch.body_crc) == (5, 0, 1)
    assert item == m.ReceiptItem(1, 3, 3, 0)
    assert core.sessions.origins.vector == {Origin(THERE, 1): 42}


def test_readers_hear_of_a_record_without_messages_at_its_commit(core: GroupCommit) -> None:
    """What a consumer elsewhere acknowledged, not with the next beat."""
    give(core, record(1, 1, at=40))
    outcome = Record(KIND_OUTCOMES, THERE, 1, 41, 40, WALL, crc=crc32c(b"body"))
    core.receive(LINK, m.Replicate(MINE, 2, 1, [outcome], LINK_NUMBER), [b"body"])
    group = core.group(WALL)
    assert group is not None
    core.written_to(core.next_position, core.serial)
    said = [one for one in core.synced(core.next_position) if isinstance(one, PublishWatermarks)]
    assert [(one.of_commit, one.message.persisted) for one in said] == [(True, core.persisted)]


def test_only_the_replication_process_may_send_records(core: GroupCommit) -> None:
    with pytest.raises(Bug, match="ingest"):
        core.receive(LISTENER, m.Replicate(MINE, 1, 0, [record(1, 1, at=1)], 1), [b""])


def test_a_missing_sequence_leaves_a_hole_that_is_filled_late(core: GroupCommit) -> None:
    give(core, record(1, 3, at=40), record(7, 2, at=50, after=42))
    known = core.sessions.get(P)
    assert known is not None
    assert known.holes == [Hole(4, 6, 6)]
    batches, [item] = give(core, record(4, 3, at=60, after=51))
    assert shape(batches) == [(KIND_PUBLISH, 4, 0, 0, 60, True)]
    assert (item.position, item.high, known.holes, core.late) == (8, 8, [], 3)


def test_what_is_here_with_another_origin_is_tied_and_the_rest_stored(core: GroupCommit) -> None:
    give(core, record(3, 2, at=40, prev=2, session=4))
    publish(core, 8, 2)
    batches, [item] = give(core, record(1, 12, at=50, after=41, session=6))
    assert shape(batches) == [
        (KIND_PUBLISH, 1, 0, 10, 50, True),
        (KIND_TIE, 4, 1, 0, 53, False),
        (KIND_PUBLISH, 5, 4, 5, 54, True),
        (KIND_TIE, 9, 1, 0, 58, False),
        (KIND_PUBLISH, 10, 9, 0, 59, False),
    ]
    assert (item.duplicate, item.high) == (4, 12)
    assert [b.taken for b in batches] == [2, 1, 3, 1, 3]


def test_a_tie_has_the_topic_of_its_messages(core: GroupCommit) -> None:
    """A link with topics sends those of messages that it carries."""
    publish(core, 1, 3)
    index = Columns(index=array("H", [0, 0, 1]).tobytes())
    batches, _ = give(core, record(1, 3, at=50, topics=["orders", "trades"], columns=index))
    assert shape(batches) == [(KIND_TIE, 2, 1, 0, 51, False), (KIND_TIE, 3, 0, 0, 52, False)]
    assert [batch.topics for batch in batches] == [["orders"], ["trades"]]


def test_a_tie_has_the_routes_of_the_copy_that_it_stands_for(core: GroupCommit) -> None:
    """It may name queues that the copy here does not go to."""
    publish(core, 2, 2)
    queues = tuple(BoundQueue(name, QueueDeclaration(7, THERE, 1)) for name in "ab")
    routes = Routes(queues, ((), (0,), (1,)), array("H", [0, 1, 2, 0]))
    one = record(1, 4, at=50, extra=[(COLUMN_ROUTES, route_column.encode(routes))])
    batches, _ = give(core, one)
    kinds = [batch.kind for batch in batches]
    assert kinds == [KIND_PUBLISH, KIND_TIE, KIND_PUBLISH]
    [first, tie, last] = [route_column.routed(batch) for batch in batches]
    assert tie is not None
    assert (tie.of(queues[:1]), tie.of(queues[1:])) == ([0], [1])
    assert first is last is not None  # of the whole body: a batch says which part of it counts
    assert route_column.wrong(batches[1].extra, batches[1].count, 0) == ""


def test_a_record_that_comes_again_is_a_duplicate_and_writes_nothing(core: GroupCommit) -> None:
    give(core, record(1, 3, at=40))
    batches, [item] = give(core, record(1, 3, at=40))
    assert (batches, item) == ([], m.ReceiptItem(1, 3, 3, 3))


def test_of_a_record_whose_beginning_is_here_only_the_rest_is_stored(core: GroupCommit) -> None:
    give(core, record(1, 3, at=40))
    batches, _ = give(core, record(1, 5, at=40))
    assert shape(batches) == [(KIND_PUBLISH, 4, 3, 0, 43, False)]


def test_after_a_refusal_the_rest_of_the_origin_is_refused(core: GroupCommit) -> None:
    core.accepting = False
    give(core, record(1, 3, at=40))
    core.accepting = True
    batches, [item] = give(core, record(4, 1, at=43, after=42))
    assert (batches, item.code, item.high) == ([], "origin_gap", 0)
    assert give(core, record(1, 3, at=40), record(4, 1, at=43, after=42))[1][1].code == ""


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kind": KIND_STATE}, "bad_field"),
        ({"kind": 99}, "unknown_version"),
        ({"skip": 3}, "bad_field"),
        ({"position": 1 << 63}, "bad_field"),
        ({"prev": 1}, "bad_field"),
        ({"instance": HERE, "position": 40, "after": 0}, "origin_ahead"),
        ({"instance": HERE, "generation": 2}, "origin_ahead"),
    ],
)
def test_what_is_no_record_for_this_log_is_refused(
    core: GroupCommit, change: dict[str, int], code: str
) -> None:
    one = record(1, 3, at=40)
    for name, value in change.items():
        setattr(one, name, value)
    batches, [item] = give(core, one)
    assert (batches, item.code, item.position) == ([], code, 0)


def test_own_records_of_an_older_generation_come_back(core: GroupCommit) -> None:
    core.generation = 2
    one = record(1, 3, at=40, after=0)
    one.instance = HERE
    [batch], [item] = give(core, one)
    assert (batch.position, batch.origin_generation, batch.origin_position) == (1, 1, 40)
    assert item.code == ""


def test_what_may_be_in_a_hole_that_was_given_up_is_refused_and_its_row_says_so(
    core: GroupCommit,
) -> None:
    publish(core, 50, 1)
    known = core.sessions.get(P)
    assert known is not None
    known.holes.clear()
    known.given_up = 49
    known.named = True
    [gap], [item] = give(core, record(4, 2, at=40, after=0))
    assert (item.code, item.high) == ("hole_given_up", 41)
    declared = records.ORIGIN.decode(gap.body)
    assert declared == records.OriginRecord(THERE, 1, 0, since=42, position=41, crc=4)


def test_a_name_is_learnt_and_written_once_before_its_first_batch(core: GroupCommit) -> None:
    body = records.encode(records.PublisherRecord("other", "alice"))
    other = publisher_id("other")
    named = Record(KIND_PUBLISHER, THERE, 1, 7, 0, 0, publisher=other)
    batches, [item] = give(core, named, body=body)
    assert (batches, item.code) == ([], "")
    batches, _ = give(core, record(1, 1, at=40, publisher=other))
    assert [(b.kind, b.origin_instance) for b in batches] == [
        (KIND_PUBLISHER, HERE),
        (KIND_PUBLISH, THERE),
    ]
    assert batches[0].body == body


@pytest.mark.parametrize(
    ("name", "publisher", "code"),
    [("other", P, "publisher_collision"), ("p", P, "")],
)
def test_a_name_that_does_not_fit_its_id_is_refused(
    core: GroupCommit, name: str, publisher: int, code: str
) -> None:
    body = records.encode(records.PublisherRecord(name))
    named = Record(KIND_PUBLISHER, THERE, 1, 7, 0, 0, publisher=publisher)
    assert give(core, named, body=body)[1][0].code == code
    assert give(core, named, body=b"junk")[1][0].code == "bad_field"


@pytest.mark.parametrize("kind", [KIND_NOOP, STEP_OVER | 99])
def test_a_control_record_is_stored_as_it_is(core: GroupCommit, kind: int) -> None:
    [batch], _ = give(core, Record(kind, THERE, 1, 40, 0, 0, crc=3), body=b"map")
    assert (batch.kind, bytes(batch.body), batch.origin_position) == (kind, b"map", 40)
    assert core.sessions.origins.vector == {Origin(THERE, 1): 40}


@pytest.mark.parametrize("kind", [KIND_PURGE, KIND_POINT, KIND_QUEUE, KIND_WIRING, KIND_ORIGIN])
def test_a_record_that_stays_on_its_instance_is_refused(core: GroupCommit, kind: int) -> None:
    """Queues belong to one instance each: a peer defines, purges and settles none here."""
    _, [receipt] = give(core, Record(kind, THERE, 1, 40, 0, 0, crc=3), body=b"map")
    assert (receipt.code, "stay" in receipt.reason) == ("bad_field", True)
    assert core.sessions.origins.vector == {}


def test_a_session_of_another_instance_ends_none_of_this_one(core: GroupCommit) -> None:
    publish(core, 1, 1)
    known = core.sessions.get(P)
    assert known is not None
    mine = known.session
    give(core, record(2, 1, at=40, session=mine + 1_000_000))
    assert known.session == mine
    core.receive(LISTENER, m.Open(2, MINE, "p", ""), [])
    commit(core)
    assert known.session > mine + 1_000_000, "a number is never given twice, wherever"


def test_a_session_number_that_a_generation_gives_again_is_another_session(
    core: GroupCommit,
) -> None:
    """An older disk with a slow clock forgot that it had given it; between the two its publisher
    may have been at a third instance, whose messages come later."""
    give(core, record(1, 10, at=1))
    later = record(14, 1, at=1, prev=5)
    later.generation = 2
    give(core, later)
    elsewhere = record(11, 3, at=1)
    elsewhere.instance = 7
    batches, [item] = give(core, elsewhere)
    assert shape(batches) == [(KIND_PUBLISH, 11, 0, 0, 1, True)]
    assert (item.code, item.duplicate) == ("", 0)


def test_a_hole_that_is_known_to_be_one_keeps_its_messages_with_their_publisher(
    core: GroupCommit,
) -> None:
    give(core, record(1, 3, at=40), record(7, 2, at=50, after=42))
    core.receive(LISTENER, m.Open(3, MINE, "p", ""), [])
    group = core.group(WALL)
    sends = core.synced(core.next_position)
    [opened] = [send.message for send in sends if isinstance(send.message, m.Opened)]
    assert (group, opened.seq, opened.acked) == (None, 8, 3)


def test_a_publisher_of_this_instance_fills_a_hole_late(core: GroupCommit) -> None:
    give(core, record(1, 3, at=40), record(7, 2, at=50, after=42))
    item = publish(core, 4, 7, prev=3)
    assert (item.code, item.high, item.duplicate) == ("", 10, 2)
    known = core.sessions.get(P)
    assert known is not None
    assert (known.high, known.holes, core.late) == (10, [], 3)


def test_the_same_sequences_with_another_content_are_kept_aside(core: GroupCommit) -> None:
    publish(core, 1, 2)
    give(core, record(1, 2, at=40, crc=99, flags=FLAG_ZSTD), body=b"other")
    [kept] = core.take_conflicts()
    assert (kept.seq, kept.crc, kept.codec) == (1, 99, "zstd")
    assert (kept.body, kept.original_position, kept.name) == (b"other", 2, "p")
    assert core.conflicts == 1


# -- times ------------------------------------------------------------------------------------

Check = Callable[[Batch], None]


def original(batch: Batch) -> list[int]:
    """The times that it got at its origin, if they are kept."""
    return [t for tag, data in batch.extra if tag == COLUMN_ORIGIN_TIME for t in array("q", data)]


@pytest.mark.parametrize(
    ("theirs", "log_time", "kept"),
    [(900, 900, []), (400, 500, [400]), (5_000, 1_000, [5_000])],
    ids=["theirs", "never back", "not ahead of this clock"],
)
def test_a_message_keeps_its_time_as_far_as_the_log_allows(
    core: GroupCommit, theirs: int, log_time: int, kept: list[int]
) -> None:
    core.log_time = 500
    [batch], _ = give(core, record(1, 1, at=40, log_time=theirs))
    assert (batch.log_time, original(batch), core.log_time) == (log_time, kept, log_time)
    assert build.sent(batch, 0)[0].log_time == theirs, "it goes on to the next one as it was"


def test_where_publishers_give_the_times_they_may_lie_ahead() -> None:
    core = make(publisher_time=True)
    column = Columns(time=array("q", [7_000, 6_000, 9_000]).tobytes())
    [batch], _ = give(core, record(1, 3, at=40, log_time=9_000, columns=column, extra=[(99, b"x")]))
    assert batch.columns is not None
    assert batch.columns.time == array("q", [7_000, 7_000, 9_000]).tobytes()
    assert original(batch) == [7_000, 6_000, 9_000]
    again = build.sent(batch, 0)[0]
    assert (again.columns, again.extra) == (column, [(99, b"x")])


def test_keys_headers_and_expiry_are_kept_with_other_times() -> None:
    core = make(publisher_time=True)
    times = array("q", [7_000, 6_000]).tobytes()
    more = b"\x92\xc4\x01k\xc0", b"\x92\xc0\xc0", array("q", [0, 9_000]).tobytes()
    column = Columns(None, times, None, *more)
    [batch], _ = give(core, record(1, 2, at=40, log_time=6_000, columns=column))
    rising = array("q", [7_000, 7_000]).tobytes()
    assert batch.columns == Columns(None, rising, None, *more)
    assert build.sent(batch, 0)[0].columns == column


def test_a_part_of_a_record_has_the_log_time_of_its_last_message() -> None:
    core = make(publisher_time=True)
    give(core, record(3, 1, at=30, prev=2))
    column = Columns(time=array("q", [2_000, 3_000, 4_000, 5_000]).tobytes())
    batches, _ = give(core, record(1, 4, at=40, after=30, session=6, columns=column))
    assert [(b.kind, b.sequence, b.log_time) for b in batches] == [
        (KIND_PUBLISH, 1, 3_000),
        (KIND_TIE, 3, 5_000),
        (KIND_PUBLISH, 4, 5_000),
    ]


def test_a_batch_of_the_log_becomes_the_record_it_came_from(core: GroupCommit) -> None:
    one = record(5, 4, at=40, prev=3, skip=1, cut=1, flags=FLAG_ZSTD, extra=[(99, b"x")], after=0)
    [batch], _ = give(core, one)
    assert build.sent(batch, 0)[0] == one
    assert batch.end_position == 3


def test_every_number_of_a_record_has_bounds() -> None:
    fields = msgspec.structs.fields(Record)
    assert set(BOUNDS) == {field.name for field in fields if field.type in (int, int | None)}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_outside_its_bounds_is_refused(name: str) -> None:
    core = make()
    for wrong in (BOUNDS[name][0] - 1, BOUNDS[name][1] + 1):
        one = record(1, 1, at=40)
        setattr(one, name, wrong)
        assert outside(one)
        if -(1 << 63) <= wrong < 1 << 64:  # else no message could carry it
            batches, [item] = give(core, one)
            assert (batches, item.code) == ([], "bad_field")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topics", ["x" * 256]),
        ("topics", ["a\nb"]),
        ("extra", [(1 << 16, b"")]),
        ("extra", [(7, b"")] * (EXTRA_COLUMNS_MAX + 1)),
        ("columns", Columns(time=b"1234567")),
        ("columns", Columns(index=b"\0")),
        ("columns", Columns(index=b"\1\0")),
    ],
)
def test_what_does_not_fit_together_is_refused(name: str, value: object) -> None:
    one = record(1, 1, at=40)
    setattr(one, name, value)
    [item] = give(make(), one)[1]
    assert item.code == "bad_field"


def test_a_session_beyond_all_clocks_in_the_log_does_not_stop_logons() -> None:
    """A release before this one stored what a peer said."""
    table = Sessions()
    table.fold_row(PublisherRow(P, "p", "", 5, 1, 7, (1 << 64) - 1, (1 << 64) - 1, 3))
    known = table.open("p", "", wall_ns=100)
    assert known is not None
    assert known.session == 100
    known = table.open("p", "", wall_ns=100)
    assert known is not None
    assert 100 < known.session < SESSION_MAX


def test_a_foreign_session_beyond_all_clocks_is_not_counted_from() -> None:
    core = make()
    core.sessions.fold(_stored((1 << 64) - 1))
    known = core.sessions.open("p", "", wall_ns=100)
    assert known is not None
    assert known.session == 100


def _stored(session: int) -> Batch:
    core = make()
    [batch], _ = give(core, record(1, 1, at=40))
    batch.session = session
    return batch


def test_what_comes_back_of_an_older_own_generation_ends_no_session() -> None:
    """The clock was set back: the session that was lost has a higher number than the open one, and
    the publisher gave up with `session_ended`."""
    core = make()
    core.generation = 2
    core.sessions.origins.meet([(1, 1), (2, 1)])
    own = core.sessions.open("p", "", WALL)
    session = own.session
    back = record(1, 2, 101, session=session + 5)
    back.instance = HERE
    _, [item] = give(core, back)
    assert item.code == ""
    assert own.session == session
    assert core.sessions.open("p", "", WALL).session > session + 5


@pytest.mark.parametrize("seed", range(60))
def test_the_short_way_of_the_next_record_leads_where_the_long_one_leads(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = make(), make()
    monkeypatch.setattr(long._replicas, "_next", lambda *_: None)
    for core in (short, long):
        core.sessions.fold_name(OWNED, f"$broker.{THERE:016x}.1", "")
    rng, at, after, seqs = random.Random(seed), 1, 0, {P: 1, OWNED: 1}
    for _ in range(60):
        publisher, count = rng.choice((P, P, P, OWNED)), rng.randint(1, 3)
        seq = max(1, seqs[publisher] + rng.choice((0, 0, 0, 0, 2, -1)))
        one = record(
            seq, count, at=at, after=after, publisher=publisher, session=rng.choice((5, 5, 5, 6)),
            after_crc=rng.choice((None, None, None, 1)), flags=rng.choice((0, 0, 0, 1, 2, 4, 8)),
            skip=rng.choice((0, 0, 0, 0, 1)), log_time=rng.choice((WALL, WALL + 5, WALL - 5)),
        )  # fmt: skip
        one.instance = rng.choice((THERE, THERE, THERE, THERE, HERE, 7))
        one.position += rng.choice((0, 0, 0, 0, 4, -2))
        answers = [give(core, msgspec.structs.replace(one)) for core in (short, long)]
        assert answers[0] == answers[1], one
        here = short.sessions.origins.high(Origin(THERE, 1))
        if not answers[0][1][0].code and one.instance == THERE:
            at, after, seqs[publisher] = here + 1, here, short.sessions.meet(publisher).high + 1
    assert table(short.sessions) == table(long.sessions)
    assert short.messages == long.messages > 0
