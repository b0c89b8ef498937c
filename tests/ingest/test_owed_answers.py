"""zbroker/ingest/owed_answers.py: what is kept for a client whose queue is full."""

from __future__ import annotations

import pytest

from zbroker.engine.effects import Answer
from zbroker.ingest.owed_answers import RETRY_MS, OwedAnswers
from zbroker.limits import UNRECORDED_NAMED_MAX
from zbroker.wire import messages as m

A = b"\0aaaa"


def kept(*answers: m.ServerAnswer) -> list[m.ServerAnswer]:
    owed = OwedAnswers()
    for answer in answers:
        owed.put(Answer(A, answer), 0)
    assert owed.due(RETRY_MS - 1) == []
    due = owed.due(RETRY_MS)
    assert owed.due(10 * RETRY_MS) == [], "it was taken out"
    return [answer.message for answer in due]  # type: ignore[misc]


@pytest.mark.seed("002-24")
def test_of_merged_acks_the_newest_of_each_kind_is_kept() -> None:
    acks = [m.Ack("persisted", seq=1), m.Ack("processed", seq=2), m.Ack("persisted", seq=3)]
    assert kept(*acks) == [acks[2], acks[1]]


def test_answers_to_requests_do_not_replace_acks() -> None:
    flushed, ack = m.Ack("persisted", "f", seq=1), m.Ack("persisted", seq=2)
    assert kept(ack, flushed, m.Error("bad_topic", "")) == [
        ack, flushed, m.Error("bad_topic", ""),
    ]  # fmt: skip


def test_topics_that_are_not_recorded_stay_named() -> None:
    older = m.Ack("processed", seq=1, unrecorded=["a", "b"])
    checked = m.Ack("processed", seq=2)
    newer = m.Ack("processed", seq=3, unrecorded=["b", "c"])
    assert kept(older, checked, newer) == [
        m.Ack("processed", seq=3, unrecorded=["b", "c", "a"]), checked,
    ]  # fmt: skip
    many = m.Ack("processed", seq=4, unrecorded=[f"u{n}" for n in range(UNRECORDED_NAMED_MAX)])
    [merged] = kept(older, many)
    assert isinstance(merged, m.Ack)
    assert merged.unrecorded == many.unrecorded
