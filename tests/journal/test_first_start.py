"""When an empty log is open to publishers: who is asked, what comes first."""

from __future__ import annotations

import pytest

from zbroker.ids import Origin
from zbroker.journal.first_start import WAIT_MS, FirstPhase, FirstStart

B, C = Origin(2, 1), Origin(3, 1)


def high(**held: int) -> object:
    at = {B: held.get("b", 0), C: held.get("c", 0)}
    return lambda origin: at[origin]


def asking(*, empty: bool = True) -> FirstStart:
    return FirstStart(["b", "c"], opened=False, empty=empty)


def tick(start: FirstStart, now_ms: int = 0, **held: int) -> FirstPhase:
    start.tick(now_ms, high(**held))  # type: ignore[arg-type]
    return start.phase


def test_a_log_without_peers_or_that_was_open_asks_nobody() -> None:
    assert FirstStart([], opened=False, empty=True).is_open
    assert FirstStart(["b"], opened=True, empty=True).is_open


def test_it_opens_fresh_when_all_answered_and_none_holds_anything() -> None:
    start = asking()
    start.heard("b", {B: 0})
    assert tick(start, 10 * WAIT_MS) is FirstPhase.ASKING
    assert "c did not answer" in start.text(lambda _: 0)
    start.heard("c", {})
    assert tick(start) is FirstPhase.OPEN
    assert start.fresh


def test_it_waits_for_peers_that_did_not_answer_or_hold_something() -> None:
    start = asking()
    assert start.awaits == ["b", "c"]
    start.heard("b", {})
    assert start.awaits == ["c"]
    start.heard("c", {C: 7})
    assert start.awaits == ["c"], "none opens as a new log by the word of this one"
    tick(start)
    assert start.awaits is None


def test_a_log_that_has_something_is_none_of_the_new_ones() -> None:
    assert asking(empty=False).awaits is None


def test_one_that_holds_something_is_enough_after_a_while() -> None:
    start = asking()
    start.heard("b", {B: 7})
    assert tick(start, 0) is FirstPhase.ASKING
    assert tick(start, WAIT_MS - 1) is FirstPhase.ASKING
    assert tick(start, WAIT_MS) is FirstPhase.FILLING
    assert not start.places


def test_after_the_state_it_follows_until_it_has_what_all_held() -> None:
    start = asking()
    start.heard("b", {B: 7})
    start.heard("c", {B: 5, C: 3})
    assert tick(start) is FirstPhase.FILLING
    assert start.follow()
    assert start.places
    assert tick(start, b=7, c=2) is FirstPhase.FOLLOWING
    assert "1 positions are missing" in start.text(lambda o: {B: 7, C: 2}[o])
    assert tick(start, b=7, c=3) is FirstPhase.OPEN
    assert not start.fresh


@pytest.mark.parametrize(("says", "wanted"), [(900, 7), (4, 4)])
def test_what_a_peer_takes_meanwhile_is_not_waited_for(says: int, wanted: int) -> None:
    """But one that was set back is waited for as it is now."""
    start = asking()
    start.heard("b", {B: 7})
    start.heard("c", {})
    tick(start)
    start.follow()
    start.heard("b", {B: says})
    assert tick(start, b=wanted - 1) is FirstPhase.FOLLOWING
    assert tick(start, b=wanted) is FirstPhase.OPEN


def test_a_start_in_the_middle_takes_no_state_and_follows() -> None:
    start = asking(empty=False)
    assert start.places
    assert not start.takes_state
    start.heard("b", {B: 7})
    start.heard("c", {})
    assert tick(start, b=2) is FirstPhase.FOLLOWING


def test_a_person_opens_it() -> None:
    start = asking()
    assert start.begin_fresh()
    assert start.is_open
    assert not start.takes_state
    assert not start.begin_fresh()


def test_a_peer_that_fills_itself_has_not_answered() -> None:
    """It lost its disk, too, and what it holds by now is less than what belongs there."""
    start = asking()
    start.heard("c", {})
    start.heard("b", {}, filling=True)
    assert tick(start, 10 * WAIT_MS) is FirstPhase.ASKING
    assert "b is getting what other instances hold" in start.text(lambda _: 0)
    start.heard("b", {B: 2}, filling=True)
    assert tick(start, 20 * WAIT_MS) is FirstPhase.ASKING
    start.heard("b", {B: 7})
    assert tick(start) is FirstPhase.FILLING
    assert start.wanted == {B: 7}


def test_a_peer_that_lost_its_disk_meanwhile_is_not_waited_for() -> None:
    start = asking()
    start.heard("b", {B: 7})
    start.heard("c", {C: 1})
    tick(start)
    start.follow()
    assert tick(start, c=1) is FirstPhase.FOLLOWING
    start.heard("b", {}, filling=True)
    assert tick(start, c=1) is FirstPhase.OPEN


def test_if_what_was_to_be_filled_in_is_nowhere_any_more_it_asks_again() -> None:
    """Else two instances that lost their disks would wait for each other."""
    start = asking()
    start.heard("b", {B: 7})
    start.heard("c", {})
    assert tick(start) is FirstPhase.FILLING
    assert start.fills
    start.heard("b", {})
    assert tick(start) is FirstPhase.OPEN
    assert start.fresh
    assert not start.fills
