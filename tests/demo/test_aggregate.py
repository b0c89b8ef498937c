"""Claims about counting per carrier."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark", exc_type=ImportError)

from zbroker.demo import aggregate
from zbroker.demo.check import CarrierTally

BODIES = [
    b'{"carrier":"UA","arr_delay":11}',
    b'{"carrier":"UA","arr_delay":null}',
    b'{"carrier":"AA","arr_delay":-3}',
]


def test_a_missing_delay_is_counted_but_not_summed() -> None:
    assert aggregate.tally_of(BODIES) == {"UA": CarrierTally(2, 11), "AA": CarrierTally(1, -3)}


def test_tallies_of_partitions_add_up() -> None:
    more = {"UA": CarrierTally(1, 1), "DL": CarrierTally(5, 0)}
    total = aggregate.merged([aggregate.tally_of(BODIES), more])
    assert total == {"UA": CarrierTally(3, 12), "AA": CarrierTally(1, -3), "DL": CarrierTally(5, 0)}
