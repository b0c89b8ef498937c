"""Any mix of options on any log sends what the model of ten lines says."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.delivery import model
from tests.delivery.world import HERE, STEP_NS, Seen, World, ready
from zbroker.filters import compile_select
from zbroker.ids import format_vector
from zbroker.wire import messages as m

RELAXED = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
PLENTY = 1 << 40
MS = 1_000_000

TOPICS = st.lists(st.sampled_from(["t", "t", "u", "v"]), min_size=1, max_size=6)
STEP = st.one_of(
    st.tuples(st.just("publish"), TOPICS, st.lists(st.integers(0, 3), min_size=6, max_size=6)),
    st.tuples(st.just("persist")),
    st.tuples(st.just("control")),
    st.tuples(st.just("time"), st.integers(1, 3_000)),
    st.tuples(st.just("flow"), st.integers(0, 300)),
    st.tuples(st.just("pause")),
    st.tuples(st.just("resume")),
    st.tuples(st.just("restart")),
)
STEPS = st.lists(STEP, max_size=25)


class Wanted(NamedTuple):
    """A filter, and the same in Python."""

    text: str
    check: Any


FILTERS = st.sampled_from(
    [
        Wanted("", lambda value: True),
        Wanted("/x > 1", lambda value: value is not None and value["x"] > 1),
        Wanted("/x = 0 OR /id = 'b'", lambda v: v is not None and (v["x"] == 0 or v["id"] == "b")),
        Wanted("/nothing IS NULL", lambda value: True),
        Wanted("/id = 'none of them'", lambda value: False),
    ]
)
OPTIONS = st.fixed_dictionaries({}, optional={
    "rate": st.sampled_from([10, "3", "200B", "2X", ".5x"]),
    "conflation_s": st.sampled_from([0.5, 1.0, 2.5, 60.0]),
    "limit": st.integers(1, 12),
    "select": st.sampled_from(["-/,+/x", "-/id"]),
    "paused": st.booleans(),
})  # fmt: skip


def payload(topic: str, x: int) -> bytes:
    """One of a few: JSON with two fields, or what is no JSON at all."""
    if x == 3 and topic == "v":
        return b"no JSON"
    return json.dumps({"id": "abcd"[x], "x": x}).encode()


def value_of(seen: Seen) -> Any:
    return None if seen.data == b"no JSON" else json.loads(seen.data)


class Play:
    """Steps of a world whose log time is its clock."""

    def __init__(self) -> None:
        self.world: World = ready()

    def step(self, step: tuple[Any, ...]) -> None:
        world = self.world
        match step:
            case ("publish", topics, xs):
                payloads = [payload(*pair) for pair in zip(topics, xs, strict=False)]
                self.pass_time(STEP_NS // MS)
                world.publish(*topics, payloads=payloads)
                world.write()
            case ("persist",):
                world.persist()
            case ("control",):
                world.control()
            case ("time", ms):
                self.pass_time(ms)
            case ("flow", size):
                self.tell(m.Flow("s", size))
            case ("pause",):
                self.tell(m.Pause(["s"]))
            case ("resume",):
                self.tell(m.Resume(["s"]))
            case ("restart",):
                world.incarnation += 1
                world.say_watermarks()
                world.welcome()

    def pass_time(self, ms: int) -> None:
        """Log time goes on with the clock; `publish` adds a step of its own."""
        world = self.world
        world.pass_time(ms)
        world.time_ns = max(world.time_ns, world.now_ms * MS - STEP_NS)

    def tell(self, command: m.ClientCommand) -> None:
        """Before it began and after it ended no one knows its sid."""
        self.world.send(command)

    def end(self) -> None:
        """Everything is durable, resumed, paid for and waited for."""
        self.world.persist()
        self.tell(m.Resume(["s"]))
        self.tell(m.Flow("s", PLENTY))
        for _ in range(400):
            self.pass_time(997)
            self.tell(m.Flow("s", PLENTY))
        self.pass_time(61_000)
        self.pass_time(61_000)


@pytest.mark.seed("004-07")
@pytest.mark.seed("004-55")
@pytest.mark.seed("004-76")
@pytest.mark.seed("004-80")
@RELAXED
@given(
    before=STEPS, after=STEPS, data=st.data(), wanted=FILTERS, options=OPTIONS,
    topic=st.sampled_from(["t", "v", "t|u", ".*"]), bounded=st.booleans(),
    keyed=st.booleans(), credit=st.sampled_from([0, 1, 100, PLENTY]),
)  # fmt: skip
def test_any_mix_of_options_is_what_the_model_says(
    before, after, data, wanted, options, topic, bounded, keyed, credit
):
    play = Play()
    world = play.world
    for step in before:
        play.step(step)
    world.persist()
    first = data.draw(st.integers(1, world.persisted))
    last = data.draw(st.integers(first, world.persisted)) if bounded else PLENTY
    if keyed and "conflation_s" in options:
        options["conflation_key"] = ["/id"]
    world.subscribe(
        topic, regex=len(topic) > 1, credit=credit, filter=wanted.text,
        options=m.Options(**options),
        bookmark=format_vector({HERE: first - 1}),
        until=format_vector({HERE: last - 1}) if bounded else None,
    )  # fmt: skip
    for step in after:
        play.step(step)
    play.end()

    interval = options.get("conflation_s")
    expected = model.replay(
        world.published, first=first, end=last, limit=options.get("limit"),
        wants=lambda seen: _fits(topic, seen.topic) and wanted.check(value_of(seen)),
        interval_ns=int(interval * 1e9) if interval else None,
        key=_key if keyed else lambda seen: (),
    )  # fmt: skip
    assert world.got() == _projected(expected, options.get("select"))
    over = bounded or len(expected) == options.get("limit")
    assert (world.core.cursors.of == {}) == over
    assert [ack.ended for ack in world.acks("completed")][-1:] == [over]
    assert len(world.acks("completed")) <= 1 + (over and not bounded)
    assert {code for code in world.errors() if code != "unknown_sid"} == set()


def _fits(pattern: str, topic: str) -> bool:
    return pattern == ".*" or topic in pattern.split("|")


def _key(seen: Seen) -> Any:
    value = value_of(seen)
    return value and value["id"]


def _projected(found: list[Seen], select: str | None) -> list[Seen]:
    if select is None:
        return found
    chosen = compile_select(select)
    return [seen._replace(data=chosen.apply("auto", seen.data)) for seen in found]
