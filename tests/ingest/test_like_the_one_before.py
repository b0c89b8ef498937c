"""A publish that is like the one before it is taken unchecked, with the same result."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.ingest.rig import Rig, item, made
from zbroker.checksums import crc32c
from zbroker.ingest.contract import PublishLimits
from zbroker.ingest.packer import PublishRun
from zbroker.limits import BATCH_COUNT_MAX
from zbroker.wire import internal as i
from zbroker.wire import messages as m

LIMITS = PublishLimits(60, 150, 250, 3)
RID = b"\0aaaa"

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["t", "u", "/bad#"]),
    "ack": st.sampled_from([["persisted"], ["persisted", "processed"]]),
    "cid": st.just("c"),
    "prev": st.just(0),
    "key": st.just(b"k"),
    "crc": st.just(1),
    "expires_ns": st.just(5),
    "mandatory": st.just(True),
    "resent": st.just(True),
    "time_ns": st.just(7),
    "count": st.just(1),
}
SIZES = st.sampled_from([3, 3, 3, 40, 60, 61])


@st.composite
def fields(draw: st.DrawFn, most: int) -> dict[str, Any]:
    """A few of them."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=most, unique=True))
    return {name: draw(FIELDS[name]) for name in names}


@st.composite
def bursts(draw: st.DrawFn) -> list[list[tuple[m.Publish, bytes | None]]]:
    """Of one client: mostly one message after the other, with mistakes and changes."""
    sent, seq = [], 0
    for _ in range(draw(st.integers(1, 4))):
        burst: list[tuple[m.Publish, bytes | None]] = []
        usual = draw(fields(1))
        for _ in range(draw(st.integers(1, 8))):
            seq += draw(st.sampled_from([1, 1, 1, 1, 1, 1, 0, -1, 2]))
            these = {"topic": "t", **usual}
            if draw(st.integers(0, 4)) == 0:
                these |= draw(fields(2))
            if draw(st.integers(0, 9)) == 0:
                these["prev"] = draw(st.sampled_from([0, max(0, seq - 1)]))
            body = None if draw(st.integers(0, 19)) == 0 else b"x" * draw(SIZES)
            burst.append((m.Publish(max(1, seq), **these), body))
        sent.append(burst)
    return sent


class Publisher(Rig):
    """One client, and what became of what it sent."""

    def __init__(self, *, publisher_time: bool = False) -> None:
        super().__init__(made(replace(LIMITS, publisher_time=publisher_time)))
        self.turn(item(RID, m.Logon("p", "x", "1"), None))
        self.answers: list[Any] = []

    def send(self, burst: list[tuple[m.Publish, bytes | None]]) -> None:
        self.answers += self.turn(*(item(RID, publish, body) for publish, body in burst))


def outcome(sent: list[list[tuple[m.Publish, bytes | None]]]) -> tuple[Any, ...]:
    publisher = Publisher()
    for burst in sent:
        publisher.send(burst)
    taken = publisher.appended
    ends = [(ordinal, one.seq + one.count - 1) for ordinal, one, _ in taken]
    receipts = [i.ReceiptItem(ordinal, 1, last) for ordinal, last in ends]
    publisher.answers += publisher.settle(*receipts)
    stats = publisher.core.stats()
    return publisher.answers, taken, stats["messages"], publisher.core.link.bytes


@settings(max_examples=500)
@given(bursts())
def test_the_result_is_that_of_checking_each(
    sent: list[list[tuple[m.Publish, bytes | None]]],
) -> None:
    short = outcome(sent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PublishRun, "is_next", lambda *_: False)
        assert short == outcome(sent)


def checked(publisher: Publisher, burst: list[tuple[m.Publish, bytes | None]]) -> int:
    """How many of them were checked."""
    count, checks = 0, publisher.core._publishing._checks

    def check(publish: m.Publish, body: bytes) -> None:
        nonlocal count
        count += 1
        type(checks).check(checks, publish, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "check", check)
        publisher.send(burst)
    return count


def some(*fields: dict[str, Any]) -> list[tuple[m.Publish, bytes | None]]:
    return [
        (m.Publish(number, **{"topic": "t", **each}), b"data")
        for number, each in enumerate(fields, 1)
    ]


def test_the_first_one_of_a_burst_is_checked() -> None:
    assert checked(Publisher(), some({}, {}, {}, {})) == 1


@pytest.mark.parametrize(
    "field", [{"topic": "u"}, {"key": b"k"}, {"cid": "7"}, {"ack": ["processed"]}, {"crc": 5}]
)
def test_one_that_differs_is_checked(field: dict[str, Any]) -> None:
    assert checked(Publisher(), some({}, {}, field)) == 2


def test_one_with_a_checksum_is_checked() -> None:
    publisher, good = Publisher(), {"crc": crc32c(b"data")}
    sent = some(good, good, good)
    publisher.send([*sent[:2], (sent[2][0], b"DATA")])
    assert [each.code for each in publisher.answers if isinstance(each, m.Error)] == ["bad_frame"]


def test_each_keeps_the_time_of_its_publisher() -> None:
    publisher = Publisher(publisher_time=True)
    publisher.send(some({"time_ns": 7}, {"time_ns": 7}, {"time_ns": 7}))
    [(_, entry, _)] = publisher.appended
    assert entry.columns is not None
    assert entry.columns.time == array("q", [7, 7, 7]).tobytes()


def test_messages_to_several_topics_keep_theirs() -> None:
    publisher = Publisher()
    publisher.send(some({}, {"topic": "u"}, {"topic": "u"}, {"topic": "t"}, {"topic": "t"}))
    [(_, entry, _)] = publisher.appended
    assert entry.topics == ["t", "u"]
    assert entry.columns is not None
    assert entry.columns.index == bytes([0, 0, 1, 0, 1, 0, 0, 0, 0, 0])


def test_one_after_a_different_one_of_the_same_batch_keeps_its_topic() -> None:
    publisher = Publisher()
    publisher.send(some({}, {"topic": "u", "key": b"k"}, {}))
    [(_, entry, _)] = publisher.appended
    assert entry.columns is not None
    assert entry.columns.index == bytes([0, 0, 1, 0, 0, 0])


def test_a_batch_ends_where_it_is_full() -> None:
    run = PublishRun(m.Publish(1, "t"), b"data")
    run.payloads *= BATCH_COUNT_MAX
    assert not run.has_space(1, 1_000_000)
