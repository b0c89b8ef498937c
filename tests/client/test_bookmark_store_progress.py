"""What is stored of a subscription, and what is handed out again after a restart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zbroker.client.bookmark_stores import progress
from zbroker.client.bookmark_stores.progress import ByMark, ByPosition, Reached, resume_point
from zbroker.client.message import Message, MessageHead
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin

HERE, THERE = Origin(0xAB, 1), Origin(0xCD, 2)


def batch(*positions, origin=HERE):
    """Messages of one batch at these positions."""
    first = positions[0]
    offsets = [position - first for position in positions]
    head = MessageHead(
        publisher=9, sequence=first, position=first, first=0, origin=origin, time_ns=0, topic="t",
        topics=(), index=None, times=None, offsets=offsets,
    )  # fmt: skip
    return [Message(head, b"", position) for position in positions]


def positions(messages):
    return [message.position for message in messages]


# -- by position ----------------------------------------------------------------------------------


def test_nothing_is_known_before_something_came():
    assert ByPosition({}).state() == {}


def test_the_state_is_before_the_oldest_that_is_not_discarded():
    one = ByPosition({})
    first = one.receive(batch(4, 5, 9))
    assert one.state() == {HERE: Reached(3)}
    one.discard(first[0])
    assert one.state() == {HERE: Reached(4)}
    one.discard(first[1])
    assert one.state() == {HERE: Reached(8)}
    one.discard(first[2])
    assert one.state() == {HERE: Reached(9)}


def test_what_is_discarded_after_an_open_one_is_remembered():
    one = ByPosition({})
    first, second = one.receive(batch(4, 5, 6)), one.receive(batch(8, 10))
    one.discard(first[2])
    one.discard(second[0])
    assert one.state() == {HERE: Reached(9, (4, 5))}
    assert resume_point(one.state()) == {HERE: 3}
    again = ByPosition(one.state())
    assert positions(again.receive(batch(4, 5, 6))) == [4, 5]
    assert positions(again.receive(batch(8, 10, 11))) == [10, 11]


def test_twice_is_once():
    one = ByPosition({})
    first = one.receive(batch(1, 2, 3))
    assert one.discard(first[1])
    assert not one.discard(first[1])
    assert one.discard(first[0])
    assert not one.discard(first[0])
    assert not one.discard(first[1])
    for _ in range(2):
        one.discard_part(first, 0, 3)
        assert one.state() == {HERE: Reached(3)}


@pytest.mark.parametrize("other", [batch(2), batch(7), batch(3, origin=THERE)])
def test_what_was_not_handed_out_changes_nothing(other):
    one = ByPosition({})
    one.receive(batch(1, 3, 5))
    assert not one.discard(other[0])
    assert one.state() == {HERE: Reached(0)}


def test_a_durable_point_counts_when_nothing_is_open():
    one = ByPosition({})
    first = one.receive(batch(4))
    one.advance({HERE: 20, THERE: 7})
    assert one.state() == {HERE: Reached(3), THERE: Reached(7)}
    one.discard_part(first, 0, len(first))
    assert one.state() == {HERE: Reached(20), THERE: Reached(7)}
    one.advance({HERE: 11})
    assert one.state()[HERE] == Reached(20), "it never goes back"


def test_origins_have_states_of_their_own():
    one = ByPosition({HERE: Reached(5)})
    first, second = one.receive(batch(6, 7)), one.receive(batch(2, 3, origin=THERE))
    one.discard(second[0])
    one.discard_part(first, 0, len(first))
    assert one.state() == {HERE: Reached(7), THERE: Reached(2)}


def test_what_was_open_and_does_not_come_again_holds_up_nothing():
    one = ByPosition({HERE: Reached(20, (5, 8))})
    assert resume_point(one.state()) == {HERE: 4}
    assert positions(one.receive(batch(7, 8, 9))) == [8]
    assert one.state() == {HERE: Reached(20, (8,))}
    two = ByPosition({HERE: Reached(20, (5, 8))})
    two.advance({HERE: 8})
    assert two.state() == {HERE: Reached(20)}


def test_a_batch_of_which_all_is_processed_brings_nothing():
    one = ByPosition({HERE: Reached(20, (5,))})
    one.receive(batch(5))
    assert one.receive(batch(6, 7)) == []


def test_what_is_stored_is_bounded(monkeypatch):
    monkeypatch.setattr(progress, "OPEN_STORED_MAX", 2)
    one = ByPosition({})
    first = one.receive(batch(*range(1, 10)))
    for message in first[1::2]:
        one.discard(message)
    assert one.state() == {HERE: Reached(4, (1, 3))}, "6 and 8 come again, 5, 7 and 9 do, too"


def test_a_reader_that_never_discards_is_warned(monkeypatch):
    monkeypatch.setattr(progress, "OPEN_MAX", 3)
    for one in (ByPosition({}), ByMark({})):
        one.receive(batch(1, 2, 3))
        with pytest.raises(ZBrokerError, match="too_many"):
            one.receive(batch(4))


LOG = st.lists(
    st.tuples(st.sampled_from([HERE, THERE]), st.sets(st.integers(0, 6), min_size=1)),
    min_size=1, max_size=12,
)  # fmt: skip
STEP = st.tuples(
    st.sampled_from(["receive", "receive", "discard", "discard_part", "durable", "restart"]),
    st.integers(0, 100),
)


def log_of(shape):
    """Batches whose positions rise, with gaps, per origin."""
    end, log = {HERE: 0, THERE: 0}, []
    for origin, offsets in shape:
        first = end[origin] + 1
        log.append(batch(*sorted(first + offset for offset in offsets), origin=origin))
        end[origin] = first + max(offsets)
    return log


class Life:
    """A subscription over a log, and what it should be: a set of processed places."""

    def __init__(self, log, *, exact=True):
        self.log = log
        self.exact = exact  # not if so little is remembered that something comes again
        self.processed = set()
        self.resume({})

    def resume(self, state):
        self.one, point = ByPosition(state), resume_point(state)
        self.coming = [
            [message for message in batch if message.position > point.get(message.origin, 0)]
            for batch in self.log
        ]
        self.coming = [batch for batch in self.coming if batch]
        self.came = {HERE: point.get(HERE, 0), THERE: point.get(THERE, 0)}
        self.open, self.last = [], []

    def do(self, what, number):
        if what == "receive" and self.coming:
            self.receive(self.coming.pop(0))
        elif what == "discard" and self.open:
            self.discard(self.open[number % len(self.open)], self.one.discard)
        elif what == "discard_part" and self.open:
            self.discard_part(self.last, number % len(self.last) + 1)
        elif what == "durable":
            self.one.advance(self.came)
        elif what == "restart":
            self.resume(self.one.state())
        self.check()

    def receive(self, messages):
        fresh = self.one.receive(messages)
        self.last = fresh or self.last
        wanted = [m for m in messages if place(m) not in self.processed]
        assert [m for m in fresh if self.exact or m in wanted] == wanted
        self.came[messages[-1].origin] = messages[-1].position
        self.open += fresh

    def discard(self, message, call):
        assert call(message)
        self.processed.add(place(message))
        self.open.remove(message)

    def discard_part(self, messages, end):
        self.one.discard_part(messages, 0, end)
        self.processed |= set(map(place, messages[:end]))
        self.open = [message for message in self.open if message not in messages[:end]]

    def check(self):
        point = resume_point(self.one.state())
        for origin, came in self.came.items():
            left = [m.position for m in self.open if m.origin == origin]
            if left:
                assert point[origin] == min(left) - 1
            elif origin in point:
                assert point[origin] >= came


def place(message):
    return message.origin, message.position


@settings(max_examples=300, deadline=None)
@given(LOG, st.lists(STEP, max_size=40))
def test_whatever_happens_what_is_open_comes_again_and_nothing_else(shape, steps):
    live_through(Life(log_of(shape)), steps)


@settings(max_examples=100, deadline=None)
@given(LOG, st.lists(STEP, max_size=40))
def test_nothing_is_left_out_however_little_is_remembered(shape, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "OPEN_STORED_MAX", 1)
        live_through(Life(log_of(shape), exact=False), steps)


def live_through(life, steps):
    for what, number in steps:
        life.do(what, number)
    life.do("restart", 0)
    while life.coming:
        life.do("receive", 0)
    assert life.processed | set(map(place, life.open)) == {place(m) for b in life.log for m in b}


# -- by mark --------------------------------------------------------------------------------------


def test_with_marks_only_durable_points_are_stored():
    one = ByMark({})
    first = one.receive(batch(4, 5))
    one.discard_part(first, 0, len(first))
    assert one.state() == {}
    one.advance({HERE: 3})
    assert one.state() == {HERE: Reached(3)}


def test_with_marks_a_batch_counts_when_all_of_it_is_discarded():
    one = ByMark({HERE: Reached(3)})
    first = one.receive(batch(4, 5))
    one.advance({HERE: 5})
    second = one.receive(batch(6))
    one.advance({HERE: 6, THERE: 1})
    one.discard(first[0])
    one.discard(second[0])
    assert one.state() == {HERE: Reached(3)}
    assert one.discard(first[1])
    assert not one.discard(first[1])
    assert one.state() == {HERE: Reached(6), THERE: Reached(1)}


def test_with_marks_the_oldest_open_batch_decides():
    one = ByMark({})
    one.advance({HERE: 1})
    first = one.receive(batch(2))
    one.advance({HERE: 2})
    second = one.receive(batch(3))
    one.advance({HERE: 3})
    assert one.state() == {HERE: Reached(1)}
    one.discard_part(first, 0, len(first))
    assert one.state() == {HERE: Reached(2)}
    one.discard_part(second, 0, len(second))
    assert one.state() == {HERE: Reached(3)}


def test_with_marks_the_same_positions_may_come_again():
    one = ByMark({HERE: Reached(9)})
    first, again = one.receive(batch(4, 5)), one.receive(batch(4, 5))
    one.advance({HERE: 12})
    one.discard_part(again, 0, 2)
    assert one.state() == {HERE: Reached(9)}
    one.discard_part(first, 0, 2)
    assert one.state() == {HERE: Reached(12)}


def test_marks_begin_before_what_was_open():
    assert ByMark({HERE: Reached(9, (4, 6))}).state() == {HERE: Reached(3)}
