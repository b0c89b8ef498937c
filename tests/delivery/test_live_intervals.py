"""Conflation of messages that are not recorded."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.delivery.test_live import RECORDING
from tests.delivery.test_rights import MIXED, READS, A, grant, rules
from tests.delivery.world import World, ready
from zbroker.delivery import conflation
from zbroker.engine.events import RulesChanged
from zbroker.ids import EPOCH
from zbroker.log.format import crc32c
from zbroker.wire import bodies
from zbroker.wire import internal as i
from zbroker.wire import messages as m

RELAXED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
PLENTY = 1 << 40
KEYED = m.Options(conflation_s=1.0, conflation_key=["/id"])


@pytest.fixture
def world() -> World:
    return ready(recording=RECORDING)


def live(world: World, *ids: str, topic: str = "u") -> None:
    """ingest passes on one batch, each message numbered in `n`."""
    first = world.sequences.get(7, 0) + 1
    world.sequences[7] = first + len(ids) - 1
    data = [json.dumps({"id": one, "n": first + at}).encode() for at, one in enumerate(ids)]
    body = bodies.pack(data)
    entry = i.Entry(7, 1, first, len(ids), None, crc32c(body), None, [topic])
    world.pass_on([entry], [body])
    world.core.check()


def got(world: World, sid: str = "s") -> list[tuple[int, str, int]]:
    """The identity, the key and the number of what came."""
    rows = [(seen.seq, json.loads(seen.data)) for seen in world.got(sid)]
    return [(seq, row["id"], row["n"]) for seq, row in rows]


@pytest.mark.seed("004-77")
def test_within_an_interval_the_newest_of_each_key_is_sent_at_its_end(world: World) -> None:
    world.subscribe("u", bookmark=None, options=KEYED)
    live(world, "a", "b", "a")
    world.wake_until(600)
    live(world, "b", "c")
    world.wake_until(999)
    assert got(world) == []
    world.wake_until(1_000)
    assert got(world) == [(1, "a", 3), (2, "b", 4), (5, "c", 5)]


@pytest.mark.seed("004-77")
def test_a_topic_that_is_recorded_and_one_that_is_not_are_conflated_alike(world: World) -> None:
    options = m.Options(conflation_s=1.0, conflation_clock="replay", conflation_key=["/id"])
    world.subscribe("u|t", bookmark=None, regex=True, options=options)
    live(world, "a", "a")
    world.publish("t", "t", payloads=[b'{"id": "a", "n": 8}', b'{"id": "a", "n": 9}'])
    world.persist()
    world.wake_until(1_000)
    assert sorted(got(world)) == [(1, "a", 2), (1, "a", 9)]


def test_a_topic_that_is_not_recorded_has_no_replay_to_conflate(world: World) -> None:
    world.subscribe("u", bookmark=EPOCH, options=KEYED)
    assert world.errors() == ["topic_not_recorded"]


def test_the_next_interval_begins_with_the_next_message(world: World) -> None:
    world.subscribe("u", bookmark=None, options=KEYED)
    live(world, "a")
    world.wake_until(5_000)
    live(world, "a")
    world.wake_until(5_999)
    assert len(got(world)) == 1
    world.wake_until(6_000)
    assert got(world) == [(1, "a", 1), (2, "a", 2)]


def test_filter_selection_and_limit_hold_for_what_is_conflated(world: World) -> None:
    options = m.Options(conflation_s=1.0, conflation_key=["/id"], select="-/,+/n", limit=1)
    world.subscribe("u", bookmark=None, filter="/id <> 'b'", options=options)
    live(world, "b", "a", "c")
    world.wake_until(1_000)
    assert [seen.data for seen in world.got()] == [b'{"n":2}']
    assert [ack.ended for ack in world.acks("completed")][-1:] == [True]
    assert world.core.subscriptions == {}


def test_without_credit_what_is_due_waits_and_what_comes_is_merged(world: World) -> None:
    world.subscribe("u", bookmark=None, options=KEYED, credit=0)
    live(world, "a")
    world.wake_until(2_000)
    for _ in range(5):
        live(world, "a", "b")
    world.wake_until(8_000)
    assert got(world) == []
    world.send(m.Flow("s", PLENTY))
    world.wake_until(9_000)
    assert got(world) == [(1, "a", 1), (2, "a", 10), (3, "b", 11)]
    assert world.core.counts.dropped == 0


def test_what_is_over_the_limit_of_memory_is_dropped_and_counted(world, monkeypatch) -> None:
    monkeypatch.setattr(conflation, "KEYS_MAX", 2)
    world.subscribe("u", bookmark=None, options=KEYED, credit=0)
    live(world, "a", "b", "c")  # a and b are due early, and wait
    live(world, "d", "e")  # c and d have to go
    assert world.core.counts.dropped == 2
    world.send(m.Flow("s", PLENTY))
    world.wake_until(2_000)
    assert [row[1] for row in got(world)] == ["a", "b", "e"]
    (reported,) = world.acks("dropped")
    assert reported.dropped == 2


def test_another_topic_leaves_what_is_held(world: World) -> None:
    world.subscribe("u", bookmark=None, options=KEYED)
    live(world, "a")
    world.send(m.Replace("s", topic="v"))
    live(world, "b")
    live(world, "c", topic="v")
    world.wake_until(1_000)
    assert [row[1] for row in got(world)] == ["a", "c"]


def test_who_ends_holds_nothing(world: World) -> None:
    world.subscribe("u", bookmark=None, options=KEYED)
    live(world, "a")
    world.send(m.Unsubscribe("s"))
    world.wake_until(5_000)
    assert got(world) == []
    assert world.core.live._held == {}


def test_what_may_not_be_read_any_more_is_not_sent() -> None:
    """The rules change while it is held: the half of a topic that is in it may not be seen."""
    made = World(recording=RECORDING, access=rules(grant("allow", READS, "open half")))
    made.welcome()
    made.logon_as("ann", A)
    made.subscribe("half", bookmark=None, options=KEYED, credit=1 << 20)
    live(made, "a", topic="half")
    made.hear(RulesChanged(rules(MIXED)))
    live(made, "b", topic="half")
    made.wake_until(5_000)
    assert [row[1] for row in got(made)] == ["b"]


STEP = st.one_of(
    st.tuples(st.just("live"), st.lists(st.sampled_from("abc"), min_size=1, max_size=4)),
    st.tuples(st.just("time"), st.integers(1, 2_500)),
    st.tuples(st.just("flow"), st.sampled_from([1, 40, PLENTY])),
)


@RELAXED
@example(  # its second interval is over while what was due after the first one waits
    steps=[
        ("live", ["a"]), ("time", 1000), ("live", ["a"]), ("time", 1000), ("live", ["b"]),
    ],
    credit=0,
)  # fmt: skip
@example(
    steps=[
        ("live", ["a"]), ("time", 1000), ("live", ["a"]), ("time", 1000), ("live", ["a"]),
    ],
    credit=0,
)  # fmt: skip
@given(steps=st.lists(STEP, max_size=25), credit=st.sampled_from([0, 1, 60, PLENTY]))
def test_the_newest_of_each_key_comes_whatever_the_credit(steps, credit) -> None:
    world = ready(recording=RECORDING)
    world.subscribe("u", bookmark=None, options=KEYED, credit=credit)
    newest: dict[str, int] = {}
    for kind, what in steps:
        if kind == "live":
            live(world, *what)
            last = world.sequences[7]
            newest |= {one: last - len(what) + 1 + at for at, one in enumerate(what)}
        elif kind == "time":
            world.wake_until(world.now_ms + what)
        else:
            world.send(m.Flow("s", what))
    for _ in range(4):
        world.send(m.Flow("s", PLENTY))
        world.wake_until(world.now_ms + 1_100)
    assert {name: n for _, name, n in got(world)} == newest
    assert all(seq <= n for seq, _, n in got(world))
    assert world.core.counts.dropped == 0
