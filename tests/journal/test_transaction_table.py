"""Sessions and transactions in the journal: what lands, what is refused, what every start knows."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from tests.journal.test_replicated_stages import Link, all_of, codes
from tests.journal.test_stages import payloads, stored
from tests.journal.whole import MINE, PROCESS, Sent, Whole, control, fact
from zbroker.journal import stages, transaction_table
from zbroker.journal.origins import Origins
from zbroker.journal.stages import Stages
from zbroker.journal.transaction_table import TransactionRow, TransactionTable
from zbroker.log.format import FLAG_SHOWS, FLAG_UNIT, KIND_QUEUE, KIND_TRANSACTION
from zbroker.log.records import TransactionRecord, encode
from zbroker.transaction_tokens import stages_in
from zbroker.wire.transactions import AskSession, AskSessions, SessionFound, SessionKey, SessionList

A, B = 0xA, 0xB
NAME: Final = "billing"


def record(epoch: int, number: int = 0, messages: int = 0, session: str = NAME) -> Sent:
    body = encode(TransactionRecord("alice", session, epoch, number, messages, 5, 1))
    return control(KIND_TRANSACTION, body)


def token(epoch: int, number: int, session: str = NAME) -> str:
    return f"{stages_in(session, epoch)}{number}"


def attach(at: Whole, epoch: int, session: str = NAME) -> str:
    """The code of its refusal, or ""."""
    [item] = at.units([record(epoch, session=session)])
    return item.code


def commit(at: Whole, epoch: int, number: int, *data: bytes, rest: tuple[Sent, ...] = ()) -> str:
    """Stages and commits; the code of its refusal, or ""."""
    if data:
        at.stage(token(epoch, number), *data)
    [item] = at.units([record(epoch, number, len(data)), *rest])
    return item.code


def found(at: Whole, session: str = NAME) -> SessionFound:
    at.hear(PROCESS, AskSession(3, MINE, "alice", session))
    [answer] = [a.message for a in at.commit() if isinstance(a.message, SessionFound)]
    return answer


def last(at: Whole) -> tuple[int, int, int]:
    """Epoch and number of the last commit, and how many messages it showed."""
    row = found(at)
    return row.committed, row.number, row.messages


# -- one log --------------------------------------------------------------------------------------


def test_a_session_that_never_began_is_not_known() -> None:
    assert found(Whole()) == SessionFound(3)


def test_a_transaction_shows_its_messages_and_lands_with_its_facts_as_one_unit() -> None:
    at = Whole()
    assert attach(at, 10) == ""
    assert commit(at, 10, 1, b"a", b"b", rest=(fact(), fact("other"))) == ""
    assert payloads(at) == [b"a", b"b"]
    shown, said, *facts = stored(at)[-4:]
    assert shown.flags & FLAG_SHOWS
    assert (said.kind, [one.kind for one in facts]) == (KIND_TRANSACTION, [KIND_QUEUE] * 2)
    assert [bool(one.flags & FLAG_UNIT) for one in (shown, said, *facts)] == [True] * 3 + [False]
    row = found(at)
    assert (row.epoch, row.committed, row.number, row.messages) == (10, 10, 1, 2)
    assert row.position == shown.position
    assert row.instance == at.instance
    assert token(10, 1).startswith(row.stage)


def test_one_without_messages_lands_as_well() -> None:
    at = Whole()
    attach(at, 10)
    assert commit(at, 10, 1, rest=(fact(),)) == ""
    assert last(at) == (10, 1, 0)
    assert found(at).position == 0, "it has no first message"


@pytest.mark.parametrize("staged", [0, 1, 3])
def test_one_whose_messages_are_not_all_here_is_aborted_as_a_whole(staged: int) -> None:
    at = Whole()
    attach(at, 10)
    if staged:
        at.stage(token(10, 1), *[b"x"] * staged)
    before = at.core.next_position
    [item] = at.units([record(10, 1, 2), fact()])
    assert item.code == "transaction_aborted"
    assert at.core.next_position == before
    assert last(at) == (0, 0, 0)


@pytest.mark.parametrize("epoch", [9, 10])
def test_a_session_begins_in_a_higher_epoch_each_time(epoch: int) -> None:
    at = Whole()
    attach(at, 10)
    assert attach(at, epoch) == "session_fenced"
    assert attach(at, 11) == ""
    assert attach(at, 1, session="other") == ""


@pytest.mark.parametrize(
    ("after", "refused"), [(10, ""), (0, "session_fenced"), (9, "session_fenced")]
)
def test_a_begin_that_knows_not_the_last_one_is_refused(after: int, refused: str) -> None:
    at = Whole()
    attach(at, 10)
    said = TransactionRecord("alice", NAME, 20, after=after, holder="me")
    [item] = at.units([control(KIND_TRANSACTION, encode(said))])
    assert item.code == refused
    assert found(at).holder == ("" if refused else "me")


def test_a_commit_of_an_epoch_that_is_over_is_refused_and_what_it_staged_ends() -> None:
    at = Whole()
    attach(at, 10)
    at.stage(token(10, 1), b"old")
    at.stage(token(10, 1, "other"), b"of another session")
    at.stage("by hand", b"of no session")
    attach(at, 11)
    assert len(at.core.sessions.stages) == 2
    assert commit(at, 10, 1) == "session_fenced"
    assert commit(at, 10, 2, b"late") == "session_fenced"
    assert commit(at, 11, 1, b"new") == ""
    assert payloads(at) == [b"new"]


def test_a_transaction_is_committed_once() -> None:
    at = Whole()
    attach(at, 10)
    assert commit(at, 10, 2, b"a") == ""
    for number in (1, 2):
        assert commit(at, 10, number, b"again") == "session_fenced"
    assert commit(at, 10, 3, b"b") == ""
    assert payloads(at) == [b"a", b"b"]


def test_a_session_that_is_not_known_commits_nothing() -> None:
    at = Whole()
    assert commit(at, 10, 1, b"a") == "session_fenced"


@pytest.mark.parametrize("body", [b"", b"no", msgpack.encode({"principal": "a", "session": "b"})])
def test_what_is_no_record_of_a_transaction_is_refused(body: bytes) -> None:
    at = Whole()
    [item] = at.units([control(KIND_TRANSACTION, body)])
    assert item.code == "bad_field"


def test_its_record_is_the_first_of_its_unit_and_the_only_one() -> None:
    at = Whole()
    attach(at, 10)
    for unit in ([fact(), record(10, 1)], [record(10, 1), record(10, 2)]):
        [item] = at.units(unit)
        assert item.code == "bad_field"
    assert last(at) == (0, 0, 0)


@pytest.mark.seed("001-09")
@pytest.mark.parametrize("how", ["the log", "a snapshot", "a snapshot alone"])
def test_every_start_knows_who_may_commit_and_what_was(how: str) -> None:
    at = Whole()
    attach(at, 10)
    commit(at, 10, 1, b"a", b"b")
    at.stage(token(10, 2), b"open")
    before = found(at)
    if how != "the log":
        at.roll_over()
        at.state()
    if how == "a snapshot alone":
        at.abort_stages(token(10, 2))
        at.roll_over()
        at.state()
        at.log.refresh()
        at.remove_oldest()
    at.restart()
    assert found(at) == before
    assert attach(at, 10) == "session_fenced"
    if how != "a snapshot alone":
        assert commit(at, 10, 1) == "session_fenced"
        [item] = at.units([record(10, 2, 1)])
        assert item.code == ""


def test_messages_that_are_staged_in_a_transaction_end_soon_without_a_new_one() -> None:
    at = Whole()
    attach(at, 10)
    at.stage(token(10, 1), b"a")
    at.stage("by hand", b"b")
    those = at.core.sessions.stages
    assert those.overdue(0) == []
    late = those.overdue(stages.TRANSACTION_MS)
    assert [key.token for key in late] == [token(10, 1)]
    assert len(those.overdue(stages.STAGED_MS)) == 2


def test_tokens_of_transactions_are_not_kept_when_they_end() -> None:
    """There are many of them, and none is used again."""
    at = Whole()
    attach(at, 10)
    for number in range(1, 6):
        commit(at, 10, number, b"a")
    assert list(at.core.sessions.stages.ended_rows()) == []


def test_a_principal_has_a_bounded_number_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_table, "SESSIONS_MAX", 3)
    at = Whole()
    for epoch, session in enumerate("abcad", 1):
        assert attach(at, epoch, session) == ""
    assert [row.session for row in at.core.sessions.transactions.rows()] == ["c", "a", "d"]


# -- several instances ----------------------------------------------------------------------------


@pytest.mark.seed("001-16")
@pytest.mark.seed("001-63")
def test_it_is_there_as_a_whole_on_every_instance() -> None:
    a, b = Whole(A), Whole(B)
    attach(a, 10)
    b.publish("filler", 1, size=200)
    commit(a, 10, 1, b"a", b"b", rest=(fact(),))
    a.stage(token(10, 2), b"open")
    all_of(a, b)
    assert payloads(b) == payloads(a) == [b"a", b"b"]
    shown, said = [one for one in stored(b) if one.origin_instance == A][-3:-1]
    assert (shown.flags & FLAG_SHOWS, said.kind) == (FLAG_SHOWS, KIND_TRANSACTION)
    assert shown.flags & FLAG_UNIT
    assert not said.flags & FLAG_UNIT, "the facts stay where they are"
    assert (last(b), found(b).position) == ((10, 1, 2), shown.position)


def test_a_unit_whose_messages_are_not_here_is_refused_as_a_whole() -> None:
    a, b = Whole(A), Whole(B)
    attach(a, 10)
    commit(a, 10, 1, b"a")
    all_of(a, b)
    commit(a, 10, 2, b"b")
    Link(a, b).send(1)  # the part alone
    [stage] = b.core.sessions.stages._all()
    b.core.sessions.stages._drop(stage)
    before = b.core.next_position
    assert codes(Link(a, b).send()) == {"stage_unknown"}
    assert (last(b), b.core.next_position) == ((10, 1, 1), before)


def test_a_session_that_was_forced_to_begin_elsewhere_goes_on_there() -> None:
    a, b = Whole(A), Whole(B)
    attach(a, 10)
    commit(a, 10, 1, b"a")
    all_of(a, b)
    assert commit(b, 10, 2, b"b") == "session_fenced", "it began at the other one"
    assert attach(b, 11) == ""
    commit(a, 10, 2, b"late")  # the other one has not heard of it
    assert commit(b, 11, 1, b"c") == ""
    all_of(a, b)
    assert last(a) == last(b) == (11, 1, 1)
    assert commit(a, 10, 3) == "session_fenced"
    assert commit(a, 11, 2) == "session_fenced", "it goes on at the other one"


def test_what_was_staged_at_another_instance_ends_there_alone() -> None:
    a, b = Whole(A), Whole(B)
    attach(a, 10)
    a.stage(token(10, 1), b"a")
    all_of(a, b)
    attach(b, 11)
    assert len(b.core.sessions.stages) == 1, "only a record of that instance ends it"
    attach(a, 12)
    all_of(a, b)
    assert len(a.core.sessions.stages) == len(b.core.sessions.stages) == 0


def begin(at: Whole, epoch: int, after: int | None, **more: Any) -> str:
    """The code of its refusal, or ""."""
    said = TransactionRecord("alice", NAME, epoch, after=after, **more)
    [item] = at.units([control(KIND_TRANSACTION, encode(said))])
    return item.code


def test_a_time_out_is_known_of_a_session_and_survives_its_commits() -> None:
    at = Whole()
    assert begin(at, 10, 0, holder="me", timeout_ms=60_000) == ""
    assert commit(at, 10, 1) == ""
    row = found(at)
    assert (row.holder, row.timeout_ms, row.ended) == ("me", 60_000, "")


def test_an_end_and_an_attach_that_race_are_in_an_order() -> None:
    at = Whole()
    begin(at, 10, 0, holder="me", timeout_ms=60_000)
    assert begin(at, 20, 10, holder="me", timeout_ms=60_000) == ""
    assert begin(at, 11, 10, ended="timed out") == "session_fenced"
    assert begin(at, 21, 20, ended="timed out") == ""
    assert begin(at, 30, 20, holder="me") == "session_fenced"
    row = found(at)
    assert (row.epoch, row.holder, row.timeout_ms, row.ended) == (21, "", 0, "timed out")


def test_nothing_is_committed_in_the_epoch_of_an_end() -> None:
    at = Whole()
    begin(at, 10, 0)
    begin(at, 11, 10, ended="exception", code="bad_order", text="no price")
    assert commit(at, 10, 1) == commit(at, 11, 1) == "session_fenced"
    row = found(at)
    assert (row.ended, row.end_code, row.end_text) == ("exception", "bad_order", "no price")
    begin(at, 12, 11)
    assert found(at).ended == ""


def test_an_end_does_not_end_what_began_elsewhere_meanwhile() -> None:
    """It is of the epoch that it follows, whatever the clocks say."""
    a, b = Whole(A), Whole(B)
    begin(a, 10, 0, timeout_ms=60_000)
    all_of(a, b)
    begin(b, 11, 10, holder="other")
    begin(a, 11, 10, ended="timed out")
    all_of(a, b)
    assert [(found(one).instance, found(one).ended) for one in (a, b)] == [(B, "")] * 2
    assert commit(b, 11, 1) == ""


def test_after_a_hand_over_nothing_is_committed_until_it_begins_at_the_other_instance() -> None:
    a, b = Whole(A), Whole(B)
    begin(a, 10, 0, holder="me", timeout_ms=60_000)
    assert commit(a, 10, 1, b"a") == ""
    a.stage(token(10, 2), b"open")
    assert begin(a, 11, 10, holder="me", timeout_ms=60_000, to=B) == ""
    assert len(a.core.sessions.stages) == 0, "what is open ends"
    assert commit(a, 10, 2) == commit(a, 11, 1) == "session_fenced"
    all_of(a, b)
    for at in (a, b):
        row = found(at)
        assert (row.epoch, row.instance, row.holder, row.timeout_ms) == (11, B, "me", 60_000)
        assert last(at) == (10, 1, 1)
        assert [listed(at, kept_by=one)[0] for one in (A, B)] == [[], [NAME]]
    assert begin(b, 12, 11, holder="me") == ""
    assert commit(b, 12, 1, b"b") == ""


def test_a_hand_over_does_not_end_what_was_forced_to_begin_elsewhere() -> None:
    a, b = Whole(A), Whole(B)
    begin(a, 10, 0)
    all_of(a, b)
    begin(b, 11, 10, holder="forced")
    begin(a, 11, 10, to=B + 1)
    all_of(a, b)
    assert [(found(one).instance, found(one).holder) for one in (a, b)] == [(B, "forced")] * 2


def listed(at: Whole, limit: int = 10, **more: Any) -> tuple[list[str], int]:
    at.hear(PROCESS, AskSessions(3, MINE, "", "", limit, **more))
    [answer] = [a.message for a in at.commit() if isinstance(a.message, SessionList)]
    return [row.session for row in answer.rows], answer.left_out


def test_an_instance_lists_the_sessions_that_it_keeps() -> None:
    a, b = Whole(A), Whole(B)
    for name, timeout_ms in (("one", 5), ("plain", 0), ("two", 5), ("over", 5)):
        said = TransactionRecord("alice", name, 10, timeout_ms=timeout_ms)
        a.units([control(KIND_TRANSACTION, encode(said))])
    over = TransactionRecord("alice", "over", 11, ended="detached")
    a.units([control(KIND_TRANSACTION, encode(over))])
    all_of(a, b)
    for at in (a, b):
        assert listed(at, kept_by=A) == (["one", "two"], 0)
        assert listed(at, kept_by=B) == ([], 0)
    assert listed(a, 1, kept_by=A) == (["one"], 1)
    assert listed(a, 1, kept_by=A, after=SessionKey("alice", "one")) == (["two"], 0)


ROWS = st.builds(
    TransactionRow, st.just("alice"), st.just(NAME), st.integers(1, 4), st.integers(1, 3),
    st.integers(0, 4), st.integers(0, 3), st.just(0), st.just(0), st.sampled_from(["", "me"]),
    st.integers(0, 1), st.sampled_from(["", "timed out"]), st.just(""), st.just(""),
    st.integers(0, 2),
)  # fmt: skip


@given(st.lists(ROWS, max_size=6), st.randoms())
def test_rows_come_in_any_order(rows: list[TransactionRow], mixed: object) -> None:
    ways = []
    for order in (rows, sorted(rows, key=lambda _: mixed.random()), rows * 2):  # type: ignore[attr-defined]
        known = TransactionTable(Stages(Origins(A)))
        for row in order:
            known.learn(row)
        ways.append(list(known.rows()))
    assert ways[0] == ways[1] == ways[2]
