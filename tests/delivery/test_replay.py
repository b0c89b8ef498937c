"""Pause, resume, shared replays, replace, live delivery, pace, resume points; on a fake clock."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.delivery.world import ANN, HERE, World, ready
from zbroker.ids import format_vector, parse_vector
from zbroker.wire import messages as m

RELAXED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
PLENTY = 1 << 40
TOPICS = st.lists(st.sampled_from("tuvw"), min_size=1, max_size=6)
PATTERNS = st.sampled_from(["t", "u", "t|u", "v|w", ".*", "x"])


def filled(*topics: str) -> World:
    """A durable log of one batch per topic."""
    world = ready()
    for topic in topics:
        world.publish(topic)
    world.persist()
    return world


def positions(world: World, sid: str = "s") -> list[int]:
    return [seen.position for seen in world.got(sid)]


# -- pause and resume ---------------------------------------------------------------------------


@pytest.mark.seed("004-67")
def test_one_that_begins_paused_is_sent_nothing_until_it_is_resumed():
    world = filled("t", "t")
    world.subscribe(options=m.Options(paused=True))
    assert world.acks("processed")[-1].sid == "s"
    assert world.got() == []
    world.send(m.Resume(["s"], "r"))
    assert (world.last().type, world.acks("completed")[0].sid) == ("completed", "s")
    assert positions(world) == [1, 2]


@pytest.mark.seed("004-65")
@pytest.mark.seed("004-66")
def test_a_paused_one_keeps_its_position():
    world = filled("t", "t")
    world.subscribe()
    world.send(m.Pause(["s"], "p"))
    assert world.last().cid == "p"
    world.publish("t")
    world.persist()
    assert positions(world) == [1, 2]
    assert world.core.needs.holds(7, [], 0).lowest == 3
    world.send(m.Resume(["s"]))
    assert positions(world) == [1, 2, 3]


@pytest.mark.seed("004-68")
def test_pausing_twice_and_resuming_what_runs_changes_nothing():
    world = filled("t")
    world.subscribe()
    for command in (m.Pause(["s"]), m.Pause(["s", "s"]), m.Resume(["s", "s"]), m.Resume(["s"])):
        world.send(command)
    world.publish("t")
    world.persist()
    assert positions(world) == [1, 2]
    assert world.errors() == []


@pytest.mark.parametrize("command", [m.Pause(["s", "x"]), m.Resume(["x"]), m.Replace("x")])
def test_what_names_an_unknown_sid_changes_nothing(command):
    world = filled("t")
    world.subscribe()
    world.send(command)
    assert world.errors() == ["unknown_sid"]
    world.publish("t")
    world.persist()
    assert positions(world) == [1, 2]


@pytest.mark.seed("004-75")
def test_a_paused_one_is_gone_when_its_subscriber_is():
    world = filled("t")
    world.subscribe(options=m.Options(paused=True))
    world.send(m.Logoff())
    assert world.core.cursors.of == {}
    assert world.core.subscriptions == {}


# -- several in one replay ----------------------------------------------------------------------


def combined(world: World, patterns: list[str], **options: object) -> list[str]:
    sids = [f"s{n}" for n in range(len(patterns))]
    for sid, pattern in zip(sids, patterns, strict=True):
        world.subscribe(
            pattern, sid, regex=True, credit=0, options=m.Options(paused=True, **options),
        )  # fmt: skip
    world.send(m.Resume(sids, "r"))
    return sids


@pytest.mark.seed("004-70")
@pytest.mark.seed("004-71")
@pytest.mark.seed("004-73")
@RELAXED
@given(
    log=st.lists(TOPICS, max_size=12), more=st.lists(TOPICS, max_size=6),
    patterns=st.lists(PATTERNS, min_size=2, max_size=4),
    flows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=20),
    rate=st.sampled_from([None, 50, "2X"]), alone=st.integers(-1, 20),
)  # fmt: skip
def test_what_is_resumed_together_comes_in_the_order_of_the_log(
    log, more, patterns, flows, rate, alone
):
    world = ready()
    for topics in log:
        world.publish(*topics)
    world.persist()
    sids = combined(world, patterns, rate=rate)
    assert world.acks("processed")[-1].sid != "r"
    for number, (which, size) in enumerate(flows):
        world.send(m.Flow(sids[which % len(sids)], size))
        world.pass_time(20)
        if number == alone:
            world.send(m.Pause([sids[-1]]))
    for topics in more:
        world.publish(*topics)
    world.persist()
    for _ in range(60):
        for sid in sids:
            world.send(m.Flow(sid, PLENTY))
        world.pass_time(1_000)
    together = sids if not 0 <= alone < len(flows) else sids[:-1]
    order = [seen.position for sid, seen in world.arrived if sid in together]
    assert order == sorted(order)
    world.send(m.Resume([sids[-1]]))
    for _ in range(60):
        world.pass_time(1_000)
    for sid, pattern in zip(sids, patterns, strict=True):
        wanted = [one for one in world.published if pattern == ".*" or one.topic in pattern]
        assert world.got(sid) == wanted, (sid, pattern)


@pytest.mark.seed("004-71")
def test_the_answer_says_which_ones_share_a_replay():
    world = filled("t", "u")
    for sid, rate in (("a", 5), ("b", 5), ("c", 7)):
        world.subscribe(sid=sid, options=m.Options(paused=True, rate=rate))
    world.send(m.Resume(["a", "c", "b"], "r"))
    answers = [ack for _, ack in world.answers if isinstance(ack, m.Ack) and ack.cid == "r"]
    assert answers[0].combined == ["a", "b"]
    assert len(world.core.cursors.running) == 2


def test_a_replay_waits_for_the_slowest_of_its_members():
    world = filled("t", "t", "t")
    sids = combined(world, ["t", "t"])
    world.send(m.Flow(sids[0], PLENTY))
    assert world.arrived == []
    world.send(m.Flow(sids[1], 1))
    assert [len(world.got(sid)) for sid in sids] == [1, 1]


def test_one_that_ends_leaves_the_others_in_order():
    world = filled("t", "u", "t", "u")
    world.subscribe("t", "a", options=m.Options(paused=True, limit=1))
    world.subscribe("u", "b", options=m.Options(paused=True))
    world.send(m.Resume(["a", "b"]))
    assert (positions(world, "a"), positions(world, "b")) == ([1], [2, 4])
    world.publish("u")
    world.persist()
    assert positions(world, "b") == [2, 4, 5]


# -- replace ------------------------------------------------------------------------------------


def test_another_topic_holds_from_where_it_is():
    world = filled("t", "u")
    world.subscribe(credit=PLENTY)
    world.send(m.Replace("s", "c", topic="u"))
    assert (world.last().cid, world.last().position) == ("c", 3)
    world.publish("t", "u")
    world.persist()
    assert positions(world) == [1, 4]


def test_a_refused_replace_leaves_the_old_one():
    world = filled("t")
    world.subscribe()
    world.send(m.Replace("s", "c", filter="/a ="))
    world.send(m.Replace("s", "d", topic=""))
    assert world.errors() == ["bad_filter", "bad_topic"]
    assert all(answer.sid is None for _, answer in world.answers if isinstance(answer, m.Error))
    world.publish("t")
    world.persist()
    assert positions(world) == [1, 2]


def test_a_filter_is_taken_away_by_an_empty_one():
    world = ready()
    world.subscribe(filter="/a = 1")
    world.publish("t", payloads=[b'{"a":2}'])
    world.persist()
    world.send(m.Replace("s", filter=""))
    world.publish("t", payloads=[b'{"a":2}'])
    world.persist()
    assert positions(world) == [2]


# -- before it is durable -----------------------------------------------------------------------


def live_one(world: World, credit: int = PLENTY) -> None:
    world.subscribe(bookmark="0|1|", credit=credit, options=m.Options(delivery="live"))


@pytest.mark.seed("004-85")
def test_live_delivery_does_not_wait_for_the_sync():
    world = ready()
    live_one(world)
    world.subscribe(sid="safe")
    assert world.core.needs.holds(7, [], 0).eager
    world.publish("t")
    world.write()
    assert (positions(world), positions(world, "safe")) == ([1], [])
    world.persist()
    assert (positions(world), positions(world, "safe")) == ([1], [1])


@pytest.mark.seed("004-87")
def test_a_slow_subscriber_is_replayed_to_and_counted():
    world = ready()
    live_one(world, credit=1)
    for _ in range(3):
        world.publish("t")
        world.persist()
    assert (positions(world), world.core.cursors.fell_back) == ([1], 1)
    assert not world.core.needs.holds(7, [], 0).eager
    world.publish("t")
    world.write()
    world.send(m.Flow("s", PLENTY))
    assert positions(world) == [1, 2, 3, 4]
    assert world.core.needs.holds(7, [], 0).eager


def test_only_what_is_durable_is_reported_as_a_resume_point():
    world = ready()
    live_one(world)
    world.publish("t")
    world.persist()
    world.publish("t")
    world.write()
    world.pass_time(2_000)
    (told,) = world.acks("persisted")
    assert parse_vector(told.vector) == {HERE: 1}
    world.persist()
    world.pass_time(2_000)
    assert parse_vector(world.acks("persisted")[-1].vector) == {HERE: 2}


@pytest.mark.seed("004-86")
def test_what_a_power_cut_took_is_sent_as_it_is_now():
    world = ready()
    live_one(world)
    world.publish("t")
    world.write()
    world.log.clear()
    world.next_position, world.written = 1, 1
    world.incarnation += 1
    world.say_watermarks()
    world.welcome()
    world.publish("t", publisher=2)
    world.persist()
    assert [(seen.publisher, seen.position) for seen in world.got()] == [(1, 1), (2, 1)]


# -- pace ---------------------------------------------------------------------------------------


@pytest.mark.seed("004-60")
@pytest.mark.parametrize(("rate", "size"), [(1, 3), (100, 40), (1_000, 1_000), (50_000, 5_000)])
def test_a_rate_is_kept_and_never_more_than_one_message_ahead(rate, size):
    world = ready()
    for _ in range(4):
        world.publish(*["t"] * size)
    world.persist()
    world.asleep = True
    world.subscribe(credit=PLENTY, options=m.Options(rate=rate))
    world.pump()
    begun = world.now_ms
    while len(world.got()) < min(4 * size, 4 * rate):
        sent = len(world.got())
        assert sent <= rate * (world.now_ms - begun) / 1_000 + 1
        assert sent >= 0.98 * rate * (world.now_ms - begun) / 1_000 - 1
        wake_ms = world.core.next_wake_ms()
        assert wake_ms is not None
        world.pass_time(max(1, min(wake_ms - world.now_ms, 250)))


def test_times_that_no_one_waits_for_any_more_are_swept():
    world = filled(*["t"] * 3)
    world.subscribe(options=m.Options(rate="0.001"), credit=PLENTY)
    world.subscribe(sid="c", options=m.Options(conflation_s=3_600.0))
    for _ in range(300):
        world.send(m.Pause(["s"]))
        world.send(m.Resume(["s"]))
        world.publish("t")
        world.persist()
    assert len(world.core.cursors._timers) < 80


@pytest.mark.seed("004-62")
def test_twice_the_pace_of_log_time():
    world = filled(*["t"] * 5)  # one second apart
    world.subscribe(options=m.Options(rate="2X"))
    times = {}
    for _ in range(3_000):
        times.setdefault(len(world.got()), world.now_ms)
        world.pass_time(1)
    assert [times[n] for n in range(1, 6)] == [0, 500, 1_000, 1_500, 2_000]


def test_an_idle_stretch_of_the_log_is_cut_short():
    world = ready()
    for seconds in (1, 2, 3_600, 3_601):
        world.publish("t", times=[seconds * 10**9])
    world.persist()
    world.subscribe(options=m.Options(rate="1X", rate_max_gap_s=2))
    for _ in range(41):
        world.pass_time(100)
    assert len(world.got()) == 4


# -- resume points ------------------------------------------------------------------------------


@RELAXED
@given(log=st.lists(TOPICS, min_size=1, max_size=15), interval=st.sampled_from([None, 1.5, 3.0]))
def test_every_resume_point_that_is_reported_is_one(log, interval):
    """What comes after a point that was reported, and nothing else, comes from there again."""
    world = ready()
    options = m.Options(conflation_s=interval) if interval else m.Options()
    world.subscribe(options=options, bookmark="0")
    told: tuple[str, int] | None = None
    for topics in log:
        world.publish(*topics)
        world.persist()
        world.pass_time(2_000)
        told = [(ack.vector or "", len(world.got())) for ack in world.acks("persisted")][
            -1:
        ] or told
    if not told:
        return
    vector, seen = told[-1]
    world.subscribe(sid="again", bookmark=vector, options=options)
    world.pass_time(5_000)
    before = {one.position for one in world.got()[:seen]}
    again = world.got("again")
    assert {one.position for one in world.got()} <= before | {one.position for one in again}
    if interval is None:
        assert again == [one for one in world.got() if one.position > parse_vector(vector)[HERE]]


def test_one_that_nothing_matches_advances_all_the_same():
    world = filled("u", "u")
    world.subscribe("t")
    world.pass_time(2_000)
    world.publish("u")
    world.persist()
    world.pass_time(2_000)
    told = world.acks("persisted")
    assert parse_vector(told[-1].vector) == {HERE: 3}
    assert told[-1].bookmark == "1|3|"
    world.pass_time(2_000)
    assert world.acks("persisted") == told
    assert world.core.connections[ANN].subscriptions["s"].reported == 4
    assert format_vector({HERE: 3}) == told[-1].vector


# -- filters that take long ---------------------------------------------------------------------

DEAR = "/a LIKE '[ab][a-z]{1000}[XY]'"  # a thousand steps for each byte
DEAR_BYTES = 16_000  # of a message, of which one is a turn's work


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("more", [{}, {"limit": 5}, {"conflation_s": 0.001}])
def test_a_dear_filter_makes_a_break_between_messages_of_one_batch(
    zstd: bool, more: dict[str, float]
) -> None:
    """Others have their turn; nothing is left out or sent twice."""
    world = ready()
    data = [b'{"a": "%s", "n": %d}' % (b"c" * DEAR_BYTES, n) for n in range(8)]
    world.publish(*"t" * 8, payloads=data, zstd=zstd, times=list(range(10**9, 9 * 10**9, 10**9)))
    world.persist()
    content = f"{DEAR} OR /n >= 0"
    world.subscribe(filter=content, until="now", options=m.Options(**more))  # type: ignore[arg-type]
    assert len(positions(world)) == more.get("limit", 8)
    assert positions(world) == sorted(set(positions(world)))
    assert len(world.reads) >= 3
