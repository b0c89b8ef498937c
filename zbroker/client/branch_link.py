"""Distributed transactions on the wire: a branch is prepared, decided, and looked for. Blocks.

    open --prepare--> prepared --commit, rollback--> gone
                         |
                         +--by an operator--> decided --forget--> gone

A prepare that was not answered is looked for: the session attaches again, so it cannot arrive any
more, and the list of branches says whether it had. A decision that was not answered is asked for
again; if the branch is gone then, it was done: only the instance that prepared it says so.
"""

from __future__ import annotations

import time
from typing import Final

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.questions import PAUSE_S, LostError, QuestionLink, ask
from zbroker.client.session_link import (
    AGAIN,
    HINT,
    DetachedError,
    SessionLink,
    Takes,
)
from zbroker.errors import Timeout, ZBrokerError
from zbroker.wire.branches import (
    BRANCHES_LISTED_MAX,
    Branch,
    BranchDecided,
    BranchList,
    BranchPlace,
    BranchPrepared,
    DecideBranch,
    Decision,
    ListBranches,
    PrepareTransaction,
)
from zbroker.xids import Xid

_UNKNOWN: Final = "ask the branches that are left (`tpc_recover`) when the broker is there"


class BranchLink:
    """The branches of the principal of one session. session: where they are prepared; decisions go
    by its connection, if that is there."""

    def __init__(self, listeners: ListenerEndpoints, session: SessionLink) -> None:
        self._listeners, self._session = listeners, session

    # -- prepare ------------------------------------------------------------------------------

    def prepare(self, xid: Xid, messages: int, takes: Takes, timeout: float) -> BranchPrepared:
        """Prepares the transaction whose token was given last.

        Raises: ZBrokerError transaction_aborted, session_fenced, branch_exists, ...: nothing of it
        holds; outcome_unknown (the broker cannot be asked in time).
        """
        session, end = self._session, time.monotonic() + timeout
        with session.lock:
            command = PrepareTransaction(
                session.name, *session.current(), xid, messages, takes.accepts,
                rejects=takes.rejects,
            )  # fmt: skip
            try:
                answer = session.ask(command, end)
            except LostError:
                return self._look(command, end)
            assert isinstance(answer, BranchPrepared)
            return answer

    def _look(self, command: PrepareTransaction, end: float) -> BranchPrepared:
        """What became of a prepare without an answer. Raises: as `prepare`."""
        try:
            found = self._find(command, end)
        except ZBrokerError as error:
            text = f"the prepare of {command.xid} was not answered, and its session cannot ask"
            raise ZBrokerError("outcome_unknown", f"{text}: {error}", _UNKNOWN) from None
        if found is None:
            raise self._session.not_there(f"the prepare of {command.xid}")
        return BranchPrepared(command.xid, found.messages, found.accepted)

    def _find(self, command: PrepareTransaction, end: float) -> Branch | None:
        """The branch that it prepared, once it cannot arrive any more. It may be of another
        instance, which has handed the session over since. Raises: ZBrokerError."""
        while True:
            left = max(PAUSE_S, end - time.monotonic())
            self._session.attach(left)
            try:
                answer = self._session.ask(ListBranches(command.xid), time.monotonic() + left)
            except LostError:
                if time.monotonic() >= end:
                    what = f"session({self._session.name!r}): no answer in time"
                    raise Timeout("timeout", what, HINT) from None
                continue
            assert isinstance(answer, BranchList)
            return next((each for each in answer.branches if _is_of(each, command)), None)

    def fence(self, timeout: float) -> None:
        """From here on no prepare of before can arrive. Raises: as `SessionLink.attach`."""
        try:
            self._session.attach(timeout)
        except ZBrokerError as error:
            if error.code != "session_fenced":  # then the program that has it has raised the epoch
                raise

    # -- decide -------------------------------------------------------------------------------

    def decide(self, xid: Xid, decision: Decision, timeout: float) -> BranchDecided | None:
        """None: it was done by a try that was not answered.

        Raises: ZBrokerError unknown_branch, branch_elsewhere, branch_decided, ...; outcome_unknown
        (it was sent and not answered in time); "timeout" (it was not sent).
        """
        end, lost = time.monotonic() + timeout, False

        def decide_it(to: QuestionLink | SessionLink) -> BranchDecided | None:
            nonlocal lost
            command = DecideBranch(xid, decision)
            try:
                answer = to.ask(command, end) if isinstance(to, SessionLink) else to.ask(command)
            except DetachedError:
                raise
            except LostError:
                lost = True
                raise
            except ZBrokerError as error:
                if lost and error.code == "unknown_branch":
                    return None
                raise
            assert isinstance(answer, BranchDecided)
            return answer

        what = f"{decision} of {xid}"
        try:
            with self._session.lock:
                try:
                    return decide_it(self._session)
                except LostError:
                    self._session.disconnect()
            left = end - time.monotonic()
            return ask(self._listeners, left, what, decide_it, AGAIN, HINT)
        except Timeout:
            if not lost:
                raise
            text = f"the {what} was not answered in {timeout} s"
            raise ZBrokerError("outcome_unknown", text, _UNKNOWN) from None

    # -- recover ------------------------------------------------------------------------------

    def recover(self, timeout: float) -> list[Branch]:
        """Those that can be decided at this instance. Raises: ZBrokerError, "timeout"."""
        end, found = time.monotonic() + timeout, []
        command = ListBranches(limit=BRANCHES_LISTED_MAX)

        def page(to: QuestionLink) -> BranchList:
            answer = to.ask(command)
            assert isinstance(answer, BranchList)
            return answer

        while True:
            left = end - time.monotonic()
            answer = ask(self._listeners, left, "tpc_recover", page, AGAIN, HINT)
            # an earlier release of the broker begins with the first one again
            last = command.after
            new = [each for each in answer.branches if last is None or _place_of(each) > last]
            found += [branch for branch in new if branch.here]
            if not new or not answer.left_out:
                return found
            command.after = _place_of(new[-1])


def _place_of(branch: Branch) -> BranchPlace:
    return branch.xid, branch.instance


def _is_of(branch: Branch, command: PrepareTransaction) -> bool:
    """True if that command prepared it, and not another one of the same xid before."""
    meant = command.session, command.epoch, command.number
    return (branch.session, branch.epoch, branch.number) == meant
