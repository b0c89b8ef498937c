"""What becomes of entries: positions, names, runs that fill holes."""

from __future__ import annotations

from array import array

import pytest

from zbroker.ids import publisher_id
from zbroker.journal.group_builder import CONFLICTS_MAX_BYTES, GroupBuilder, JournalSettings, LogEnd
from zbroker.journal.holes import Hole
from zbroker.journal.sessions import PublisherRow, Sessions
from zbroker.log.format import FLAG_LATE, KIND_POINT, KIND_PUBLISH, KIND_PUBLISHER, Batch
from zbroker.wire import internal as m
from zbroker.wire.messages import Columns

P = publisher_id("p")
HERE, WALL = 9, 1_000


@pytest.fixture(params=[False, True], ids=["append", "publisher"])
def placing(request: pytest.FixtureRequest) -> GroupBuilder:
    """Publisher "p" has 1 to 3 and 7 to 9 in the log; session 5 is open; next is position 20."""
    sessions = Sessions(HERE)
    row = PublisherRow(P, "p", "", 9, 19, 5, 5, 5, HERE, holes=[Hole(4, 6, 6)])
    sessions.fold_row(row)
    made = GroupBuilder(
        JournalSettings(HERE, 77, publisher_time=request.param), sessions, LogEnd(1, 20, 0)
    )
    made.begin(WALL)
    return made


def entry(seq: int, count: int, prev: int | None = None, times: list[int] | None = None) -> m.Entry:
    columns = Columns(time=array("q", times).tobytes()) if times else None
    return m.Entry(P, 5, seq, count, prev, 7, None, ["t"], None, columns)


def shape(batches: list[Batch]) -> list[tuple[int, int, int, int, int, bool]]:
    """Position, sequence, skip, cut, prev, late."""
    return [
        (b.position, b.sequence, b.skip, b.cut, b.prev, bool(b.flags & FLAG_LATE)) for b in batches
    ]


def test_an_entry_that_follows_on_is_one_batch(placing: GroupBuilder) -> None:
    item = placing.place(1, entry(9, 3, prev=8), b"body")
    assert shape(placing.batches) == [(20, 10, 1, 0, 9, False)]
    assert item == m.ReceiptItem(1, 21, 11, 1)


def test_an_entry_over_a_hole_becomes_runs_over_one_body(placing: GroupBuilder) -> None:
    item = placing.place(1, entry(5, 7, prev=4), b"body")
    assert shape(placing.batches) == [(20, 5, 0, 5, 4, True), (22, 10, 5, 0, 9, False)]
    assert [b.origin_position for b in placing.batches] == [20, 22]
    assert all(b.body == b"body" and b.count == 7 for b in placing.batches)
    assert item == m.ReceiptItem(1, 23, 11, 3)
    assert (placing.messages, placing.duplicates, placing.late) == (4, 3, 2)
    known = placing.sessions.get(P)
    assert known is not None
    assert (known.holes, known.high, known.high_position) == ([Hole(4, 4, 4)], 11, 23)


def test_an_idempotent_publish_finds_the_same_entry_a_duplicate(placing: GroupBuilder) -> None:
    placing.place(1, entry(4, 3), b"body")
    item = placing.place(2, entry(4, 3), b"body")
    assert (item, len(placing.batches)) == (m.ReceiptItem(2, 22, 6, 3), 1)


def test_runs_have_the_times_of_their_own_messages(placing: GroupBuilder) -> None:
    placing.place(1, entry(5, 7, times=[10, 20, 30, 40, 50, 60, 70]), b"body")
    times = [b.log_time for b in placing.batches]
    assert times == ([20, 70] if placing.settings.publisher_time else [WALL, WALL])


def test_keys_headers_and_expiry_are_stored_as_they_came(placing: GroupBuilder) -> None:
    one = entry(9, 3, prev=8)
    times = array("q", [10, 20, 30]).tobytes()
    one.columns = Columns(None, times, None, b"keys", b"headers", b"expiry")
    placing.place(1, one, b"body")
    columns = placing.batches[0].columns
    assert columns is not None
    assert (columns.keys, columns.headers, columns.expiry) == (b"keys", b"headers", b"expiry")
    assert (columns.time is not None) == placing.settings.publisher_time


def test_a_name_is_written_once_before_its_first_batch(placing: GroupBuilder) -> None:
    known = placing.sessions.get(P)
    assert known is not None
    known.named = False
    placing.place(1, entry(4, 1), b"body")
    placing.place(2, entry(5, 1), b"body")
    assert [b.kind for b in placing.batches] == [KIND_PUBLISHER, KIND_PUBLISH, KIND_PUBLISH]


def test_what_has_no_name_yet_gets_none_written(placing: GroupBuilder) -> None:
    known = placing.sessions.get(P)
    assert known is not None
    known.name, known.named = "", False
    placing.place(1, entry(4, 1), b"body")
    assert [b.kind for b in placing.batches] == [KIND_PUBLISH]


def test_a_control_record_takes_one_position(placing: GroupBuilder) -> None:
    placing.control(KIND_POINT, b"map")
    [batch] = placing.batches
    assert (batch.position, batch.count, batch.origin_position, bytes(batch.body)) == (
        20,
        1,
        20,
        b"map",
    )
    assert placing.next_position == 21


def test_large_conflicts_are_counted_only(placing: GroupBuilder) -> None:
    one = entry(10, 1)
    placing.place(1, one, b"body")
    other = entry(10, 1)
    other.crc += 1
    placing.place(2, other, bytes(CONFLICTS_MAX_BYTES + 1))
    assert (placing.conflicts, placing.take_conflicts()) == (1, [])


def test_one_principal_publishes_under_so_many_names(placing: GroupBuilder) -> None:
    placing.settings = placing.settings._replace(names_max=2)
    codes = []
    for n in range(3):
        known = placing.sessions.open(f"ann-{n}", "ann", WALL)
        assert known is not None
        one = m.Entry(known.id, known.session, 1, 1, 0, 7, None, ["t"], WALL)
        codes += [placing.place(n, one, b"body").code for _ in range(2)]
    assert codes == ["", "", "", "", "too_many", "too_many"]
    known = placing.sessions.open("bob", "bob", WALL)
    assert known is not None
    one = m.Entry(known.id, known.session, 1, 1, 0, 7, None, ["t"], WALL)
    assert placing.place(9, one, b"body").code == ""
    placing.sessions.check()
