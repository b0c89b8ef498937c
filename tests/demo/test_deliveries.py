"""Claims about what workers of the demo wrote down: it fails for each thing that may be wrong."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from zbroker.demo import deliveries
from zbroker.demo.deliveries import DeliveryVerdict, DoneFlight, FlightDelivery, judge

LATE, EARLY = DoneFlight("UA", 11), DoneFlight("AA", -3)
PUBLISHED = {"1": LATE, "2": EARLY}
FIRST, SECOND = FlightDelivery("1", False, LATE), FlightDelivery("2", False, EARLY)


def test_each_once_is_right() -> None:
    assert judge(PUBLISHED, [SECOND, FIRST]) == DeliveryVerdict(0, 0, 0, 0)


def test_what_came_again_with_a_flag_is_counted() -> None:
    again = [FIRST, SECOND, FIRST._replace(redelivered=True), FIRST._replace(redelivered=True)]
    assert judge(PUBLISHED, again) == DeliveryVerdict(lost=0, other=0, again=1, unflagged=0)


def test_only_the_first_one_may_have_no_flag_in_whatever_order_they_are_read() -> None:
    again = [FIRST._replace(redelivered=True), SECOND, FIRST]
    assert judge(PUBLISHED, again).unflagged == 0
    assert judge(PUBLISHED, [FIRST, SECOND, FIRST]).unflagged == 1


@pytest.mark.parametrize(
    ("done", "verdict"),
    [
        ([FIRST], DeliveryVerdict(1, 0, 0, 0)),
        ([FIRST, SECOND._replace(done=LATE)], DeliveryVerdict(0, 1, 0, 0)),
        ([FIRST, SECOND, SECOND._replace(bookmark="3")], DeliveryVerdict(0, 1, 0, 0)),
    ],
)
def test_what_is_missing_or_other_is_counted(
    done: list[FlightDelivery], verdict: DeliveryVerdict
) -> None:
    assert judge(PUBLISHED, done) == verdict


def test_all_files_count_also_one_without_a_batch(tmp_path: Path) -> None:
    for place, rows in (("a/worker-1", [("1", 0, "UA", 11)]), ("a/worker-2", []),
                        ("b/worker-1", [("1", 1, "UA", 11), ("2", 0, "AA", None)])):  # fmt: skip
        file = tmp_path / f"{place}.sqlite"
        file.parent.mkdir(exist_ok=True)
        with closing(sqlite3.connect(file)) as own, own:
            if rows:
                own.execute(deliveries.TABLE)
                own.executemany(deliveries.INSERT, rows)
    found = deliveries.read(tmp_path)
    assert found == [
        FIRST, FIRST._replace(redelivered=True), FlightDelivery("2", False, DoneFlight("AA", 0)),
    ]  # fmt: skip
    assert deliveries.each_once(found) == {"1": LATE, "2": DoneFlight("AA", 0)}
