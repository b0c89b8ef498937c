"""A cursor over any log sends exactly what it wants, whatever the log, the credit and the cuts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.delivery.world import ANN, HERE, World, ready
from zbroker.ids import format_vector
from zbroker.wire import messages as m

TOPICS = st.lists(st.sampled_from(["t", "t", "u", "v"]), min_size=1, max_size=6)
ENTRY = st.one_of(
    st.just("control"),
    st.tuples(TOPICS, st.integers(1, 3), st.integers(1, 60), st.booleans(), st.integers(0, 2)),
)
LOG = st.lists(ENTRY, max_size=25)
RELAXED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def write(world: World, entries: list) -> None:
    """Publishes what hypothesis made up."""
    for entry in entries:
        if entry == "control":
            world.control()
            continue
        topics, publisher, size, zstd, skip = entry
        world.publish(
            *topics, publisher=publisher, size=size, zstd=zstd, skip=min(skip, len(topics) - 1)
        )


def wanted(world: World, topics: str = "t", first: int = 1, last: int | None = None) -> list:
    """What was published on any of `topics`."""
    end = world.persisted if last is None else last
    return [s for s in world.published if s.topic in topics and first <= s.position < end]


@pytest.mark.seed("004-05")
@pytest.mark.seed("004-34")
@pytest.mark.seed("004-45")
@RELAXED
@given(before=LOG, between=LOG, after=LOG, credit=st.integers(1, 400), cut=st.integers(0, 30))
def test_a_cutover_neither_loses_nor_repeats_wherever_it_happens(
    before, between, after, credit, cut
):
    """Subscribe with some of the log written and some of it not durable yet, then go on."""
    world = ready()
    write(world, before)
    world.persist()
    write(world, between)
    world.subscribe(credit=credit)
    for index, entry in enumerate(after):
        write(world, [entry])
        if index % 3 == cut % 3:
            world.persist()
        if index == cut:
            world.incarnation += 1
            world.say_watermarks()
            world.welcome()
        world.send(m.Flow("s", credit))
    world.persist()
    world.send(m.Flow("s", 1 << 20))
    assert world.got() == wanted(world)
    assert world.errors() == []


@RELAXED
@given(entries=LOG, data=st.data(), pattern=st.booleans(), zstd=st.booleans())
def test_a_range_sends_what_lies_between_its_ends(entries, data, pattern, zstd):
    world = ready()
    write(world, entries)
    world.persist()
    first = data.draw(st.integers(1, world.persisted))
    last = data.draw(st.integers(1, world.persisted))
    world.subscribe(
        "[tu]" if pattern else "t", regex=pattern, options={"codecs": ["zstd"]} if zstd else None,
        bookmark=format_vector({HERE: first - 1}), until=format_vector({HERE: last - 1}),
    )  # fmt: skip
    assert world.got() == wanted(world, "tu" if pattern else "t", first, last)
    assert len(world.acks("completed")) == 1
    assert world.core.connections[ANN].subscriptions == {}


@pytest.mark.seed("004-33")
@pytest.mark.seed("004-49")
@RELAXED
@given(entries=LOG, data=st.data())
def test_a_resume_after_any_message_goes_on_with_the_next(entries, data):
    world = ready()
    write(world, entries)
    world.persist()
    everything = wanted(world)
    if not everything:
        return
    at = data.draw(st.integers(0, len(everything) - 1))
    world.subscribe(bookmark=f"{everything[at].publisher}|{everything[at].seq}|")
    assert world.got() == everything[at + 1 :]


@pytest.mark.seed("004-43")
@RELAXED
@given(entries=LOG, flows=st.lists(st.integers(0, 200), max_size=20))
def test_flow_control_exceeds_the_credit_by_at_most_one_batch(entries, flows):
    world = ready()
    write(world, entries)
    world.persist()
    world.subscribe("[tuv]", regex=True, credit=0)
    given_bytes = 0
    for flow in flows:
        given_bytes += flow
        world.send(m.Flow("s", flow))
        sizes = [size for _, _, size in world.batches]
        assert sum(sizes[:-1]) < given_bytes or not sizes
    assert world.got() == wanted(world, "tuv")[: len(world.got())]


@pytest.mark.seed("004-53")
@RELAXED
@given(
    entries=LOG,
    times=st.lists(st.integers(1, 100), min_size=1, max_size=8),
    cut=st.integers(0, 110),
)
def test_times_within_a_batch_are_honoured_at_both_ends(entries, times, cut):
    del entries
    world = ready()
    stamps = sorted(second * 1_000_000_000 for second in times)
    world.subscribe(sid="past", until=f"19700101T00{cut // 60:02}{cut % 60:02}")
    world.subscribe(sid="rest", bookmark=f"19700101T00{cut // 60:02}{cut % 60:02}")
    world.publish(*["t"] * len(stamps), times=stamps)
    world.persist()
    late = [s for s in world.published if s.time_ns >= cut * 1_000_000_000]
    assert world.got("rest") == late
    assert world.got("past") == world.published[: len(world.published) - len(late)]
    assert len([ack for ack in world.acks("completed") if ack.sid == "past"]) == bool(late)
