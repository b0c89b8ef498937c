"""zbroker/queues/delivered.py: what is known of deliveries after a kill, and when it is not."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

import pytest
from pyroaring import BitMap64

from zbroker import memory_notes
from zbroker.errors import StorageError
from zbroker.ids import Origin
from zbroker.queues import delivered
from zbroker.queues.context import RemoteConsumer
from zbroker.queues.delivered import Delivered
from zbroker.queues.effects import Give, TrackDeliveries

HERE = Origin(0xABC, 3)


class Places(NamedTuple):
    id_file: Path
    memory: Path

    def note(self) -> Path:
        [found] = self.memory.iterdir()
        return found


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "shm").mkdir()
    return Places(tmp_path / "queues" / "sent.id", tmp_path / "shm")


def _started(places: Places, origin: Origin = HERE) -> Delivered:
    made = Delivered(places.id_file, places.memory)
    assert made.open(origin) == ""
    return made


def _give(queue: str, declaration: int, position: int) -> Give:
    """Some messages of a queue; the last one is at this position."""
    to = RemoteConsumer(1, b"\0ann1", "c", "ann", queue, 0)
    return Give(to, BitMap64([1, position]), declaration=declaration)


def _killed(places: Places) -> None:
    """A process that sent up to 41 of one queue, and nothing of another."""
    made = _started(places)
    made.begin(TrackDeliveries("work", 1, 0))
    made.begin(TrackDeliveries("work", 2, 7))
    made.sending(_give("work", 1, 41))
    made.sending(_give("work", 1, 12))
    made.sending(_give("other", 1, 5))  # it has no slot


def test_the_next_process_knows_how_far_each_queue_was_sent(places: Places) -> None:
    _killed(places)
    after = _started(places)
    found = [after.before(*key) for key in (("work", 1), ("work", 2), ("other", 1), ("work", 3))]
    assert found == [42, 7, None, None]


def test_a_note_counts_once(places: Places) -> None:
    """The next process may send more, and may be killed before it has written a word."""
    _killed(places)
    _started(places).close()
    assert _started(places).before("work", 1) is None


def _reboot(places: Places) -> None:
    places.note().unlink()


def _lose_the_id(places: Places) -> None:
    places.id_file.unlink()


def _another_note(places: Places) -> None:
    """A process in between wrote its note elsewhere, as in another container."""
    old = places.note().read_bytes()
    _started(places)
    places.note().write_bytes(old)


def _cut(places: Places) -> None:
    os.truncate(places.note(), 30)


def _garbage(places: Places) -> None:
    places.note().write_bytes(b"\xff" * 4_096)


@pytest.mark.parametrize("what", [_reboot, _lose_the_id, _another_note, _cut, _garbage])
def test_a_note_that_is_missing_foreign_or_older_counts_for_nothing(places: Places, what) -> None:
    _killed(places)
    what(places)
    assert _started(places).before("work", 1) is None


def test_a_note_of_another_log_counts_for_nothing(places: Places) -> None:
    _killed(places)
    assert _started(places, HERE._replace(generation=4)).before("work", 1) is None


def test_a_link_that_somebody_put_there_is_not_followed(places: Places, tmp_path: Path) -> None:
    _killed(places)
    kept = tmp_path / "kept"
    places.note().rename(kept)
    (places.memory / f"zbroker-{os.getuid()}-{HERE.instance:016x}-sent").symlink_to(kept)
    assert _started(places).before("work", 1) is None
    assert kept.exists()


def test_without_such_memory_nothing_is_noted(places: Places, tmp_path: Path) -> None:
    made = Delivered(places.id_file, tmp_path / "missing")
    assert "missing" in made.open(HERE)
    made.begin(TrackDeliveries("work", 1, 0))
    made.sending(_give("work", 1, 5))
    made.close()
    assert _started(places).before("work", 1) is None


def test_more_queues_than_slots_are_not_noted(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivered, "_BYTES", 64 + 16)
    made = _started(places)
    made.begin(TrackDeliveries("a", 1, 3))
    made.begin(TrackDeliveries("b", 1, 3))
    made.sending(_give("b", 1, 9))
    after = _started(places)
    assert (after.before("a", 1), after.before("b", 1)) == (3, None)


def test_the_note_grows_with_the_queues_while_there_is_memory(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _started(places)
    for number in range(1_000):
        made.begin(TrackDeliveries("work", number, 3))

    def full(_note: memory_notes.MemoryNote, _end: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(memory_notes.MemoryNote, "take", full)
    for number in range(1_000, 2_000):
        made.begin(TrackDeliveries("work", number, 3))
    made.sending(_give("work", 999, 9))
    made.sending(_give("work", 1_999, 9))
    monkeypatch.undo()
    after = _started(places)
    known = [number for number in range(2_000) if after.before("work", number) is not None]
    assert 1_000 <= len(known) < 2_000
    assert known == [*range(len(known))]
    assert after.before("work", 999) == 10


def test_an_older_note_that_cannot_be_taken_away_stops_the_start(places: Places) -> None:
    _killed(places)
    name = places.note().name
    places.note().unlink()
    (places.memory / name).mkdir()
    with pytest.raises(StorageError, match="cannot be removed"):
        _started(places)
