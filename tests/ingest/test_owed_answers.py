"""zbroker/ingest/owed_answers.py: what is kept for a client whose queue is full, and in what order.

The core's part: answers wait for what their client is owed, and a client that reads nothing ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.rig import item
from tests.ingest.test_core import A, B, Bench, packed, single
from tests.ingest.test_recording import Bench as RecordingBench
from tests.ingest.test_recording import mixed, unrecorded
from zbroker.engine.effects import Answer
from zbroker.engine.events import Full
from zbroker.ingest.owed_answers import OWED_MAX, RETRY_MAX, RETRY_MS, OwedAnswers
from zbroker.limits import UNRECORDED_NAMED_MAX
from zbroker.wire import internal as i
from zbroker.wire import messages as m

Message = m.ServerAnswer | m.Heartbeat


def persisted(seq: int, cid: str | None = None, duplicate: int = 0) -> m.Ack:
    return m.Ack("persisted", cid, seq=seq, duplicate=duplicate)


def named(seq: int, *topics: str, runs: Sequence[tuple[int, int]] = ()) -> m.Ack:
    packed_runs = b"".join(struct.pack("<2Q", *run) for run in runs) or None
    return m.Ack("processed", seq=seq, unrecorded=list(topics), filtered=packed_runs)


def error(seq: int) -> m.Error:
    return m.Error("not_entitled", "because", seq=seq)


def kept(*messages: Message) -> list[Any]:
    """What is sent of these once there is space."""
    owed = OwedAnswers()
    for message in messages:
        owed.put(Answer(A, message), 0)
    assert owed.due(RETRY_MS - 1) == []
    found = [answer.message for answer in owed.due(RETRY_MS)]
    assert not owed.clients
    assert owed.due(10 * RETRY_MS) == []
    return found


# -- merging --------------------------------------------------------------------------------------


@pytest.mark.seed("002-24")
def test_of_persisted_acks_in_a_row_the_newest_says_it_all() -> None:
    assert kept(persisted(1, duplicate=1), persisted(3, duplicate=2)) == [persisted(3, duplicate=3)]


def test_acks_are_not_merged_across_a_refusal() -> None:
    """Else the refused message would be taken for a persisted one."""
    reported = [persisted(1), error(2), persisted(3), persisted(4)]
    assert kept(*reported) == [persisted(1), error(2), persisted(4)]


def test_answers_to_commands_are_all_kept() -> None:
    reported = [persisted(1, "f"), persisted(2, "g"), error(3), error(4), persisted(4, "h")]
    assert kept(*reported) == reported


def test_a_heartbeat_is_kept_only_if_nothing_else_is() -> None:
    beat = m.Heartbeat()
    assert kept(beat, beat) == [beat]
    assert kept(persisted(1), beat) == [persisted(1)]


def test_of_messages_that_were_taken_the_newest_is_named() -> None:
    taken = [m.Ack("processed", seq=seq) for seq in (1, 2)]
    assert kept(*taken) == taken[1:]


def test_topics_that_are_not_recorded_are_named_before_an_ack_of_what_follows() -> None:
    reported = [named(1, "u"), persisted(2), named(3, "v", "u"), persisted(4), named(5, "w")]
    assert kept(*reported) == [named(3, "u", "v"), persisted(4), named(5, "w")]


def test_all_that_is_not_recorded_stays_named_in_acks_of_a_size() -> None:
    many = [f"u{n}" for n in range(2 * UNRECORDED_NAMED_MAX)]
    acks = kept(named(1, *many[:UNRECORDED_NAMED_MAX]), named(2, *many[UNRECORDED_NAMED_MAX:]))
    assert [name for ack in acks for name in ack.unrecorded] == many
    assert all(len(ack.unrecorded) <= UNRECORDED_NAMED_MAX for ack in acks)


def test_runs_that_follow_each_other_are_joined() -> None:
    reported = [named(2, runs=[(1, 2)]), named(9, runs=[(3, 3), (9, 9)])]
    assert kept(*reported) == [named(9, runs=[(1, 3), (9, 9)])]


# -- order ----------------------------------------------------------------------------------------


def test_newer_answers_wait_behind_what_is_owed() -> None:
    owed = OwedAnswers()
    owed.put(Answer(A, error(1)), 0)
    to_b = Answer(B, error(9))
    assert owed.hold_back([Answer(A, error(2)), to_b, Answer(A, error(3))]) == [to_b]
    assert [one.message for one in owed.due(RETRY_MS)] == [error(1), error(2), error(3)]


def tried(owed: OwedAnswers, now_ms: int, space: int) -> list[Any]:
    """One look at a queue that takes so many; what was sent."""
    found = owed.due(now_ms)
    for answer in found[space:]:
        owed.put(answer, now_ms)
    return [answer.message for answer in found[:space]]


@given(st.lists(st.integers(0, 2 * RETRY_MAX), min_size=1), st.integers(1, 3 * RETRY_MAX))
def test_what_comes_back_is_sent_first_the_next_time(spaces: list[int], many: int) -> None:
    owed, sent, now_ms, last = OwedAnswers(), list[Any](), 0, 0
    for space in [*spaces, *[RETRY_MAX] * (many + len(spaces) + 1)]:
        if last < many:
            last += 1
            for effect in (
                owed.hold_back([Answer(A, error(last))])
                if owed.clients
                else [Answer(A, error(last))]
            ):
                owed.put(effect, now_ms)  # type: ignore[arg-type]
        now_ms += RETRY_MS
        sent += tried(owed, now_ms, space)
    assert sent == [error(n + 1) for n in range(last)]
    assert not owed.clients


def test_a_queue_with_space_is_filled_without_a_wait() -> None:
    owed = OwedAnswers()
    for n in range(3 * RETRY_MAX):
        owed.put(Answer(A, error(n)), 0)
    assert len(tried(owed, RETRY_MS, RETRY_MAX)) == RETRY_MAX
    assert owed.next_wake_ms == RETRY_MS, "the next turn goes on"
    assert len(tried(owed, RETRY_MS, 0)) == 0
    assert owed.next_wake_ms == 2 * RETRY_MS


# -- with the core --------------------------------------------------------------------------------


def flush(cid: str) -> Any:
    return item(A, m.Flush(cid), None)


class FullBench(Bench):
    """A's queue is full while `space` is 0: what it is sent comes back."""

    space = 0

    def take(self, effects: Iterable[Any]) -> list[Any]:
        left = []
        for effect in effects:
            if isinstance(effect, Answer) and effect.rid == A and not self.space:
                left += self.core.handle(Full(A, effect), self.now)
            else:
                left.append(effect)
        return super().take(left)


def full(bench: Bench) -> FullBench:
    bench.logon()
    bench.__class__ = FullBench
    assert isinstance(bench, FullBench)
    return bench


def test_an_ack_does_not_overtake_the_refusal_of_a_message_before_it() -> None:
    """As a client would see it: everything up to 3 persisted, and 2 refused when it is too late."""
    bench = full(Bench())
    bench.turn(packed(1, b"x"))
    assert bench.settle(i.ReceiptItem(1, 1, 1)) == []
    wrong = single(2, topic="")
    assert bench.turn(wrong) == []
    bench.turn(packed(3, b"z", prev=1))
    assert bench.settle(i.ReceiptItem(2, 2, 3)) == []
    bench.space = 1
    reported = bench.tick(RETRY_MS)
    assert [(type(one), one.seq) for one in reported if not isinstance(one, m.Heartbeat)] == [
        (m.Ack, 1), (m.Error, 2), (m.Ack, 3),
    ]  # fmt: skip


def test_every_flush_is_answered() -> None:
    bench = full(Bench())
    for cid in "fgh":
        assert bench.turn(flush(cid)) == []
    bench.space = 1
    assert [one.cid for one in bench.tick(RETRY_MS) if isinstance(one, m.Ack)] == ["f", "g", "h"]


def test_an_answer_that_could_be_sent_waits_for_those_before_it() -> None:
    bench = full(Bench())
    bench.turn(flush("f"))
    bench.space = 1
    assert bench.turn(flush("g")) == [], "it is there in the next moment"
    assert [one.cid for one in bench.tick(RETRY_MS) if isinstance(one, m.Ack)] == ["f", "g"]
    assert [one.cid for one in bench.turn(flush("h")) if isinstance(one, m.Ack)] == ["h"]


def test_a_client_that_reads_nothing_ends_and_learns_so_at_last() -> None:
    bench = full(Bench())
    for n in range(OWED_MAX + 10):
        assert bench.turn(single(0, topic="")) == [], n
    assert not bench.core.clients.by_rid
    bench.space = 1
    reported = list[Any]()
    while bench.core._owed.clients:
        reported += bench.tick(bench.now_ms + RETRY_MS)
    assert OWED_MAX <= len(reported) <= OWED_MAX + 2
    assert reported[-1].code == "not_logged_on"
    assert isinstance(bench.logon(), m.Ack), "it may come back"


def test_a_client_that_is_gone_is_owed_nothing() -> None:
    bench = full(Bench())
    bench.turn(flush("f"))
    bench.gone(A)
    bench.space = 1
    assert bench.tick(RETRY_MS) == []


def test_a_client_without_a_session_is_owed_answers_too() -> None:
    bench = full(Bench())
    bench.gone(A)
    assert bench.turn(single(1)) == []
    bench.space = 1
    [answer] = bench.tick(RETRY_MS)
    assert isinstance(answer, m.Error)
    assert answer.code == "not_logged_on"


def test_topics_stay_named_while_a_queue_is_full() -> None:
    bench = RecordingBench()
    owed = OwedAnswers()
    for n, topic in enumerate(("u", "v"), 1):
        [ack] = bench.turn(mixed(n, topic, n - 1))
        owed.put(Answer(A, ack), 0)
    [answer] = owed.due(RETRY_MS)
    assert answer.message == unrecorded(2, "u", "v")
