"""The judge of the rounds of a queue finds each kind of violation, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.queue_judge import Done, Given, Written, judge, read

BOTH = {"m": ["a", "b"]}
ONE = {"m": ["a"]}


def wrong(*lines: Given | Done, accepted: dict[str, list[str]] = ONE) -> list[str]:
    written = Written(
        [line for line in lines if isinstance(line, Given)],
        [line for line in lines if isinstance(line, Done)],
    )
    return judge(["m"], accepted, written).wrong


def test_a_message_that_never_came_is_lost() -> None:
    assert wrong() == ["m was acknowledged and never delivered"]


def test_a_message_of_no_log_is_named() -> None:
    [text] = wrong(Given("m", "a", 0, 1), Given("x", "a", 0, 1))
    assert text == "x was delivered and is in no log"


@pytest.mark.parametrize("second", ["a", "b"])
def test_a_second_delivery_without_a_flag_is_wrong(second: str) -> None:
    assert wrong(Given("m", "a", 0, 1), Given("m", second, 0, 1))
    assert not wrong(Given("m", "a", 0, 1), Given("m", second, 0, 2))


def test_each_instance_that_accepted_it_may_deliver_it_unflagged_once() -> None:
    first, second = Given("m", "a", 0, 1), Given("m", "b", 0, 1)
    assert not wrong(first, second, accepted=BOTH)
    assert wrong(first, first, accepted=BOTH)
    assert wrong(first, second, Given("m", "c", 0, 1), accepted=BOTH)


def test_what_an_instance_answered_as_done_it_sends_no_more() -> None:
    first = Given("m", "a", 5, 1)
    assert not wrong(first, Done("m", "a", 9), Given("m", "a", 9, 2)), "it may have been under way"
    assert wrong(first, Done("m", "a", 9), Given("m", "a", 10, 2))
    assert wrong(first, Done("m", "a", 12), Done("m", "a", 9), Given("m", "a", 10, 2))
    assert not wrong(first, Done("m", "b", 9), Given("m", "a", 10, 2)), "another one answered"


def test_what_is_allowed_is_counted() -> None:
    lines = [Given("m", "a", 0, 1), Given("m", "b", 0, 1), Given("m", "a", 0, 2)]
    verdict = judge(["m"], BOTH, Written(lines, [Done("m", "c", 9, 1), Done("m", "c", 9)]))
    assert (verdict.again, verdict.by_two, verdict.carried, verdict.wrong) == (2, 1, 1, [])


def test_the_line_that_a_kill_cut_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("given p:1 a 7 2\ndone p:1 a 9 1\ngiven p:2 a")
    assert read([tmp_path / "w"]) == Written([Given("p:1", "a", 7, 2)], [Done("p:1", "a", 9, 1)])
