"""Resume points in a log with messages of several origins, and starts after one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.delivery.world import ANN, HERE, World
from zbroker.delivery.contract import FindPassed, PassedFound
from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.ids import Origin, Vector, parse_vector
from zbroker.wire.internal import Locate, Located
from zbroker.wire.messages import Flow, Options

B = Origin(0xB, 1)


def world(**located: Any) -> World:
    """Of this instance 1, 2 and 5, of another one 101, 102 and 103 at 3, 4 and 6."""
    made = World()
    for count, origin in (
        (2, (*HERE, 1)), (2, (*B, 101)), (1, (*HERE, 5)), (1, (*B, 103)),
    ):  # fmt: skip
        made.publish(*["t"] * count, publisher=origin[0], origin=origin)
    made.persist()
    made.welcome()
    made.logon()
    if located:
        made.locate = lambda ask: answer(made, ask, **located)  # type: ignore[method-assign]
    return made


def answer(made: World, ask: Locate, **located: Any) -> Located:
    end = [(*HERE, 5), (*B, 103)]
    return Located(
        ask.cid, log_start=1, persisted=made.persisted, at_end=end, **located
    )  # fmt: skip


def vectors(made: World) -> list[Vector]:
    return [
        parse_vector(each.vector) for _, each in made.answers
        if getattr(each, "sid", "") == "s" and getattr(each, "vector", None)
    ]  # fmt: skip


def positions(made: World) -> list[int]:
    return [seen.position for seen in made.seen.get((ANN, "s"), [])]


def test_each_resume_point_names_all_origins() -> None:
    one = world(position=1, passed=[], passed_at=1)
    one.subscribe(topic="none")
    assert vectors(one)[0] == {HERE: 0}
    assert vectors(one)[-1] == {HERE: 5, B: 103}


@pytest.mark.parametrize(
    ("flows", "last"), [(0, {HERE: 2}), (1, {HERE: 2, B: 102}), (2, {HERE: 5, B: 102})]
)
def test_in_the_middle_of_a_replay_it_names_what_was_passed(flows: int, last: Vector) -> None:
    one = world(position=1, passed=[], passed_at=1)
    one.subscribe(credit=1)
    for _ in range(flows):
        (state,) = one.core.subscriptions.values()
        one.send(Flow("s", 1 - state.credit))
    one.wake_until(3_000)
    assert vectors(one)[-1] == last


def test_the_answer_names_what_was_passed_before_it_began() -> None:
    one = world(position=7, passed=[(*HERE, 5), (*B, 103)], passed_at=7)
    one.subscribe(bookmark=None)
    assert vectors(one)[0] == {HERE: 5, B: 103}


def test_a_rare_topic_that_has_caught_up_has_passed_all() -> None:
    """Also what was skipped in the log without a look at it."""
    one = world(position=1, passed=[], passed_at=1)
    one.subscribe(topic="rare")
    assert vectors(one)[-1] == {HERE: 5, B: 103}


def test_what_was_seen_elsewhere_is_left_out() -> None:
    seen = [(*HERE, 1), (*B, 103)]
    one = world(position=2, passed=seen, passed_at=2, mixed=True)
    one.subscribe()
    assert positions(one) == [2, 5]
    assert vectors(one)[-1] == {HERE: 5, B: 103}


def test_a_part_of_a_batch_is_left_out() -> None:
    one = world(position=1, passed=[(*B, 101)], passed_at=1, mixed=True)
    one.subscribe()
    assert positions(one) == [1, 2, 4, 5, 6]


def test_what_was_seen_under_another_origin_is_left_out() -> None:
    """Publisher 0xB's first message of 3 and 4 was accepted elsewhere, too."""
    one = world(position=3, passed=[(*HERE, 2)], passed_at=3, mixed=True, tied=[(0xB, 1, 1)])
    one.subscribe()
    assert positions(one) == [4, 5, 6]


def test_a_conflating_one_leaves_out_the_same() -> None:
    seen = [(*HERE, 2), (*B, 103)]
    one = world(position=5, passed=seen, passed_at=5, mixed=True)
    one.subscribe(options=Options(conflation_s=1.0, conflation_clock="log"))
    one.wake_until(10_000)
    assert positions(one) == [5]


# -- a start in the middle of a segment ----------------------------------------------------------


def finding() -> tuple[World, FindPassed]:
    one = world(position=5, passed=[(*HERE, 2)], passed_at=3)
    one.subscribe()
    (find,) = [each for each in one.done if isinstance(each, FindPassed)]
    return one, find


def test_a_start_in_the_middle_waits_until_it_is_known_what_is_before() -> None:
    one, find = finding()
    assert (find.at, find.end, find.vector) == (3, 5, {HERE: 2})
    assert (positions(one), vectors(one)) == ([], [])
    one.hear(PassedFound(find, {HERE: 2, B: 102}))
    one.pump()
    assert positions(one) == [5, 6]
    assert vectors(one)[0] == {HERE: 2, B: 102}


def test_another_journal_is_asked_again_for_what_is_before() -> None:
    one, find = finding()
    one.incarnation += 1
    one.say_watermarks()
    one.welcome()
    again = [each for each in one.done if isinstance(each, FindPassed)][-1]
    assert again is not find
    one.hear(PassedFound(find, {HERE: 1}))
    assert vectors(one) == []
    one.hear(PassedFound(again, {HERE: 2, B: 102}))
    assert vectors(one)[0] == {HERE: 2, B: 102}


def test_a_log_that_cannot_be_read_ends_it() -> None:
    one, find = finding()
    one.hear(ReadFailed(find, StorageError("damaged", "EIO")))
    assert [each.code for _, each in one.answers if hasattr(each, "code")] == ["internal"]
    one.hear(PassedFound(find, {HERE: 2}))
    one.core.check()


def test_one_that_has_ended_is_not_answered() -> None:
    one, find = finding()
    one.core.gone(ANN)
    one.hear(PassedFound(find, {HERE: 2}))
    one.hear(ReadFailed(find, StorageError("damaged", "EIO")))
    assert vectors(one) == []
