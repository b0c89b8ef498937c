"""zbroker/client/branch_link.py: what became of a prepare, or a decision, without an answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import Any, Final

import pytest

from zbroker.client import branch_link, session_link
from zbroker.client.branch_link import BranchLink
from zbroker.client.questions import LostError
from zbroker.client.session_link import SessionLink, Takes
from zbroker.errors import Timeout, ZBrokerError
from zbroker.wire.branches import (
    Branch,
    BranchDecided,
    BranchList,
    BranchPrepared,
    DecideBranch,
    ListBranches,
    PrepareTransaction,
)
from zbroker.wire.transactions import AttachSession, SessionAttached
from zbroker.xids import Xid

LONG_S: Final = 60.0
XID: Final = Xid(1, "payment", "broker")
LOST: Final = LostError(late=False)
ELSEWHERE: Final = ZBrokerError("not_logged_on", "the process is another one")
GONE: Final = ZBrokerError("unknown_branch", "there is none")
NOTHING: Final = Takes([], [])
DONE: Final = BranchDecided(XID, "commit", 70, 2, 1)


def branch(epoch: int = 5, number: int = 1, *, here: bool = True, session: str = "s") -> Branch:
    return Branch(XID, "p", "prepared", session, 9, here, 2, 1, 3, epoch, number)


class Connection:
    """A connection, on which a session begins in `epoch`. answers: to its other commands."""

    def __init__(self, epoch: int, *answers: Any) -> None:
        self._epoch, self._answers = epoch, list(answers)
        self.asked: list[Any] = []
        self.end, self.kept, self.lost, self.closed = 0.0, False, False, False
        self.url = "a"

    def ask(self, command: Any) -> Any:
        if isinstance(command, AttachSession):
            return SessionAttached("s", self._epoch, f"stage{self._epoch}.")
        self.asked.append(command)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


class World:
    """A session that uses these connections one after the other, and was attached on the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *connections: Connection) -> None:
        self.left = list(connections)
        monkeypatch.setattr(session_link, "ask", self._ask)
        monkeypatch.setattr(branch_link, "ask", self._ask)
        monkeypatch.setattr(session_link.time, "sleep", lambda _s: None)
        self.session = SessionLink(None, "s", force=False)  # type: ignore[arg-type]
        self.link = BranchLink(None, self.session)  # type: ignore[arg-type]
        assert self.session.begin(LONG_S)[1] == "stage5.1"

    def _ask(self, _to: Any, _left: float, what: str, begin: Callable[[Any], Any], *_: Any) -> Any:
        while self.left:
            try:
                return begin(self.left.pop(0))
            except LostError:
                pass
        raise Timeout("timeout", f"{what}: no answer")


def refused(call: Callable[..., Any], *given: Any) -> str:
    with pytest.raises(ZBrokerError) as caught:
        call(*given)
    return caught.value.code


# -- prepare --------------------------------------------------------------------------------------


def test_a_prepare_says_which_transaction_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(5, BranchPrepared(XID, 2, 0))
    assert World(monkeypatch, connection).link.prepare(XID, 2, NOTHING, LONG_S).messages == 2
    [command] = connection.asked
    assert command == PrepareTransaction("s", 5, 1, XID, 2)


@pytest.mark.parametrize("how", [LOST, ELSEWHERE], ids=["lost", "not logged on any more"])
def test_a_prepare_whose_connection_was_lost_is_looked_for_in_a_higher_epoch(
    monkeypatch: pytest.MonkeyPatch, how: Exception
) -> None:
    first, second = Connection(5, how), Connection(6, BranchList([branch()]))
    world = World(monkeypatch, first, second)
    assert world.link.prepare(XID, 2, NOTHING, LONG_S) == BranchPrepared(XID, 2, 1)
    assert first.closed
    assert [type(each) for each in second.asked] == [ListBranches]
    assert second.asked[0].xid == XID
    assert world.session.begin(LONG_S)[1] == "stage6.1"


def test_another_instance_may_have_a_branch_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the first one of the list."""
    second = Connection(6, BranchList([branch(4, here=False), branch()]))
    world = World(monkeypatch, Connection(5, LOST), second)
    assert world.link.prepare(XID, 2, NOTHING, LONG_S) == BranchPrepared(XID, 2, 1)
    assert second.asked[0].limit > 1


def test_a_prepare_is_found_at_the_instance_that_handed_its_session_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is decided there: the one where the session is now says `branch_elsewhere`."""
    second = Connection(7, BranchList([branch(here=False)]))
    world = World(monkeypatch, Connection(5, LOST), second)
    assert world.link.prepare(XID, 2, NOTHING, LONG_S) == BranchPrepared(XID, 2, 1)


@pytest.mark.parametrize(
    "found",
    [[], [branch(4)], [branch(number=2)], [branch(session="other")]],
    ids=["none", "of an older epoch", "of another number", "of another session"],
)
def test_a_prepare_that_never_arrived_is_aborted(
    monkeypatch: pytest.MonkeyPatch, found: list[Branch]
) -> None:
    """Also where another transaction has the xid, to which its answer would have been a refusal."""
    world = World(monkeypatch, Connection(5, LOST), Connection(6, BranchList(found)))
    assert refused(world.link.prepare, XID, 2, NOTHING, LONG_S) == "transaction_aborted"


def test_a_prepare_is_looked_for_until_that_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connection(5, LOST), Connection(6, LOST), Connection(7, BranchList([branch()]))
    world = World(monkeypatch, *connections)
    assert world.link.prepare(XID, 2, NOTHING, LONG_S).messages == 2


@pytest.mark.parametrize("time_s", [0.0, LONG_S], ids=["no time left", "nothing answers"])
def test_a_prepare_that_cannot_be_looked_for_may_be_done(
    monkeypatch: pytest.MonkeyPatch, time_s: float
) -> None:
    world = World(monkeypatch, Connection(5, LOST), Connection(6, LOST))
    assert refused(world.link.prepare, XID, 2, NOTHING, time_s) == "outcome_unknown"


@pytest.mark.parametrize("code", ["transaction_aborted", "branch_exists", "session_fenced"])
def test_a_prepare_that_is_refused_is_not_looked_for(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    world = World(monkeypatch, Connection(5, ZBrokerError(code, "no")))
    assert refused(world.link.prepare, XID, 2, NOTHING, LONG_S) == code


def test_a_session_that_another_program_has_needs_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Connection(5))

    def attach(code: str) -> Callable[..., Any]:
        def refuse(*_: Any) -> None:
            raise ZBrokerError(code, "no")

        return refuse

    monkeypatch.setattr(world.session, "attach", attach("session_fenced"))
    world.link.fence(LONG_S)
    monkeypatch.setattr(world.session, "attach", attach("session_elsewhere"))
    assert refused(world.link.fence, LONG_S) == "session_elsewhere"


def test_a_transaction_of_an_older_epoch_is_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session was attached again meanwhile: what it has staged has ended."""
    second = Connection(6)
    world = World(monkeypatch, Connection(5), second)
    world.session.attach(LONG_S)
    assert refused(world.link.prepare, XID, 2, NOTHING, LONG_S) == "transaction_aborted"
    assert second.asked == []


def test_one_thread_at_a_time_uses_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled leaves its question to a thread, and the session goes on."""
    asked, answers = Event(), Event()

    class Slow(Connection):
        def ask(self, command: Any) -> Any:
            if isinstance(command, PrepareTransaction):
                asked.set()
                assert answers.wait(LONG_S)
            return super().ask(command)

    first = Slow(5, BranchPrepared(XID))
    world = World(monkeypatch, first, Connection(6))
    with ThreadPoolExecutor(2) as pool:
        left = pool.submit(world.link.prepare, XID, 0, NOTHING, LONG_S)
        assert asked.wait(LONG_S)
        fence = pool.submit(world.link.fence, LONG_S)
        assert not wait([fence], 0.2).done
        assert not first.closed
        answers.set()
        fence.result(LONG_S)
        assert left.result(LONG_S) == BranchPrepared(XID)


# -- decide ---------------------------------------------------------------------------------------


def test_a_decision_goes_by_the_connection_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(5, DONE)
    assert World(monkeypatch, connection).link.decide(XID, "commit", LONG_S) == DONE
    assert connection.asked == [DecideBranch(XID, "commit")]


def test_a_decision_needs_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be attached elsewhere, or not at all: a branch is its principal's."""
    world = World(monkeypatch, Connection(5), Connection(0, DONE))
    world.session.close()
    assert world.link.decide(XID, "commit", LONG_S) == DONE


def test_a_decision_that_was_not_answered_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = Connection(5, LOST), Connection(0, LOST), Connection(0, DONE)
    world = World(monkeypatch, *connections)
    assert world.link.decide(XID, "commit", LONG_S) == DONE
    assert connections[0].closed


def test_a_branch_that_is_gone_when_it_is_asked_for_again_was_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, Connection(5, LOST), Connection(0, GONE))
    assert world.link.decide(XID, "rollback", LONG_S) is None


def test_a_branch_that_was_never_there_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(World(monkeypatch, Connection(5, GONE)).link.decide, XID, "commit", LONG_S) == (
        "unknown_branch"
    )


def test_a_decision_that_was_not_heard_was_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process was another one, which knew of no logon: it has decided nothing."""
    world = World(monkeypatch, Connection(5, ELSEWHERE), Connection(0, GONE))
    assert refused(world.link.decide, XID, "commit", LONG_S) == "unknown_branch"


@pytest.mark.parametrize("code", ["branch_decided", "branch_elsewhere", "not_entitled"])
def test_a_decision_that_is_refused_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    world = World(monkeypatch, Connection(5, LOST), Connection(0, ZBrokerError(code, "no")))
    assert refused(world.link.decide, XID, "commit", LONG_S) == code


@pytest.mark.parametrize(
    ("answers", "code"),
    [([LOST], "outcome_unknown"), ([ELSEWHERE], "timeout")],
    ids=["it was sent", "it was not heard"],
)
def test_a_decision_without_an_answer_in_time(
    monkeypatch: pytest.MonkeyPatch, answers: list[Exception], code: str
) -> None:
    world = World(monkeypatch, Connection(5, *answers))
    assert refused(world.link.decide, XID, "commit", LONG_S) == code


def test_a_decision_that_is_refused_for_now_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Connection(5, ZBrokerError("disk_full", "later"), DONE))
    assert world.link.decide(XID, "commit", LONG_S) == DONE


# -- recover --------------------------------------------------------------------------------------


def test_all_branches_are_recovered_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [branch(epoch) for epoch in range(3)]
    for number, one in enumerate(many):
        one.xid = Xid(1, f"payment-{number}", "broker")
    pages = [BranchList(many[:2], 1), BranchList(many[2:])]
    asked = Connection(0, pages[0])
    again = Connection(0, pages[1])
    assert World(monkeypatch, Connection(5), asked, again).link.recover(LONG_S) == many
    assert again.asked[-1].after == (many[1].xid, many[1].instance)


def test_a_broker_that_knows_no_pages_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    page = BranchList([branch()], 1)
    world = World(monkeypatch, Connection(5), Connection(0, page), Connection(0, page))
    assert world.link.recover(LONG_S) == [branch()]


def test_only_branches_of_this_instance_are_to_be_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = BranchList([branch(here=False), branch(session="other")])
    world = World(monkeypatch, Connection(5), Connection(0, listed))
    assert world.link.recover(LONG_S) == [listed.branches[1]]
