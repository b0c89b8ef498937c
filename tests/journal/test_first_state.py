"""The state of another instance: what of it is taken, and what refuses it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec import Raw, msgpack
from msgspec.structs import replace

from tests.journal import build
from tests.sim.disk import SimDisk
from tests.sim.journal_process import JournalProcess, Start
from zbroker.exchanges import DeclaredQueue, Exchange, ExchangeRow
from zbroker.ids import Origin, publisher_id
from zbroker.journal import snapshot
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.first_state import FirstState, StateReceiver
from zbroker.journal.group_builder import JournalSettings
from zbroker.journal.holes import Hole
from zbroker.journal.link_sessions import LinkSession
from zbroker.journal.origins import OriginRow
from zbroker.journal.sessions import PublisherRow, Sessions
from zbroker.journal.stages import AppRow
from zbroker.log.point_records import SharedPointRow
from zbroker.log.queue_records import QueueDeclaration, ReplicatedDefinition, Version
from zbroker.wire.internal import OpenLink
from zbroker.wire.units import NamedRow

SOURCE = 0xB
P = PublisherRow(publisher_id("p"), "p", "", 40, 99, 5, 6, 5, 0, 0, 0, [Hole(3, 4, 4)])
ORIGIN = OriginRow(SOURCE, 7, 120, 100, 0, 0, 0, 55, 100, 100, 0)
APP = AppRow("app", 3, 50, 2)
LIFE = QueueDeclaration(5, SOURCE, 7)
EVENTS = ExchangeRow("events", LIFE, Version(1, SOURCE, 7), Exchange("events", "topic"))
COVERS = f"{SOURCE:016x}.7.80"
CLOSED = ClosedRow(SOURCE, 6, 70, 7, 80, 75, 70, 12, 70, 12)


def process() -> JournalProcess:
    start = Start(build.Clock(), build.SEGMENT_BYTES, lambda: 5)
    settings = JournalSettings(build.INSTANCE, 1, peers=("b",))
    return JournalProcess(SimDisk(random.Random(1)), settings, start)


def link(topics: list[str] | None = None) -> LinkSession:
    return LinkSession(OpenLink(1, 1, SOURCE, 1, topics or [".*"], [".*"]))


def part(number: int = 0, *, last: bool = True, **folds: list[Any]) -> bytes:
    packed = {name: Raw(msgpack.encode(rows)) for name, rows in folds.items()}
    return msgpack.encode(snapshot.Body(snapshot.VERSION, 9, number, packed, last))


def whole() -> bytes:
    return part(origins=[ORIGIN], publishers=[P], apps=[APP], closed=[CLOSED])


def taken(at: JournalProcess) -> FirstState:
    """What is judged of it."""
    state = at.core.commit.states.take(link(), 0, whole(), last=True)
    assert isinstance(state, FirstState)
    return state


def test_what_travels_is_taken_without_positions_of_the_other_log() -> None:
    state = taken(process())
    [row], [closed], [publisher] = state.origins, state.closed, state.publishers
    assert (closed.end, closed.by, closed.by_position) == (70, Origin(SOURCE, 7), 80)
    assert (closed.position, closed.messages, closed.begun) == (70, 70, -1)
    assert (row.position, row.messages, row.since) == (100, 100, 101)
    assert (publisher.high, publisher.high_position, publisher.session) == (40, 0, 0)


def test_what_all_instances_have_in_common_is_taken() -> None:
    """Definitions of replicated queues, points, exchanges: later records say only what changes."""
    at = process()
    definition = ReplicatedDefinition("q", LIFE, Version(1, SOURCE, 7), definition={"name": "q"})
    row = NamedRow("q", 77, msgpack.encode(definition))
    wrong = ExchangeRow("$no", LIFE, Version(1, SOURCE, 7), Exchange("$no", "topic"))
    rows = [DeclaredQueue("q", LIFE), EVENTS, wrong]
    points = [SharedPointRow(SOURCE, 7, 90, "eod", 3, COVERS, 77), SharedPointRow(9, 1, 8, "eod")]
    body = part(origins=[ORIGIN], definitions=[row], exchanges=rows, shared_points=points)
    state = at.core.commit.states.take(link(), 0, body, last=True)
    assert isinstance(state, FirstState)
    at.core.commit.begin(1)
    assert at.core.commit.states.place(state) is None
    sessions, again = at.core.commit.sessions, Sessions(build.INSTANCE)
    said = snapshot.decode(at.core.commit.batches[0].body)
    assert said is not None
    del said.folds[snapshot.TAKEN]
    snapshot.learn(said, snapshot.folds(again))
    for one in (sessions, again):
        assert one.exchanges.rows() == rows[:2]
        assert list(one.named.shared.lasting()) == [replace(points[0], position=1), points[1]]
        [found] = one.named.definitions.rows()
        assert (found.position, found.body) == (1, row.body)


def test_it_is_in_the_log_as_one_unit_and_comes_back_from_there() -> None:
    at = process()
    state, commit = taken(at), at.core.commit
    commit.begin(1)
    assert commit.states.place(state) is None
    sessions = commit.sessions
    assert sessions.origins.high(Origin(SOURCE, 7)) == 100
    assert sessions.missing.below() == {Origin(SOURCE, 7): 100, Origin(SOURCE, 6): 70}
    assert Origin(SOURCE, 6) in sessions.origins.closed
    known = sessions.get(P.id)
    assert known is not None
    assert (known.high, known.holes) == (40, [Hole(3, 4, 4)])
    body = snapshot.decode(commit.batches[0].body)
    assert body is not None
    assert snapshot.TAKEN in body.folds
    assert snapshot.TAKEN in body.optional


def test_a_log_with_records_takes_none() -> None:
    at = process()
    state, commit = taken(at), at.core.commit
    commit.begin(1)
    assert commit.states.place(state) is None
    refusal = commit.states.place(state)
    assert refusal is not None
    assert refusal[0] == "not_empty"


def test_parts_come_in_order_over_one_link() -> None:
    states = StateReceiver(process().core.commit)
    one = link()
    assert states.take(one, 0, part(last=False), last=False) is None
    refusal = states.take(link(), 1, part(1), last=True)
    assert refusal is not None
    assert refusal[0] == "dropped"
    assert states.parts == 0, "it begins again"


def test_a_source_with_a_right_for_some_topics_gives_no_state() -> None:
    refusal = StateReceiver(process().core.commit).take(link(["a"]), 0, whole(), last=True)
    assert refusal is not None
    assert refusal[0] == "not_entitled"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        part(1),
        part(last=False),
        part(points=[]),
        part(origins=[[1]]),
        part(origins=[OriginRow(0, 7, 1)]),
        part(origins=[OriginRow(SOURCE, 7, -1)]),
        part(origins=[OriginRow(SOURCE, 7, 1 << 63)]),
        part(origins=[OriginRow(SOURCE, 7, 1, digest=9)]),
        part(origins=[OriginRow(SOURCE, 1 << 32, 1)]),
        part(origins=[ORIGIN, ORIGIN]),
        part(origins=[OriginRow(build.INSTANCE, 1 << 30, 9)]),
        part(closed=[ClosedRow(SOURCE, 7, 1, 7, 9, 0, 0, 0, 0, 0)]),
        part(closed=[ClosedRow(SOURCE, 6, 1 << 63, 7, 9, 0, 0, 0, 0, 0)]),
        part(closed=[ClosedRow(build.INSTANCE, 6, 1, 1 << 31, 9, 0, 0, 0, 0, 0)]),
        part(closed=[CLOSED, CLOSED]),
        part(closed=[CLOSED], origins=[OriginRow(SOURCE, 6, 1)]),
        part(publishers=[P, P]),
        part(publishers=[PublisherRow(1, "p", "", 4, 0, 0, 0, 0)]),
        part(publishers=[PublisherRow(P.id, "p", "", 1 << 63, 0, 0, 0, 0)]),
        part(publishers=[PublisherRow(P.id, "p", "", 4, 0, 1 << 63, 0, 0)]),
        part(publishers=[PublisherRow(P.id, "p", "", 4, 0, 0, 0, 0, wrote_in=1 << 33)]),
        part(publishers=[PublisherRow(P.id, "p", "x" * 300, 4, 0, 0, 0, 0)]),
        part(publishers=[PublisherRow(P.id, "p", "", 4, 0, 0, 0, 0, 0, 0, 0, [Hole(3, 9, 0)])]),
        part(apps=[AppRow("x" * 300, 1, 1, 1)]),
        part(apps=[AppRow("a", -1, 1, 1)]),
        part(shared_points=[SharedPointRow(SOURCE, 7, 9, "x" * 256, 1, COVERS)]),
        part(shared_points=[SharedPointRow(SOURCE, 7, 9, "eod", 1, "no vector")]),
        part(shared_points=[SharedPointRow(SOURCE, 7, 9, "eod", -1, COVERS)]),
        part(shared_points=[SharedPointRow(SOURCE, 1 << 32, 9, "eod", 1, COVERS)]),
        part(shared_points=[SharedPointRow(0, 7, 9, "eod", 1, COVERS)]),
    ],
)  # fmt: skip
def test_a_wrong_state_is_refused_as_a_whole(body: bytes) -> None:
    refusal = StateReceiver(process().core.commit).take(link(), 0, body, last=True)
    assert isinstance(refusal, tuple)
    assert refusal[0] == "bad_field"
