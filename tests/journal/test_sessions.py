"""What is accepted, cut, repeated or refused: the rules of publisher sessions."""

from __future__ import annotations

import pytest

from tests.journal.build import publish
from zbroker.errors import ClientError
from zbroker.ids import publisher_id
from zbroker.journal import sessions as sessions_module
from zbroker.journal.holes import HOLES_MAX, Hole
from zbroker.journal.sessions import Sessions
from zbroker.log.format import FLAG_LATE
from zbroker.wire.internal import Entry

P = publisher_id("p")


def opened(high: int = 0) -> tuple[Sessions, int]:
    """A table in which publisher "p" has an open session and `high` messages in the log."""
    table = Sessions()
    known = table.open("p", "", wall_ns=100)
    assert known is not None
    if high:
        table.accepted(entry(1, high, session=known.session), last_position=high, generation=1)
    return table, known.session


def entry(
    seq: int, count: int = 1, prev: int | None = None, session: int = 100, crc: int = 7
) -> Entry:
    return Entry(P, session, seq, count, prev, crc, None, ["t"])


def test_a_session_number_of_another_generation_says_nothing_of_what_is_between() -> None:
    table, session = opened(10)
    table.accepted(entry(14, session=session), last_position=11, generation=2)
    assert table.runs(P, 11, 14)[0] == [(11, 13)]
    table.accepted(entry(20, session=session), last_position=12, generation=2)
    assert table.runs(P, 15, 20)[0] == []


@pytest.mark.seed("002-34")
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


@pytest.mark.seed("002-23")
def test_the_same_sequences_with_other_content_are_a_conflict() -> None:
    table, session = opened()
    table.accepted(entry(1, 2, session=session, crc=1), last_position=12, generation=1)
    again = table.judge(entry(1, 2, session=session, crc=2))
    assert (again.what, again.conflict, again.position) == ("duplicate", True, 12)


def test_deduplication_gives_a_duplicate_the_position_of_its_original() -> None:
    table, session = opened()
    table.accepted(entry(1, 2, session=session), last_position=12, generation=1)
    table.accepted(entry(3, 2, session=session), last_position=14, generation=1)
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
    assert table.open("a", "", 1).session == 1
    with pytest.raises(ClientError, match="publisher id of another name") as refused:
        table.open("b", "", 1)
    assert refused.value.code == "publisher_collision"


def test_a_name_stays_with_its_principal() -> None:
    """Its sequences decide what is a duplicate, so no one else may go on with them."""
    table = Sessions()
    first = table.open("p", "ann", wall_ns=100)
    assert first is not None
    table.accepted(entry(1, 5, session=first.session), last_position=5, generation=1)
    with pytest.raises(ClientError, match="not_entitled"):
        table.open("p", "eve", wall_ns=200)
    again = table.open("p", "ann", wall_ns=300)
    assert again is not None
    assert (again.high, again.principal) == (5, "ann")


def test_a_name_without_a_principal_goes_to_the_first_one() -> None:
    """As when security is switched on; switching it off again takes it from no one."""
    table, _ = opened(high=3)
    assert table.open("p", "ann", wall_ns=200) is not None
    assert table.open("p", "", wall_ns=300) is not None
    with pytest.raises(ClientError, match="not_entitled"):
        table.open("p", "eve", wall_ns=400)


def test_a_name_that_never_published_leaves_no_trace() -> None:
    table, session = opened()
    table.close("p", session)
    assert len(table) == 0


# -- holes and sessions of other instances ----------------------------------------------------


def stored(table: Sessions, first: int, count: int, prev: int, at: int, session: int = 9) -> None:
    """A batch of another instance is in the log, at position `at`."""
    batch = publish(at, b"x", count, first)
    batch.publisher, batch.prev, batch.session, batch.origin_instance = P, prev, session, 8
    batch.flags = FLAG_LATE if first <= table.meet(P).high else 0
    table.fold(batch)


def test_what_falls_into_a_hole_is_accepted_in_runs() -> None:
    table, session = opened()
    stored(table, 1, 3, 0, at=10)
    stored(table, 7, 3, 6, at=20)
    verdict = table.judge(entry(2, 10, prev=1, session=session))
    assert (verdict.what, verdict.runs) == ("accept", ((4, 6), (10, 11)))
    assert table.judge(entry(7, 3, prev=6, session=session)).what == "duplicate"


def test_a_hole_is_filled_by_what_the_log_says_was_late() -> None:
    table, _ = opened()
    stored(table, 7, 3, 6, at=20)
    stored(table, 1, 6, 0, at=30)
    known = table.meet(P)
    assert (known.high, known.holes, known.late_position, known.last_position) == (9, [], 35, 35)


def test_a_duplicate_may_be_among_what_was_late() -> None:
    table, session = opened()
    stored(table, 7, 3, 6, at=20)
    stored(table, 1, 6, 0, at=30)
    assert table.judge(entry(1, 2, prev=0, session=session)).position == 35


def test_only_what_is_known_to_be_missing_keeps_sequences_from_being_discarded() -> None:
    table, _ = opened()
    stored(table, 5, 1, 0, at=10)
    known = table.meet(P)
    assert (known.holes, known.unbroken) == ([Hole(1, 4)], 5)
    stored(table, 9, 1, 7, at=11)
    assert (known.holes[-1], known.unbroken) == (Hole(6, 7, 7), 5)


def test_a_session_of_the_same_number_elsewhere_is_another_one() -> None:
    """Two clocks may show the same; within one session `prev` would prove that nothing is there."""
    table, session = opened(3)
    stored(table, 9, 1, 3, at=20, session=session)
    assert table.meet(P).holes == [Hole(4, 8)]


def test_what_of_a_record_is_missing_or_held_is_known_unless_holes_were_given_up() -> None:
    table, _ = opened()
    assert table.runs(P + 1, 3, 5) == ([(3, 5)], [], [])
    stored(table, 7, 3, 6, at=20)
    assert table.runs(P, 5, 12) == ([(5, 6), (10, 12)], [(7, 9)], [])
    known = table.meet(P)
    known.given_up = 7
    assert table.runs(P, 5, 12) == ([(5, 6), (10, 12)], [(8, 9)], [(7, 7)])
    assert table.runs(P, 8, 12) == ([(10, 12)], [(8, 9)], [])


def test_holes_that_are_given_up_are_counted_and_remembered() -> None:
    table, _ = opened()
    for n in range(HOLES_MAX + 1):
        stored(table, 3 + 2 * n, 1, 2 + 2 * n, at=10 + n)
    known = table.meet(P)
    assert (len(known.holes), known.given_up, table.forgotten) == (HOLES_MAX, 2, 1)


def test_a_row_says_all_that_the_log_says() -> None:
    table, _ = opened(3)
    stored(table, 7, 3, 6, at=20)
    stored(table, 5, 1, 4, at=30)
    again = Sessions()
    for row in table.rows(table.ids()):
        again.fold_row(row)
    assert list(again.rows(again.ids())) == list(table.rows(table.ids()))


def test_a_name_that_only_logged_on_is_in_no_snapshot() -> None:
    table, _ = opened()
    assert table.ids() == []


def test_a_name_of_a_peer_must_fit_its_id_and_its_owner_here() -> None:
    table = Sessions()
    table.check_name(P, "p", "alice")
    assert table.get(P) is None, "a question leaves nothing behind"
    assert (table.adopt(P, "p", "alice").name, table.meet(P).principal) == ("p", "alice")
    table.check_name(P, "p", "")
    for name, principal, code in (("q", "", "publisher_collision"), ("p", "mallory", "principal_")):
        with pytest.raises(ClientError, match=code):
            table.check_name(P, name, principal)


def test_names_in_the_log_are_counted_by_principal() -> None:
    table = Sessions()
    for n in range(3):
        known = table.open(f"n{n}", "ann", 1)
        assert known is not None
        if n:
            table.named_in_log(known)
            table.named_in_log(known)
            known.high = 1
    table.fold_name(publisher_id("x"), "x", "bob")
    assert (table.names_of("ann"), table.names_of("bob"), table.names_of("")) == (2, 1, 0)
    again = Sessions()
    for row in table.rows(table.ids()):
        again.fold_row(row)
        again.fold_row(row)
    assert again.names_of("ann") == 2
    table.check()
    again.check()
