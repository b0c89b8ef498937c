"""Conflation by the clock of the replay, and conflation of several that share one replay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.delivery.world import HERE, STEP_NS, Seen, World, ready
from zbroker.delivery import conflation
from zbroker.ids import format_vector, parse_vector
from zbroker.wire import messages as m

RELAXED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
PLENTY = 1 << 40
SECOND_MS = 1_000


def by_replay(seconds: float = 1.0, **more: Any) -> m.Options:
    return m.Options(conflation_s=seconds, conflation_clock="replay", **more)


def filled(count: int, topic: str = "t") -> World:
    """A log of messages that are a second of log time apart."""
    world = ready()
    for _ in range(count):
        world.publish(topic)
    world.persist()
    return world


def sent(world: World, sid: str = "s") -> list[tuple[int, bytes]]:
    """Under which position which content came."""
    return [(one.position, one.data) for one in world.got(sid)]


def content(world: World, position: int) -> bytes:
    return next(one.data for one in world.published if one.position == position)


# -- the clock --------------------------------------------------------------------------------


@pytest.mark.seed("004-78")
def test_an_interval_of_a_replay_takes_in_what_is_replayed_in_that_time():
    world = filled(100)
    world.subscribe(options=by_replay(1.0))
    assert sent(world) == []
    world.wake_until(999)
    assert sent(world) == []
    world.wake_until(1_000)
    assert sent(world) == [(1, content(world, 100))]


@pytest.mark.seed("004-79")
@pytest.mark.parametrize("live", [False, True])
def test_the_same_rule_holds_for_what_is_published_now(live):
    """Three messages within one interval, whether they are old or come now."""
    world = filled(0 if live else 3)
    world.subscribe(options=by_replay(1.0))
    if live:
        for _ in range(3):
            world.publish("t")
            world.persist()
            world.wake_until(world.now_ms + 300)
    world.wake_until(SECOND_MS)
    assert sent(world) == [(1, content(world, 3))]


def test_the_next_interval_begins_with_the_next_message():
    world = filled(1)
    world.subscribe(options=by_replay(1.0))
    world.wake_until(10 * SECOND_MS)
    world.publish("t")
    world.persist()
    world.wake_until(10 * SECOND_MS + 999)
    assert [position for position, _ in sent(world)] == [1]
    world.wake_until(11 * SECOND_MS)
    assert [position for position, _ in sent(world)] == [1, 2]


@pytest.mark.parametrize("credit", [0, PLENTY])
def test_an_interval_of_log_time_waits_for_what_is_written_and_not_durable_yet(credit):
    """A slow sync does not cut live messages otherwise than replayed ones."""
    world = filled(1)
    world.subscribe(options=m.Options(conflation_s=2.5), credit=credit)
    assert world.core.cursors.eager  # the journal says what is written before it is durable
    world.publish("t")
    world.write()
    world.send(m.Flow("s", PLENTY))
    world.wake_until(10 * SECOND_MS)
    assert sent(world) == []
    world.persist()
    world.wake_until(20 * SECOND_MS)
    assert sent(world) == [(1, content(world, 2))]


def test_an_interval_of_log_time_ends_if_what_it_waited_for_is_lost():
    """Written and never durable: the journal that comes back does not have it."""
    world = filled(1)
    world.subscribe(options=m.Options(conflation_s=2.5))
    world.publish("t")
    world.write()
    world.wake_until(10 * SECOND_MS)
    world.log.pop()
    world.published.pop()
    world.next_position = world.written = world.persisted
    world.incarnation += 1
    world.say_watermarks()
    world.pump()
    world.wake_until(20 * SECOND_MS)
    assert sent(world) == [(1, content(world, 1))]
    world.send(m.Unsubscribe("s"))
    assert not world.core.cursors.eager


def test_an_interval_ends_while_older_messages_are_still_read():
    """One block of the log is read per turn of a replay; time passes between them."""
    world = ready()
    for _ in range(80):
        world.publish("t", size=60_000)
    world.persist()
    world.asleep = True
    world.subscribe(options=by_replay(0.010), credit=PLENTY)
    for _ in range(30):
        world.pump(1)
        world.now_ms += 6
    positions = [position for position, _ in sent(world)]
    assert len(positions) > 2
    assert positions == sorted(set(positions))


def test_the_end_of_a_range_ends_the_interval():
    world = filled(5)
    world.subscribe(options=by_replay(60.0), until=format_vector({HERE: 4}))
    assert sent(world) == [(1, content(world, 4))]
    assert [ack.ended for ack in world.acks("completed")] == [True]


def test_pace_comes_before_conflation():
    """At the pace of the log each interval holds what a live subscriber would have got in it."""
    world = filled(30)  # one second of log time apart
    world.subscribe(options=by_replay(10.0, rate="1X"), credit=PLENTY)
    world.wake_until(60 * SECOND_MS)
    assert sent(world) == [(at, content(world, at + 9)) for at in (1, 11, 21)]


def test_an_interval_ends_while_the_pace_makes_the_replay_wait():
    world = filled(2)
    world.subscribe(options=by_replay(1.0, rate="0.01"), credit=PLENTY)
    world.wake_until(SECOND_MS)
    assert [position for position, _ in sent(world)] == [1]
    world.wake_until(101 * SECOND_MS)
    assert [position for position, _ in sent(world)] == [1, 2]


def test_what_is_held_while_paused_goes_when_it_is_resumed():
    world = filled(3)
    world.subscribe(options=by_replay(1.0))
    world.send(m.Pause(["s"]))
    world.wake_until(5 * SECOND_MS)
    assert sent(world) == []
    world.send(m.Resume(["s"]))
    assert sent(world) == [(1, content(world, 3))]


def test_a_clock_without_conflation_is_refused():
    world = ready()
    world.subscribe(options=m.Options(conflation_clock="replay"))
    assert world.errors() == ["bad_field"]


def test_old_clients_get_intervals_of_log_time():
    world = filled(4)
    world.subscribe(options=m.Options(conflation_s=1.0))
    world.wake_until(SECOND_MS)
    assert [position for position, _ in sent(world)] == [1, 2, 3, 4]


# -- any history ------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from("abc"), min_size=1, max_size=4)),
    st.tuples(st.just("persist")),
    st.tuples(st.just("time"), st.integers(1, 2_500)),
    st.tuples(st.just("flow"), st.sampled_from([1, 40, PLENTY])),
    st.tuples(st.just("pause")),
    st.tuples(st.just("resume")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("again")),
)


class History:
    """A conflating subscription that is asked for again from the newest resume point it knows."""

    def __init__(self, credit: int, **options: Any) -> None:
        self.world = ready()
        self.sids = 0
        self.credit = credit
        self.options = by_replay(1.0, conflation_key=["/id"], **options)
        self.got: list[list[Seen]] = []
        self.subscribe("0")

    @property
    def sid(self) -> str:
        return f"s{self.sids}"

    def subscribe(self, bookmark: str) -> None:
        self.sids += 1
        self.world.subscribe(
            sid=self.sid, bookmark=bookmark, options=self.options, credit=self.credit
        )
        self.got.append(self.world.seen.setdefault((b"\0ann1", self.sid), []))

    def step(self, step: tuple[Any, ...]) -> None:
        world = self.world
        match step:
            case ("publish", ids):
                at = world.next_position
                data = [json.dumps({"id": i, "n": at + n}).encode() for n, i in enumerate(ids)]
                world.publish(*["t"] * len(ids), payloads=data)
            case ("persist",):
                world.persist()
            case ("time", ms):
                world.wake_until(world.now_ms + ms)
            case ("flow", size):
                world.send(m.Flow(self.sid, size))
            case ("pause",):
                world.send(m.Pause([self.sid]))
            case ("resume",):
                world.send(m.Resume([self.sid]))
            case ("restart",):
                world.incarnation += 1
                world.say_watermarks()
                world.welcome()
            case ("again",):
                self.lose()

    def lose(self) -> None:
        """The connection is lost: what it was sent last is where it goes on."""
        reported = [
            a.vector for a in self.world.acks("persisted") if a.sid == self.sid and a.vector
        ]
        reported = reported or [format_vector({HERE: 0})] * (self.sids == 1)
        self.reported = reported[-1] if reported else self.reported
        self.world.send(m.Unsubscribe(self.sid))
        self.subscribe(self.reported)

    reported = ""

    def end(self) -> None:
        self.world.persist()
        self.step(("resume",))
        for _ in range(12):
            self.step(("flow", PLENTY))
            self.step(("time", 700))


@RELAXED
@given(steps=st.lists(STEP, max_size=30), credit=st.sampled_from([1, 60, PLENTY]))
def test_the_newest_of_each_key_comes_whatever_happens(steps, credit):
    history = History(credit)
    for step in steps:
        history.step(step)
    history.end()
    world = history.world
    values = {one.position: json.loads(one.data) for one in world.published}
    newest = {value["id"]: value["n"] for value in values.values()}
    found: dict[str, int] = {}
    for run in history.got:
        for one in run:
            value = json.loads(one.data)
            assert values[one.position]["id"] == value["id"], "the identity of the same key's"
            assert one.position <= value["n"], "of its first message"
            found[value["id"]] = value["n"]
    assert found == newest
    if ("restart",) not in steps:
        for run in history.got:
            positions = [one.position for one in run]
            assert positions == sorted(set(positions))


# -- several in one replay ----------------------------------------------------------------------


def paused(world: World, *sids: str, **options: Any) -> list[str]:
    """Paused ones, each of the topic that it is called by."""
    for sid in sids:
        world.subscribe(sid[0], sid=sid, options=m.Options(paused=True, **options), credit=PLENTY)
    return list(sids)


def resume(world: World, sids: list[str], *, groups: bool = True) -> m.Ack:
    world.send(m.Resume(sids, "r", groups=groups))
    return next(a for _, a in reversed(world.answers) if getattr(a, "cid", "") == "r")


@pytest.mark.seed("004-71")
def test_every_group_that_is_resumed_by_one_command_shares_a_replay():
    world = ready()
    for _ in range(5):
        world.publish("a", "b", "c", "d")
    world.persist()
    early = paused(world, "a", "b")
    half = format_vector({HERE: 8})
    late = ["c", "d", "a2"]
    for sid in late:
        world.subscribe(
            sid[0], sid=sid, bookmark=half, credit=PLENTY, options=m.Options(paused=True)
        )
    answer = resume(world, early + late)
    assert answer.groups == [late, early]
    assert answer.combined == late
    for group in (early, late):
        order = [seen.position for sid, seen in world.arrived if sid in group]
        assert order == sorted(order)
        assert {sid for sid, _ in world.arrived} >= set(group)


def test_who_does_not_ask_for_groups_gets_one():
    world = filled(3, "a")
    early = paused(world, "a", "a2")
    for sid in ("a3", "a4"):
        world.subscribe(
            "a", sid=sid, bookmark=format_vector({HERE: 1}), options=m.Options(paused=True)
        )
    answer = resume(world, [*early, "a3", "a4"], groups=False)
    assert (answer.combined, answer.groups) == (early, None)
    assert len(world.core.cursors.running) == 3


@pytest.mark.seed("004-72")
@pytest.mark.parametrize("clock", ["log", "replay"])
def test_those_that_conflate_alike_share_a_replay(clock):
    world = ready()
    for at in range(12):
        world.publish("ab"[at % 2])
        world.publish("a", "b")
    world.persist()
    options = {"conflation_s": 5.0, "conflation_clock": clock}
    sids = paused(world, "a", "b", **options)
    answer = resume(world, sids)
    assert answer.groups == [sids]
    assert len(world.core.cursors.running) == 1
    world.wake_until(20 * SECOND_MS)
    order = [(seen.position, sid) for sid, seen in world.arrived]
    assert order == sorted(order), "the order of the log across both"
    assert {sid for _, sid in order} == {"a", "b"}


def test_those_that_conflate_otherwise_keep_a_replay_of_their_own():
    world = filled(3, "a")
    sids = paused(world, "a")
    sids += paused(world, "a1", conflation_s=1.0)
    sids += paused(world, "a2", conflation_s=2.0)
    sids += paused(world, "a3", conflation_s=2.0, conflation_clock="replay")
    world.subscribe(
        "a", sid="a4", until=format_vector({HERE: 2}),
        options=m.Options(paused=True, conflation_s=1.0),
    )  # fmt: skip
    answer = resume(world, [*sids, "a4"])
    assert (answer.groups, answer.combined) == (None, None)


@RELAXED
@given(
    log=st.lists(st.sampled_from(["a", "b", "ab", "aab", "c"]), min_size=1, max_size=20),
    interval=st.sampled_from([1.0, 2.5, 7.0]),
    cut=st.integers(0, 19),
)
def test_by_log_time_each_gets_in_a_group_what_it_gets_alone(log, interval, cut):
    world = ready()
    options = {"conflation_s": interval}
    for topics in log[:cut]:
        world.publish(*topics)
    world.persist()
    group = paused(world, "a", "b", **options)
    resume(world, group)
    for sid in ("a1", "b1"):
        world.subscribe(sid[0], sid=sid, options=m.Options(**options), credit=PLENTY)
    for topics in log[cut:]:
        world.publish(*topics)
        world.persist()
    world.publish("a", "b", times=[world.time_ns + 60 * STEP_NS] * 2)
    world.persist()
    assert sent(world, "a") == sent(world, "a1")
    assert sent(world, "b") == sent(world, "b1")
    order = [seen.position for sid, seen in world.arrived if sid in group]
    assert order == sorted(order)


def test_a_limit_of_memory_that_one_meets_ends_the_interval_of_all(monkeypatch):
    monkeypatch.setattr(conflation, "KEYS_MAX", 2)
    world = ready()
    for i in range(3):
        world.publish("a", payloads=[b'{"id": %d}' % i])
        world.publish("b", payloads=[b'{"id": 0}'])
    world.persist()
    group = paused(world, "a", "b", conflation_s=60.0, conflation_key=["/id"])
    resume(world, group)
    order = [seen.position for sid, seen in world.arrived if sid in group]
    assert order[:3] == [1, 2, 3]


def test_one_that_leaves_a_group_keeps_what_it_holds():
    world = ready()
    world.publish("a", "b")
    world.persist()
    group = paused(world, "a", "b", conflation_s=1.0)
    resume(world, group)
    world.send(m.Pause(["a"]))
    world.send(m.Resume(["a"], groups=True))
    world.wake_until(5 * SECOND_MS)
    assert [sid for sid, _ in world.arrived] in (["a", "b"], ["b", "a"])


def test_intervals_of_a_group_end_together():
    world = ready()
    group = paused(world, "a", "b", conflation_s=1.0, conflation_clock="replay")
    resume(world, group)
    world.publish("a")
    world.persist()
    world.wake_until(600)
    world.publish("b")
    world.persist()
    world.wake_until(999)
    assert world.arrived == []
    world.wake_until(1_000)
    assert [sid for sid, _ in world.arrived] == ["a", "b"]


@pytest.mark.parametrize("clock", ["log", "replay"])
def test_what_one_holds_when_it_joins_a_group_is_sent_in_time(clock):
    """The replay that they share is that of the first one, which holds nothing."""
    world = ready()
    world.publish("b")
    world.persist()
    options = m.Options(conflation_s=1.0, conflation_clock=clock)
    for sid in "ab":
        world.subscribe(sid, sid=sid, options=options, credit=PLENTY)
    world.send(m.Pause(["a", "b"]))
    assert resume(world, ["a", "b"]).groups == [["a", "b"]]
    world.wake_until(5 * SECOND_MS)
    assert [sid for sid, _ in world.arrived] == ["b"]


def test_a_resume_point_of_one_in_a_group_is_before_what_it_holds():
    world = ready()
    world.publish("a", "b", "a", "b")
    world.persist()
    group = paused(world, "a", "b", conflation_s=60.0, conflation_clock="replay")
    resume(world, group)
    world.wake_until(3 * SECOND_MS)
    reported = {ack.sid: parse_vector(ack.vector or "") for ack in world.acks("persisted")}
    assert reported.get("a", {HERE: 0}) == {HERE: 0}
    assert reported["b"] == {HERE: 1}
