"""zbroker/admin/tallies.py: counts by topic, against a model that keeps everything."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.admin import tallies
from zbroker.admin.tallies import Tallies, TopicTally
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap
from zbroker.wire.messages import Columns

SIZE = 10  # bytes of each message


class Message(NamedTuple):
    topic: str
    position: int
    time: int


def batch(position: int, topics: list[str], skip: int = 0, cut: int = 0) -> Batch:
    """One message per name, of which some do not count; log times are 100 times positions."""
    names = list(dict.fromkeys(topics))
    index = array("H", [names.index(topic) for topic in topics]).tobytes()
    columns = Columns(index=index) if len(names) > 1 else None
    return Batch(
        KIND_PUBLISH, position, 1, 1, 1, 0, len(topics), position * 100, names, b"", 0,
        SIZE * len(topics), skip, columns=columns, cut=cut,
    )  # fmt: skip


def rows(found: Tallies) -> dict[str, TopicTally]:
    return {row.topic: row for row in found.rows()}


def test_a_batch_of_one_topic() -> None:
    made = Tallies()
    made.take([batch(1, ["a", "a", "a"])], 1)
    assert rows(made) == {"a": TopicTally("a", 3, 30, 100, 100, 3)}
    assert made.position == 4


def test_a_batch_of_several_topics_is_shared_out() -> None:
    made = Tallies()
    made.take([batch(5, ["a", "b", "a", "b", "a"], skip=1, cut=1)], 1)
    assert rows(made) == {
        "a": TopicTally("a", 1, 10, 500, 500, 6),
        "b": TopicTally("b", 2, 20, 500, 500, 7),
    }


def test_what_is_missing_is_stepped_over() -> None:
    made = Tallies()
    made.take([batch(1, ["a"]), Gap(2, 9, "damaged"), batch(9, ["a"])], 1)
    assert rows(made)["a"] == TopicTally("a", 2, 20, 100, 900, 9)


def test_what_is_no_message_of_a_client_is_not_counted() -> None:
    control = batch(1, ["$"])
    control.kind = KIND_PUBLISH + 1
    made = Tallies()
    made.take([control, batch(2, ["a"])], 1)
    assert (set(rows(made)), made.position) == ({"a"}, 3)


def test_names_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "TOPICS_MAX", 3)
    made = Tallies()
    made.take([batch(at, [f"t{at}"]) for at in range(1, 4)], 1)
    assert not made.full
    made.take([batch(4, ["t4"]), batch(5, ["t1"])], 2)
    assert made.full
    assert {topic: row.messages for topic, row in rows(made).items()} == {
        "t1": 2, "t2": 1, "t3": 1,
    }  # fmt: skip
    made.check()


@given(
    st.lists(
        st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4), max_size=3),
        min_size=1,
        max_size=8,
    ),
    st.data(),
)
def test_counts_are_those_of_what_is_there(
    segments: list[list[list[str]]], data: st.DataObject
) -> None:
    """Segments come, the oldest ones go; what is reported is what is left."""
    made = Tallies()
    kept: list[list[Message]] = []
    position = 1
    for serial, batches in enumerate(segments, 1):
        messages: list[Message] = []
        for topics in batches:
            time = position * 100
            made.take([batch(position, topics)], serial)
            messages += [Message(topic, position + n, time) for n, topic in enumerate(topics)]
            position += len(topics)
        kept.append(messages)
        gone = data.draw(st.integers(0, len(kept) - 1))
        if gone and messages:
            kept = [[] for _ in kept[:gone]] + kept[gone:]
            made.forget(next(m.position for each in kept for m in each))
        made.check()
        compare(made, [message for each in kept for message in each])


def compare(made: Tallies, left: list[Message]) -> None:
    found = rows(made)
    assert {topic: row.messages for topic, row in found.items()} == Counter(m.topic for m in left)
    for topic, row in found.items():
        mine = [m for m in left if m.topic == topic]
        assert row.bytes == SIZE * len(mine)
        assert (row.first_time, row.last_time) == (mine[0].time, mine[-1].time)
        assert row.last == mine[-1].position


def test_many_segments_of_many_topics_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "ENTRIES_MAX", 25)
    made = Tallies()
    for serial in range(1, 101):
        topics = [f"t{(serial + n) % 20}" for n in range(10)]
        made.take([batch(serial * 10 + n, [topic]) for n, topic in enumerate(topics)], serial)
        assert sum(map(len, made._tables)) <= 25 + 10
        made.check()
    assert sum(row.messages for row in rows(made).values()) == 1_000
    made.forget(1_000)
    assert sum(row.messages for row in rows(made).values()) < 1_000, "the oldest are taken off"
