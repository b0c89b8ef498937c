"""How far the program of a subscription came (zbroker/delivery/subscription.py)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zbroker.delivery.subscription import STEPS_MAX, Trail


def test_what_was_sent_is_handled_when_its_credit_came_back() -> None:
    trail = Trail()
    trail.begin(5)
    assert trail.handled(5) == 5
    for turn in range(1, 4):
        trail.spent += 10
        trail.mark(turn, 5 + turn)
    assert (trail.handled(8), trail.in_hand(3)) == (5, 3)
    trail.give_back(19)
    assert (trail.handled(8), trail.in_hand(3)) == (6, 2)
    trail.give_back(11)
    assert (trail.handled(40), trail.in_hand(3)) == (40, 0), "what it stepped over is behind it"


def test_more_credit_than_was_used_is_no_promise_for_later() -> None:
    trail = Trail()
    trail.begin(1)
    trail.give_back(1_000)
    trail.spent += 10
    trail.mark(1, 2)
    assert trail.in_hand(1) == 1


def test_a_log_that_ends_before_what_was_handled_says_so() -> None:
    trail = Trail()
    trail.begin(10)
    trail.spent += 1
    trail.mark(1, 20)
    assert trail.handled(7) == 7


@given(st.lists(st.tuples(st.sampled_from(["sent", "back"]), st.integers(1, 50)), max_size=400))
def test_it_never_says_more_than_was_handled_and_remembers_little(
    steps: list[tuple[str, int]],
) -> None:
    trail, sent, returned = Trail(), [], 0
    trail.begin(1)
    for what, size in steps:
        if what == "sent":
            sent.append((sum(one for one, _ in sent) + size, 1 + len(sent) + 1))
            sent[-1] = (size, sent[-1][1])
            trail.spent += size
            trail.mark(len(sent), len(sent) + 1)
        else:
            size = min(size, sum(one for one, _ in sent) - returned)
            returned += size
            trail.give_back(size)
        left, done = returned, 0
        for one, _ in sent:
            left -= one
            if left < 0:
                break
            done += 1
        assert trail.handled(len(sent) + 1) <= done + 1
        assert trail.in_hand(len(sent)) >= len(sent) - done
        assert len(trail._steps) <= STEPS_MAX
    trail.give_back(1 << 60)
    assert trail.handled(len(sent) + 1) == len(sent) + 1
