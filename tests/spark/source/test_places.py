"""zbroker/spark/source/places.py: where an offset of an older generation leads now."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs package pyarrow")

from tests.spark.logs import JournalMaker
from zbroker.client import connect
from zbroker.ids import Origin
from zbroker.local import LocalBroker
from zbroker.log.disk import RealDisk
from zbroker.log.generations import CopyMark, write_mark
from zbroker.spark.source.offsets import Offset
from zbroker.spark.source.options import parse
from zbroker.spark.source.places import SourceLog


def mark(journal: Path, origin: Origin) -> None:
    """Says that the log is a copy: it begins a new generation."""
    disk = RealDisk(journal)
    write_mark(disk, CopyMark(*origin))
    disk.close()


def publish(url: str, count: int) -> None:
    with connect(url) as client:
        for number in range(count):
            client.publish("a", b"%d" % number)
        client.flush(30)


def answers(place: SourceLog, old: Origin, end: int) -> list[int | None]:
    state = place.state()
    assert state.origin != old
    offsets = [Offset(old, position) for position in (1, end - 1, end, end + 1, end + 100)]
    offsets += [Offset(old._replace(generation=old.generation + 1), end)]
    offsets += [Offset(old._replace(instance=old.instance + 1), end)]
    return [place.kept(offset, state) for offset in offsets]


def test_in_a_directory_an_old_generation_leads_at_most_to_its_end(
    journal: JournalMaker,
) -> None:
    journal.batch(["a"] * 40)
    journal.close()
    place = SourceLog(parse({"journal": str(journal.directory)}))
    old = place.state()
    mark(journal.directory, old.origin)
    after = JournalMaker(journal.directory, sequence=41)
    after.batch(["a"] * 20)
    after.close()
    assert answers(place, old.origin, old.head) == [
        1, old.head - 1, old.head, old.head, old.head, None, None,
    ]  # fmt: skip


@pytest.mark.process
def test_at_an_instance_an_old_generation_leads_at_most_to_its_end(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalBroker(data) as broker:
        publish(broker.url, 40)
        old = SourceLog(parse({"endpoint": broker.url})).state()
    mark(data / "journal", old.origin)
    with LocalBroker(data) as broker:
        publish(broker.url, 20)
        place = SourceLog(parse({"endpoint": broker.url}))
        try:
            found = answers(place, old.origin, old.head)
        finally:
            place.close()
    ended = found[4]
    assert ended is not None
    assert old.head <= ended < old.head + 100
    asked = (1, old.head - 1, old.head, old.head + 1)
    assert found == [*(min(at, ended) for at in asked), ended, None, None]
