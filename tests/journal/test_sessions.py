"""What is accepted, cut, repeated or refused: the rules of publisher sessions."""

from __future__ import annotations

import pytest

from zbroker.ids import publisher_id
from zbroker.journal import sessions as sessions_module
from zbroker.journal.sessions import Sessions
from zbroker.wire.internal import Entry

P = publisher_id("p")


def opened(high: int = 0) -> tuple[Sessions, int]:
    """A table in which publisher "p" has an open session and `high` messages in the log."""
    table = Sessions()
    known = table.open("p", "", wall_ns=100)
    assert known is not None
    if high:
        table.accepted(entry(1, high, session=known.session), last_position=high)
    return table, known.session


def entry(
    seq: int, count: int = 1, prev: int | None = None, session: int = 100, crc: int = 7
) -> Entry:
    return Entry(P, session, seq, count, prev, crc, None, ["t"])


@pytest.mark.parametrize(
    ("high", "seq", "count", "prev", "what", "skip", "code"),
    [
        (0, 1, 1, 0, "accept", 0, ""),
        (0, 5, 3, 4, "refuse", 0, "sequence_gap"),
        (4, 5, 3, 4, "accept", 0, ""),
        (4, 9, 1, 4, "accept", 0, ""),
        (6, 5, 3, 4, "accept", 2, ""),
        (7, 5, 3, 4, "duplicate", 0, ""),
        (9, 5, 3, 4, "duplicate", 0, ""),
        (3, 5, 3, 4, "refuse", 0, "sequence_gap"),
        (3, 5, 3, None, "accept", 0, ""),
        (3, 5, 3, 5, "refuse", 0, "bad_field"),
        (3, 2**63 - 1, 2, None, "refuse", 0, "bad_field"),
    ],
)
def test_a_batch_is_judged_by_prev_and_high(
    high: int, seq: int, count: int, prev: int | None, what: str, skip: int, code: str
) -> None:
    table, session = opened(high)
    verdict = table.judge(entry(seq, count, prev, session))
    assert (verdict.what, verdict.skip, verdict.code) == (what, skip, code)


def test_batches_of_an_older_session_are_refused() -> None:
    table, old = opened()
    table.open("p", "", wall_ns=0)
    assert table.judge(entry(1, prev=0, session=old)).code == "session_ended"


def test_session_numbers_never_come_again_although_the_clock_goes_back() -> None:
    table, first = opened()
    second = table.open("p", "", wall_ns=5)
    assert second is not None
    assert second.session == first + 1


def test_without_prev_what_follows_a_temporary_refusal_is_held() -> None:
    table, session = opened(3)
    table.hold(entry(4, session=session))
    assert table.judge(entry(5, session=session)).code == "sequence_gap"
    assert table.judge(entry(4, session=session)).what == "accept"
    assert table.judge(entry(5, session=session)).what == "accept"


def test_a_new_logon_ends_the_hold() -> None:
    table, session = opened(3)
    table.hold(entry(4, session=session))
    known = table.open("p", "", wall_ns=500)
    assert known is not None
    assert table.judge(entry(5, session=known.session)).what == "accept"


def test_the_same_sequences_with_other_content_are_a_conflict() -> None:
    table, session = opened()
    table.accepted(entry(1, 2, session=session, crc=1), last_position=12)
    again = table.judge(entry(1, 2, session=session, crc=2))
    assert (again.what, again.conflict, again.position) == ("duplicate", True, 12)


def test_a_duplicate_inherits_the_position_of_its_original() -> None:
    table, session = opened()
    table.accepted(entry(1, 2, session=session), last_position=12)
    table.accepted(entry(3, 2, session=session), last_position=14)
    assert table.judge(entry(1, 2, session=session)).position == 12
    assert table.judge(entry(2, 2, session=session)).position == 14, (
        "cut otherwise: the newest is safe"
    )


def test_a_session_held_open_over_a_restart_goes_on_unless_a_newer_one_is_in_the_log() -> None:
    table = Sessions()
    assert table.resume("p", "", 50)
    assert table.judge(entry(1, prev=0, session=50)).what == "accept"
    assert not table.resume("p", "", 49)


def test_two_names_with_one_publisher_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "publisher_id", lambda name: 1)
    table = Sessions()
    assert table.open("a", "", 1) is not None
    assert table.open("b", "", 1) is None


def test_a_name_that_never_published_leaves_no_trace() -> None:
    table, session = opened()
    table.close("p", session)
    assert len(table) == 0
