"""Claims about the comparison: it finds every kind of difference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

pytest.importorskip("pandas", reason="needs package pandas", exc_type=ImportError)

from zbroker.demo import check
from zbroker.demo.check import CarrierTally, FlightTable
from zbroker.demo.flights import Flight

WANTED = 500


@dataclass(frozen=True)
class Reported:
    topic: str
    data: bytes
    time_ns: int


@pytest.fixture(scope="module")
def table(every_flight: list[Flight]) -> FlightTable:
    return check.read_table(WANTED)


@pytest.fixture
def reported(every_flight: list[Flight]) -> list[Reported]:
    picked = [every_flight[index * len(every_flight) // WANTED] for index in range(WANTED)]
    return [Reported(flight.topic, flight.data, flight.time_ns) for flight in picked]


def test_what_was_published_equals_the_table(table: FlightTable, reported: list[Reported]) -> None:
    assert check.compare(table, 0, reported) == check.Comparison(WANTED, "")


def test_the_whole_table_is_published_in_order(every_flight: list[Flight]) -> None:
    messages = (Reported(flight.topic, flight.data, flight.time_ns) for flight in every_flight)
    assert check.compare(check.read_table(), 0, messages) == check.Comparison(len(every_flight), "")


def test_a_replay_from_the_middle_is_compared_from_there(
    table: FlightTable, reported: list[Reported]
) -> None:
    assert check.compare(table, 123, reported[123:]) == check.Comparison(WANTED - 123, "")
    assert check.compare(table, 123, reported[124:]).difference


def test_a_replay_that_ends_early_is_a_difference(
    table: FlightTable, reported: list[Reported]
) -> None:
    assert "1 too early" in check.compare(table, 0, reported[:-1]).difference


def test_a_replay_that_goes_on_is_a_difference(
    table: FlightTable, reported: list[Reported]
) -> None:
    assert "goes on" in check.compare(table, 0, [*reported, reported[0]]).difference


def test_a_changed_value_is_a_difference(table: FlightTable, reported: list[Reported]) -> None:
    reported[7] = replace(
        reported[7], data=reported[7].data.replace(b'"year":2013', b'"year":2014')
    )
    found = check.compare(table, 0, reported)
    assert found.rows == 7
    assert "row 7" in found.difference


def test_a_wrong_topic_is_a_difference(table: FlightTable, reported: list[Reported]) -> None:
    reported[7] = replace(reported[7], topic="flights.XX")
    assert "row 7" in check.compare(table, 0, reported).difference


def test_a_wrong_log_time_is_a_difference(table: FlightTable, reported: list[Reported]) -> None:
    reported[7] = replace(reported[7], time_ns=reported[7].time_ns + 1)
    assert "log time" in check.compare(table, 0, reported).difference


def test_the_tallies_are_those_of_the_table(every_flight: list[Flight]) -> None:
    tallies = check.read_table().tallies()
    assert len(tallies) == 16
    assert tallies["UA"] == CarrierTally(58_665, 205_589)
    assert sum(tally.arr_delay for tally in tallies.values()) == 2_257_174


def test_a_time_finds_the_first_flight_at_or_after_it(table: FlightTable) -> None:
    at = table.departure_ns[100]
    first = table.departure_ns.index(at)
    assert table.first_at(at) == first
    assert table.first_at(at + 1) > first
