"""Branches of distributed transactions in the journal: what lands, what holds for ever."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec import msgpack
from msgspec.structs import replace

from tests.journal.test_replicated_stages import all_of
from tests.journal.test_stages import payloads, stored
from tests.journal.test_transaction_table import attach, commit, token
from tests.journal.test_transaction_table import record as transaction
from tests.journal.whole import MINE, PROCESS, Sent, Whole, control, fact
from zbroker.journal import branch_table, stages
from zbroker.log.format import FLAG_SHOWS, KIND_BRANCH
from zbroker.log.records import BranchRecord, encode
from zbroker.wire.branches import AskBranches, BranchesFound, BranchRow
from zbroker.xids import Xid

A, B = 0xA, 0xB
X: Final = Xid(7, "transfer-1", "broker")


def branch(state: str, xid: Xid = X, messages: int = 0, **more: Any) -> Sent:
    said = {"session": "billing", "epoch": 10, "number": 1} | more
    body = encode(BranchRecord("alice", xid, state, messages=messages, by=5, unit=1, **said))  # type: ignore[arg-type]
    return control(KIND_BRANCH, body)


def place(at: Whole, *parts: Sent) -> str:
    """The code of the refusal of a unit, or ""."""
    [item] = at.units([*parts])
    return item.code


def prepare(at: Whole, *data: bytes, number: int = 1, xid: Xid = X) -> str:
    """Stages and prepares, in epoch 10; the code of its refusal, or ""."""
    if data:
        at.stage(token(10, number), *data)
    return place(at, branch("prepared", xid, len(data), number=number), fact())


def prepared(*data: bytes) -> Whole:
    at = Whole()
    attach(at, 10)
    assert prepare(at, *data) == ""
    return at


def found(at: Whole, xid: Xid | None = None) -> list[BranchRow]:
    at.hear(PROCESS, AskBranches(3, MINE, "alice", xid, 10))
    [answer] = [a.message for a in at.commit() if isinstance(a.message, BranchesFound)]
    return answer.rows


# -- one log --------------------------------------------------------------------------------------


def test_what_is_prepared_is_shown_when_it_is_committed() -> None:
    at = prepared(b"a", b"b")
    assert payloads(at) == []
    [row] = found(at)
    assert (row.xid, row.state, row.messages, row.instance) == (X, "prepared", 2, at.instance)
    assert place(at, branch("committed", messages=2), fact()) == ""
    assert payloads(at) == [b"a", b"b"]
    shown, said, _ = stored(at)[-3:]
    assert shown.flags & FLAG_SHOWS
    assert said.kind == KIND_BRANCH
    assert found(at) == []
    assert len(at.core.sessions.stages) == 0


def test_what_is_rolled_back_is_never_shown() -> None:
    at = prepared(b"a")
    assert place(at, branch("rolled_back"), fact()) == ""
    assert found(at) == []
    assert len(at.core.sessions.stages) == 0
    assert place(at, branch("committed", messages=1)) == "unknown_branch"


@pytest.mark.parametrize("state", ["committed", "rolled_back", "forgotten"])
def test_what_was_decided_or_never_prepared_is_not_known(state: str) -> None:
    at = prepared()
    assert place(at, branch(state, Xid(7, "other"))) == "unknown_branch"
    place(at, branch("rolled_back"))
    assert place(at, branch(state)) == "unknown_branch"


def test_a_name_is_prepared_once_until_it_is_decided() -> None:
    at = prepared()
    assert prepare(at, number=2) == "branch_exists"
    place(at, branch("committed"))
    assert prepare(at, number=3) == ""


def test_they_are_listed_page_by_page() -> None:
    at = prepared()
    others = [Xid(7, f"x{number}") for number in range(4)]
    for number, xid in enumerate(others, 2):
        prepare(at, number=number, xid=xid)
    seen, after = [], None
    while True:
        at.hear(PROCESS, AskBranches(3, MINE, "alice", None, 2, None, after))
        [answer] = [a.message for a in at.commit() if isinstance(a.message, BranchesFound)]
        seen += [row.xid for row in answer.rows]
        assert answer.left_out == 5 - len(seen)
        if not answer.left_out:
            break
        after = answer.rows[-1].xid, answer.rows[-1].instance
    assert seen == sorted({*others, *seen})
    assert len(seen) == 5


def test_one_is_found_by_the_token_that_it_staged_under() -> None:
    at = prepared()
    prepare(at, number=2, xid=Xid(7, "second"))

    def named(wanted: str) -> list[Xid]:
        at.hear(PROCESS, AskBranches(3, MINE, "alice", None, 10, wanted))
        [answer] = [a.message for a in at.commit() if isinstance(a.message, BranchesFound)]
        return [row.xid for row in answer.rows]

    assert named(token(10, 2)) == [Xid(7, "second")]
    assert named(token(10, 3)) == []


def test_the_statistics_count_those_that_wait_and_since_when() -> None:
    at = Whole()

    def numbers() -> tuple[object, ...]:
        stats = at.process.core.stats()
        return tuple(stats[f"branches_{key}"] for key in ("prepared", "decided", "since_s"))

    assert numbers() == (0, 0, 0)
    attach(at, 10)
    prepare(at)
    [row] = found(at)
    later = replace(row, principal="bob", prepared_ns=7_000_000_000)
    at.core.sessions.transactions.branches.learn(later)
    assert numbers() == (2, 0, 0), "the clock of this test stands at 1 us"
    place(at, branch("committed", heuristic=True))
    assert numbers() == (1, 1, 7)
    place(at, branch("forgotten"))
    assert numbers() == (1, 0, 7)


@pytest.mark.parametrize("staged", [0, 1, 3])
def test_one_whose_messages_are_not_all_here_is_not_prepared(staged: int) -> None:
    at = Whole()
    attach(at, 10)
    if staged:
        at.stage(token(10, 1), *[b"x"] * staged)
    assert place(at, branch("prepared", messages=2)) == "transaction_aborted"
    assert found(at) == []


@pytest.mark.parametrize(("epoch", "number"), [(9, 1), (11, 1), (10, 1)])
def test_only_the_session_that_is_attached_prepares_and_no_number_twice(
    epoch: int, number: int
) -> None:
    at = Whole()
    attach(at, 10)
    commit(at, 10, 1)
    assert place(at, branch("prepared", epoch=epoch, number=number)) == "session_fenced"


def test_what_is_prepared_is_committed_by_nothing_else() -> None:
    at = prepared(b"a")
    assert place(at, transaction(10, 1, 1)) == "transaction_aborted"
    assert place(at, branch("prepared", Xid(1, "x"), 1)) == "transaction_aborted"
    assert place(at, branch("committed")) == "bad_field", "it does not say how many there are"
    assert payloads(at) == []


def test_a_transaction_without_messages_is_prepared_once_too() -> None:
    """Its locks have the name of the transaction, so two branches would share them."""
    at = prepared()
    assert place(at, branch("prepared", Xid(1, "other"))) == "transaction_aborted"
    assert place(at, transaction(10, 1)) == "transaction_aborted"
    assert place(at, transaction(10, 2)) == ""


def test_no_session_no_time_and_no_abort_ends_what_is_prepared() -> None:
    at = prepared(b"a")
    attach(at, 11)
    those = at.core.sessions.stages
    assert those.overdue(0) == []
    assert those.overdue(stages.STAGED_MS) == []
    assert those.held_before(1 << 40) == []
    at.abort_stages(token(10, 1))
    [key] = [one.key for one in those.own("alice", token(10, 1))]
    those.ended(stages.abort_of([key]), key.origin)  # it was on its way when it was prepared
    assert place(at, branch("committed", messages=1)) == ""
    assert payloads(at) == [b"a"]


@pytest.mark.parametrize("state", ["committed", "rolled_back"])
def test_what_an_operator_decided_is_kept_until_it_is_forgotten(state: str) -> None:
    at = prepared(b"a")
    many = 1 if state == "committed" else 0
    assert place(at, branch("forgotten")) == "bad_command"
    assert place(at, branch(state, messages=many, heuristic=True)) == ""
    [row] = found(at)
    assert row.state == state
    assert place(at, branch("committed", messages=1)) == "branch_decided"
    assert place(at, branch("rolled_back")) == "branch_decided"
    assert prepare(at, number=2) == "branch_exists"
    assert place(at, branch("forgotten")) == ""
    assert found(at) == []
    assert len(at.core.sessions.stages) == 0


@pytest.mark.parametrize("how", ["the log", "a snapshot"])
def test_every_start_knows_what_is_prepared(how: str) -> None:
    at = prepared(b"a")
    before = found(at)
    if how == "a snapshot":
        at.roll_over()
        at.state()
    at.restart()
    assert found(at) == before
    attach(at, 11)
    assert place(at, branch("committed", messages=1)) == ""
    assert payloads(at) == [b"a"]


def test_a_principal_has_so_many_branches_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_table, "BRANCHES_MAX", 2)
    at = prepared()
    assert prepare(at, number=2, xid=Xid(1, "b")) == ""
    assert prepare(at, number=3, xid=Xid(1, "c")) == "too_many"


@pytest.mark.parametrize(
    "body", [b"", b"no", msgpack.encode({"principal": "a", "xid": [1, "x" * 65, ""]})]
)
def test_what_is_no_record_of_a_branch_is_refused(body: bytes) -> None:
    assert place(Whole(), control(KIND_BRANCH, body)) == "bad_field"


def test_its_record_is_the_first_of_its_unit_and_the_only_one() -> None:
    at = Whole()
    attach(at, 10)
    assert place(at, fact(), branch("prepared")) == "bad_field"
    assert place(at, branch("prepared"), transaction(10, 2)) == "bad_field"
    assert found(at) == []


# -- several instances ----------------------------------------------------------------------------


def both() -> tuple[Whole, Whole]:
    a, b = Whole(A), Whole(B)
    attach(a, 10)
    assert prepare(a, b"a", b"b") == ""
    all_of(a, b)
    return a, b


def test_every_instance_knows_what_is_prepared_and_shows_it_when_it_is_committed() -> None:
    a, b = both()
    [row] = found(b)
    assert (row.instance, row.state) == (A, "prepared")
    attach(b, 11)
    assert place(a, branch("committed", messages=2), fact()) == ""
    all_of(a, b)
    assert payloads(b) == [b"a", b"b"]
    assert found(b) == []


@pytest.mark.parametrize("state", ["committed", "rolled_back", "forgotten"])
def test_another_instance_does_not_decide_it(state: str) -> None:
    _, b = both()
    many = 2 if state == "committed" else 0
    assert place(b, branch(state, messages=many)) == "branch_elsewhere"
    if state == "committed":
        assert place(b, branch(state, messages=many, forced=True)) == "branch_elsewhere"


def test_one_that_rolls_it_back_by_force_leaves_what_is_staged_to_its_instance() -> None:
    a, b = both()
    assert place(b, branch("rolled_back", forced=True)) == ""
    [row] = found(b)
    assert (row.state, row.instance) == ("rolled_back", A)
    # that one is back, and had committed: that is shown everywhere, and nothing waits for ever
    assert place(a, branch("committed", messages=2), fact()) == ""
    all_of(a, b)
    assert payloads(b) == payloads(a) == [b"a", b"b"]
    assert found(b) == found(a) == []


def test_the_instance_of_a_branch_learns_that_it_was_rolled_back_by_force() -> None:
    a, b = both()
    assert place(b, branch("rolled_back", forced=True)) == ""
    all_of(a, b)
    [row] = found(a)
    assert row.state == "rolled_back"
    assert place(a, branch("committed", messages=2)) == "branch_decided"
    assert place(a, branch("forgotten")) == ""
    all_of(a, b)
    for at in (a, b):
        assert found(at) == []
        assert len(at.core.sessions.stages) == 0
        assert payloads(at) == []


def test_one_that_is_rolled_back_and_forgotten_by_force_is_over() -> None:
    a, b = both()
    del a  # it is gone for good
    assert place(b, branch("forgotten", forced=True)) == "bad_command"
    place(b, branch("rolled_back", forced=True))
    assert place(b, branch("forgotten", forced=True)) == ""
    assert found(b) == []
    assert len(b.core.sessions.stages) == 0


def test_two_instances_may_prepare_one_name() -> None:
    a, b = both()
    attach(b, 20)
    b.stage(token(20, 1), b"of b")
    assert place(b, branch("prepared", messages=1, epoch=20)) == ""
    assert [row.instance for row in found(b)] == [A, B]
    assert place(b, branch("committed", messages=1, epoch=20)) == ""
    assert place(a, branch("committed", messages=2)) == ""
    all_of(a, b)
    assert payloads(b) == [b"of b", b"a", b"b"]
    assert found(a) == found(b) == []


@pytest.mark.parametrize("of", ["the first", "the second"])
def test_a_decision_by_force_is_about_one_of_two_instances_of_that_name(of: str) -> None:
    a, b = both()
    c = Whole(0xC)
    attach(b, 20)
    assert place(b, branch("prepared", epoch=20)) == ""
    all_of(a, b, c)
    epoch = 10 if of == "the first" else 20
    assert place(c, branch("rolled_back", epoch=epoch, forced=True)) == ""
    all_of(a, b, c)
    for at in (a, b, c):
        states = {row.epoch: row.state for row in found(at)}
        assert states == {10: "prepared", 20: "prepared"} | {epoch: "rolled_back"}


@pytest.mark.parametrize("state", ["committed", "rolled_back"])
def test_a_late_decision_is_not_about_the_next_one_of_that_name(state: str) -> None:
    at = prepared()
    place(at, branch("committed"))
    assert prepare(at, b"x", number=2) == ""
    assert place(at, branch(state)) == "unknown_branch"
    assert [(row.number, row.state) for row in found(at)] == [(2, "prepared")]
