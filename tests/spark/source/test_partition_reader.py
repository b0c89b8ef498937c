"""Claims about a task: a range that was pruned since the plan fails, or is skipped when told so."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs package pyarrow")

from tests.spark.logs import JournalMaker
from zbroker.errors import ZBrokerError
from zbroker.spark import LogRange, plan_ranges
from zbroker.spark.arrow import schema_of
from zbroker.spark.source.options import parse
from zbroker.spark.source.partition_reader import read


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    while journal.serial < 3:
        journal.batch(["a"] * 50, size=1_000)
    return journal


def positions(maker: JournalMaker, part: LogRange | None, **options: str) -> list[int]:
    given = parse({"journal": str(maker.directory), **options})
    batches = read(part, schema_of(["position"]), given)
    return [position for batch in batches for position in batch.column(0).to_pylist()]


def test_a_plan_without_ranges_reads_nothing(maker: JournalMaker) -> None:
    assert positions(maker, None) == []


def test_a_pruned_range_fails_when_it_is_read(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    (maker.directory / "0000000001.journal").unlink()
    with pytest.raises(ZBrokerError) as caught:
        positions(maker, part)
    assert caught.value.code == "bookmark_expired"


def test_an_accepted_loss_is_skipped_when_it_is_read(maker: JournalMaker) -> None:
    part, last = plan_ranges(maker.directory, min_partitions=1)[0], maker.messages[-1].position
    (maker.directory / "0000000001.journal").unlink()
    found = positions(maker, part, failOnDataLoss="false")
    assert found == list(range(found[0], last + 1))
    assert found[0] > 50


def test_a_range_that_was_pruned_whole_is_empty_then(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=20)[0]
    (maker.directory / "0000000001.journal").unlink()
    assert positions(maker, part, failOnDataLoss="false") == []


def test_damage_is_no_accepted_loss(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    segment = maker.directory / "0000000001.journal"
    data = bytearray(segment.read_bytes())
    data[data.index(b"77:....")] ^= 1
    segment.write_bytes(data)
    with pytest.raises(ZBrokerError) as caught:
        positions(maker, part, failOnDataLoss="false")
    assert caught.value.code == "gap"
