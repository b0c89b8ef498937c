"""Claims about the order and the form of the messages of the demo."""

from __future__ import annotations

import msgspec

from zbroker.clock import parse_time
from zbroker.demo import flights
from zbroker.demo.flights import Flight, Row


def row(time_hour: str, sched_dep_time: int, flight: int = 1) -> Row:
    return {
        "time_hour": time_hour,
        "sched_dep_time": sched_dep_time,
        "carrier": "UA",
        "flight": flight,
    }


def test_the_whole_table_is_there(every_flight: list[Flight]) -> None:
    assert len(every_flight) == flights.ROWS


def test_flights_are_ordered_by_departure(every_flight: list[Flight]) -> None:
    times = [flight.time_ns for flight in every_flight]
    assert times == sorted(times)
    assert times[0] == parse_time("20130101T101500Z")


def test_a_message_has_every_column_of_the_table(every_flight: list[Flight]) -> None:
    first = msgspec.json.decode(every_flight[0].data)
    assert len(first) == 19
    assert (first["carrier"], first["flight"], first["arr_delay"]) == ("UA", 1545, 11)
    assert every_flight[0].topic == "flights.UA"


def test_what_is_missing_is_null(every_flight: list[Flight]) -> None:
    cancelled = sum(b'"arr_delay":null' in flight.data for flight in every_flight)
    assert cancelled == 9_430


def test_the_minute_comes_from_the_local_schedule() -> None:
    assert flights.departure_ns(row("2013-01-01T10:00:00Z", 517)) == parse_time("20130101T101700Z")


def test_flights_of_one_minute_stay_in_the_order_of_the_table() -> None:
    rows = [
        row("2013-01-01T10:00:00Z", 530, 1),
        row("2013-01-01T10:00:00Z", 515, 2),
        row("2013-01-01T10:00:00Z", 530, 3),
    ]
    ordered = [
        msgspec.json.decode(flight.data)["flight"] for flight in flights.in_order(iter(rows))
    ]
    assert ordered == [2, 1, 3]


def test_a_sample_is_spread_over_everything() -> None:
    assert flights.sample(10, 3) == [0, 3, 6]
    assert flights.sample(10, None) == list(range(10))
    assert flights.sample(2, 5) == [0, 1]
