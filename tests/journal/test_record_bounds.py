"""zbroker/journal/replicas.py: what a peer says can be stored, or is refused."""

from __future__ import annotations

import msgspec
import pytest

from tests.journal.test_replicas import P, give, make, record
from zbroker.journal.replicas import BOUNDS, EXTRA_COLUMNS_MAX, outside
from zbroker.journal.sessions import SESSION_MAX, PublisherRow, Sessions
from zbroker.log.format import Batch
from zbroker.wire.internal import Record
from zbroker.wire.messages import Columns


def test_every_number_of_a_record_has_bounds() -> None:
    fields = msgspec.structs.fields(Record)
    assert set(BOUNDS) == {field.name for field in fields if field.type is int}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_outside_its_bounds_is_refused(name: str) -> None:
    core = make()
    for wrong in (BOUNDS[name][0] - 1, BOUNDS[name][1] + 1):
        one = record(1, 1, at=40)
        setattr(one, name, wrong)
        assert outside(one)
        if -(1 << 63) <= wrong < 1 << 64:  # else no message could carry it
            batches, [item] = give(core, one)
            assert (batches, item.code) == ([], "bad_field")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topics", ["x" * 256]),
        ("topics", ["a\nb"]),
        ("extra", [(1 << 16, b"")]),
        ("extra", [(7, b"")] * (EXTRA_COLUMNS_MAX + 1)),
        ("columns", Columns(time=b"1234567")),
        ("columns", Columns(index=b"\0")),
        ("columns", Columns(index=b"\1\0")),
    ],
)
def test_what_does_not_fit_together_is_refused(name: str, value: object) -> None:
    one = record(1, 1, at=40)
    setattr(one, name, value)
    [item] = give(make(), one)[1]
    assert item.code == "bad_field"


def test_a_session_beyond_all_clocks_in_the_log_does_not_stop_logons() -> None:
    """A release before this one stored what a peer said."""
    table = Sessions()
    table.fold_row(PublisherRow(P, "p", "", 5, 1, 7, (1 << 64) - 1, (1 << 64) - 1, 3))
    known = table.open("p", "", wall_ns=100)
    assert known is not None
    assert known.session == 100
    known = table.open("p", "", wall_ns=100)
    assert known is not None
    assert 100 < known.session < SESSION_MAX


def test_a_foreign_session_beyond_all_clocks_is_not_counted_from() -> None:
    core = make()
    core.sessions.fold(_stored((1 << 64) - 1))
    known = core.sessions.open("p", "", wall_ns=100)
    assert known is not None
    assert known.session == 100


def _stored(session: int) -> Batch:
    core = make()
    [batch], _ = give(core, record(1, 1, at=40))
    batch.session = session
    return batch
