"""Claims about the day of the demo: what is chosen, what a pause changes."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

pytest.importorskip("pandas", reason="needs package pandas", exc_type=ImportError)

from zbroker.clock import parse_time
from zbroker.demo import check, day
from zbroker.demo.flights import Flight
from zbroker.demo.story import Story
from zbroker.errors import ZBrokerError


def late_flights(every_flight: list[Flight]) -> list[Flight]:
    """The same choice, made from the messages."""
    since, until = parse_time(day.SINCE), parse_time(day.UNTIL)
    found = []
    for flight in every_flight:
        if since <= flight.time_ns < until:
            row = msgspec.json.decode(flight.data)
            late = row["arr_delay"] is not None and row["arr_delay"] > day.LATE_MIN
            found += [flight] * (row["carrier"] == day.CARRIER and late)
    return found


@pytest.fixture(scope="module")
def table() -> check.FlightTable:
    return check.read_table()


@pytest.fixture(scope="module")
def late(every_flight: list[Flight]) -> list[Flight]:
    return late_flights(every_flight)


class FakeSubscription:
    """Gives messages until it is paused, then `under_way` more, then the rest once resumed."""

    def __init__(self, messages: list[Any], under_way: int = 0) -> None:
        self._messages = list(messages)
        self._under_way = under_way
        self.asked: list[str] = []
        self.paused = False

    def __enter__(self) -> FakeSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.asked.append("close")

    def next(self, timeout: float) -> Any:
        if self.paused and self._under_way == 0:
            raise ZBrokerError("timeout", f"no message in {timeout} s")
        self._under_way -= self.paused
        return self._messages.pop(0) if self._messages else None

    def pause(self) -> None:
        self.paused = True
        self.asked.append("pause")

    def resume(self) -> None:
        self.paused = False
        self.asked.append("resume")


class FakeClient:
    def __init__(self, subscription: FakeSubscription) -> None:
        self.subscription = subscription
        self.options: dict[str, Any] = {}

    def subscribe(self, topic: str, **options: Any) -> FakeSubscription:
        self.options = options
        return self.subscription


def replayed(table: check.FlightTable, messages: list[Flight]) -> tuple[Story, FakeClient, str]:
    file = io.StringIO()
    story, client = Story(Console(file=file, width=200)), FakeClient(FakeSubscription(messages))
    day.replay(story, client, table)  # type: ignore[arg-type]
    return story, client, file.getvalue()


def test_pandas_chooses_what_the_messages_say(table: check.FlightTable, late: list[Flight]) -> None:
    chosen = table.late(day.CARRIER, day.LATE_MIN, parse_time(day.SINCE), parse_time(day.UNTIL))
    assert len(chosen) == 63
    assert check.compare(chosen, 0, late) == check.Comparison(63, "")


def test_it_is_paused_once_in_the_middle(table: check.FlightTable, late: list[Flight]) -> None:
    story, client, said = replayed(table, late)
    assert client.subscription.asked == ["pause", "resume", "close"]
    assert client.options["filter"] == "/carrier = 'UA' AND /arr_delay > 60"
    assert client.options["rate"] == "10000X"
    assert "63 of 63" in said
    assert "Paused after 31 of them for 0.5 s: nothing came." in said
    assert story.failures == []


def test_a_message_that_is_missing_is_a_failure(
    table: check.FlightTable, late: list[Flight]
) -> None:
    story, _, said = replayed(table, late[:-1])
    assert "62 of 63" in said
    assert "1 too early" in story.failures[0]


def test_what_was_under_way_is_taken_too() -> None:
    subscription = FakeSubscription(list(range(1, 10)), under_way=2)
    watched = day.PausedSubscription(subscription, 4)  # type: ignore[arg-type]
    assert list(watched) == list(range(1, 10))
    assert watched.under_way == 2
    assert subscription.asked == ["pause", "resume"]


def test_a_range_that_ends_in_the_pause_ends() -> None:
    subscription = FakeSubscription([1, 2], under_way=2)
    assert list(day.PausedSubscription(subscription, 1)) == [1, 2]  # type: ignore[arg-type]


def test_another_error_than_silence_is_raised() -> None:
    subscription = FakeSubscription([1, 2, 3])
    watched = iter(day.PausedSubscription(subscription, 1))  # type: ignore[arg-type]
    assert next(watched) == 1

    def fail(timeout: float) -> Any:
        raise ZBrokerError("gap", f"after {timeout} s")

    subscription.next = fail  # type: ignore[method-assign]
    with pytest.raises(ZBrokerError, match="gap"):
        next(watched)
