"""zbroker/client/queue_rows.py: messages of a queue are listed, part by part."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.test_queue_commands import LOST, FakeBroker, refusal
from zbroker.client import questions
from zbroker.client.queue_rows import BrowsedMessage, browse, browse_options
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import BrowsedRow, Rows


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PAUSE_S", 0)


def rows(*positions: int, following: int | None = None) -> Rows:
    found = [BrowsedRow(at, f"b{at}", "t", 7, 3, "ready", 1, 0) for at in positions]
    return Rows(found, next=following)


def shown(at: Any, **given: Any) -> list[int]:
    return [row.position for row in browse(at, browse_options("q", **given))]


def test_a_row_says_what_became_of_a_message() -> None:
    [row] = browse(FakeBroker(rows(4)), browse_options("q"))  # type: ignore[arg-type]
    assert row == BrowsedMessage(4, "b4", "t", 7, 3, "ready", 1, 0, "", None)


def test_parts_are_asked_for_until_there_are_enough() -> None:
    at = FakeBroker(rows(1, 2, following=2), rows(following=9), rows(11, following=11))
    assert shown(at, limit=3) == [1, 2, 11]


def test_the_last_part_has_no_next_one() -> None:
    assert shown(FakeBroker(rows(1, following=1), rows(2)), limit=9) == [1, 2]


def test_after_a_lost_connection_it_begins_again() -> None:
    at = FakeBroker(rows(1, following=1), LOST, refusal("not_ready"), rows(1, following=1), rows(5))
    assert shown(at, limit=9) == [1, 5]


@pytest.mark.parametrize("given", [{"limit": 0}, {"after": -1}, {"after": "x"}])
def test_what_is_no_place_is_a_bad_field(given: Any) -> None:
    with pytest.raises(ZBrokerError, match="bad_field"):
        browse_options("q", **given)
