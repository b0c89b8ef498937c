"""Origins in the state snapshots of a log, as a link reads them."""

from __future__ import annotations

from typing import Any

from msgspec import msgpack

from zbroker.ids import Origin
from zbroker.replication.snapshot_rows import SnapshotRows, first_part, head

ROWS = [[1, 5, 7, 6, -1], [2, 6, 12, 9, -1, 0, 0, 77, 9]]


def part(number: int, *, through: int = 4, last: bool = False, rows: Any = None) -> bytes:
    folds = {"origins": rows} if rows is not None else {}
    return msgpack.encode(
        {"v": 1, "through": through, "part": number, "last": last, "folds": folds}
    )


def test_a_first_part_has_positions_and_content_checksums() -> None:
    found = first_part(part(0, rows=ROWS))
    assert found == {Origin(1, 5): (7, -1), Origin(2, 6): (9, 77)}


def test_other_parts_and_damaged_ones_have_none() -> None:
    assert first_part(part(1)) is None
    assert first_part(b"no map") is None
    assert first_part(part(0, rows=[[1]])) is None


def test_a_snapshot_counts_once_all_of_its_parts_were_read() -> None:
    found = SnapshotRows()
    assert not found.add(part(0, rows=ROWS))
    assert found.complete is None
    assert found.add(part(1, last=True))
    assert found.complete is not None


def test_a_snapshot_with_a_missing_part_is_never_complete() -> None:
    found = SnapshotRows()
    found.add(part(0, rows=ROWS))
    assert not found.add(part(2, last=True))
    assert not found.add(part(1, through=5, last=True))
    assert found.complete is None


def test_closed_generations_count_up_to_their_ends() -> None:
    """A destination that lacks one of them has to be sent it."""
    folds = {"origins": ROWS, "closed": [[1, 4, 3, 5, 7, 3, 3, 3, 3, 3]]}
    found = first_part(msgpack.encode({"v": 1, "through": 4, "part": 0, "folds": folds}))
    assert found == {Origin(1, 4): (3, -1), Origin(1, 5): (7, -1), Origin(2, 6): (9, 77)}


def test_the_head_of_a_log_says_up_to_where_control_records_are_before_it() -> None:
    """A closed generation without messages had some, too."""
    folds = {"origins": ROWS, "closed": [[1, 4, 2, 5, 7, 2, 0, 0, 0, 0]]}
    said = head(msgpack.encode({"v": 1, "through": 9, "part": 0, "folds": folds}), 4)
    assert said is not None
    assert said.records == {Origin(1, 4): 2, Origin(1, 5): 7, Origin(2, 6): 9}
    assert said.messages == {Origin(1, 5): 6, Origin(2, 6): 9}
    assert not said.is_taken
    taken = {"v": 1, "through": 1, "part": 0, "folds": {"origins": ROWS, "taken": []}}
    of_another = head(msgpack.encode(taken), 1)
    assert of_another is not None
    assert of_another.is_taken
