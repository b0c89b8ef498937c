"""zbroker/queues/work/length_limit.py: the oldest messages go, if more wait than may."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work import length_limit, locks
from zbroker.queues.work.length_limit import AT_ONCE_MAX, give_up
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import span
from zbroker.queues.work.values import Arrivals, Lock, Outcome

NOW = Now(0, 10**18)


def _queue(
    count: int = 0, sizes: list[int] | None = None, barriers: list[int] | None = None, **more: Any
) -> Queue:
    """With messages 1, 2, 3 and so on."""
    queue = Queue(QueueConfig("q", **{"max_per_subscription": 10, **more}))
    known = array("Q", sizes) if sizes is not None else None
    positions = span(1, 1 + (len(sizes) if sizes is not None else count))
    found = BitMap64(barriers) if barriers else None
    queue.entered(Arrivals(positions, barriers=found, sizes=known))
    return queue


def _gone(queue: Queue) -> list[int]:
    """What is given up now; nothing is left to be given up then."""
    found = [at for outcome in give_up(queue) for at in outcome.positions]
    queue.check()
    assert give_up(queue) == []
    return found


def test_the_oldest_go_that_are_too_many() -> None:
    queue = _queue(5, max_length=3)
    assert give_up(queue) == [Outcome(BitMap64([1, 2]), "gone", "max_length")]
    queue.check()
    assert give_up(queue) == []
    queue.gone(BitMap64([1, 2]))
    assert list(queue.here) == [3, 4, 5]


def test_they_are_dead_letters_where_there_is_a_topic_for_these() -> None:
    [outcome] = give_up(_queue(2, max_length=1, dead_letter="dead"))
    assert outcome.letter == "max_length"


def test_what_consumers_have_does_not_count_and_stays() -> None:
    queue = _queue(5, max_length=3, max_per_subscription=2)
    queue.join(1, "c", 0, False, NOW)
    [offer] = queue.offer(NOW, {})
    assert list(offer.positions) == [1, 2]
    assert _gone(queue) == []
    queue.entered(Arrivals(BitMap64([6, 7])))
    assert _gone(queue) == [3, 4]
    queue.leave(1)
    assert _gone(queue) == [1, 2], "they wait again"


def test_what_waits_for_its_delay_counts() -> None:
    queue = _queue(3, max_length=2)
    queue.failed(BitMap64([1, 2, 3]), "cancelled", NOW.steady_ns + 10**9, 1_000)
    queue.entered(Arrivals(BitMap64([4])))
    assert _gone(queue) == [1, 2]


def test_what_a_branch_has_locked_stays() -> None:
    queue = _queue(4, max_length=1)
    locks.locked(queue, BitMap64([1, 2]), Lock(("ann", "token")))
    assert _gone(queue) == [3]


def test_barriers_stay() -> None:
    queue = _queue(5, max_length=1, barrier="/b = 1", barriers=[1, 3])
    assert _gone(queue) == [2, 4]


def test_what_another_instance_owns_is_its_matter() -> None:
    queue = _queue(5, max_length=1)
    queue.disown(BitMap64([1, 2, 5]))
    assert _gone(queue) == [3]


@pytest.mark.parametrize("more", [{"priority": "/p"}, {"group_key": "/g"}])
def test_the_oldest_go_whatever_their_order(more: dict[str, str]) -> None:
    queue = Queue(QueueConfig("q", max_length=2, **more))
    numbers = {"priority": "priorities", "group_key": "groups"}[next(iter(more))]
    kind = {"priorities": "Q", "groups": "q"}[numbers]
    queue.entered(Arrivals(span(1, 5), **{numbers: array(kind, [9, 9, 1, 1])}))
    assert _gone(queue) == [1, 2]
    queue.gone(BitMap64([1, 2]))
    queue.join(1, "c", 0, False, NOW)
    [offer] = queue.offer(NOW, {})
    assert offer.positions.min() == 3


def test_a_refused_one_comes_back_and_goes_again() -> None:
    queue = _queue(3, max_length=1)
    [outcome] = give_up(queue)
    queue.undo(outcome)
    assert give_up(queue) == [outcome]


def test_an_alteration_counts_from_then_on() -> None:
    queue = _queue(4)
    assert not length_limit.is_limited(queue)
    queue.config = QueueConfig("q", max_length=1)
    assert _gone(queue) == [1, 2, 3]


def test_one_outcome_is_about_a_bounded_number() -> None:
    queue = _queue(AT_ONCE_MAX + 5, max_length=1)
    counts = [len(give_up(queue)[0].positions) for _ in range(2)]
    assert counts == [AT_ONCE_MAX, 4]


def test_bytes_are_limited() -> None:
    queue = _queue(sizes=[50, 10, 0, 40], max_bytes=60)
    assert _gone(queue) == [1]
    queue.entered(Arrivals(BitMap64([5]), sizes=array("Q", [100])))
    assert _gone(queue) == [2, 3, 4, 5], "one that is larger than all may be goes, too"


def test_bytes_with_consumers_do_not_count() -> None:
    queue = _queue(sizes=[50, 50, 50], max_bytes=60, max_per_subscription=1)
    queue.join(1, "c", 0, False, NOW)
    queue.offer(NOW, {})
    assert _gone(queue) == [2]


def test_the_stricter_limit_holds() -> None:
    assert _gone(_queue(sizes=[1, 1, 1, 1], max_bytes=3, max_length=2)) == [1, 2]
    assert _gone(_queue(sizes=[9, 1, 1, 1], max_bytes=1, max_length=3)) == [1, 2, 3]


@given(
    st.lists(st.integers(0, 40), max_size=200),
    st.sets(st.integers(1, 200)),
    st.sets(st.integers(1, 200)),
    st.integers(0, 1_000),
    st.integers(0, 30),
)
def test_it_is_what_one_message_after_the_other_gives(
    sizes: list[int], delayed: set[int], foreign: set[int], max_bytes: int, max_length: int
) -> None:
    queue = _queue(sizes=sizes, max_bytes=max_bytes, max_length=max_length)
    due = BitMap64(delayed) & queue.here
    if due:
        queue.failed(due, "cancelled", NOW.steady_ns + 10**9, 1_000)
    queue.disown(BitMap64(foreign))
    waiting = [at for at in range(1, len(sizes) + 1) if at not in foreign]
    dropped = []
    while waiting and (
        (max_length and len(waiting) > max_length)
        or (max_bytes and sum(sizes[at - 1] for at in waiting) > max_bytes)
    ):
        dropped.append(waiting.pop(0))
    assert _gone(queue) == dropped
