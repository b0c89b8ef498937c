"""Distributed transactions for operators: which there are, and the decision of one. Pure.

What an operator decides is kept until its transaction manager has asked for it and says `forget`.
"""

from __future__ import annotations

from zbroker.errors import ClientError
from zbroker.queues.admin_answers import OperatorAnswers, refusal_of
from zbroker.queues.branch_commands import BranchCommands, BranchRequest
from zbroker.queues.context import QueuesContext
from zbroker.wire import branch_surveys as b
from zbroker.wire.branches import BranchDecided, BranchesFound, BranchRow


class OperatorBranches:
    """Answers questions. All of them raise ClientError."""

    def __init__(
        self, shared: QueuesContext, answers: OperatorAnswers, branches: BranchCommands
    ) -> None:
        self._shared, self._answers, self._branches = shared, answers, branches

    def survey(self, rid: bytes, ask: b.AskBranchRows) -> None:
        """Answers once the journal has said them."""

        def found(said: BranchesFound) -> None:
            if said.code:
                error = ClientError(said.code, said.reason)
                self._answers.tell(rid, refusal_of(ask, error))
                return
            rows = [self._shown(row) for row in said.rows]
            self._answers.tell(rid, b.BranchesSurveyed(ask.cid, rows, said.left_out))

        self._shared.find_branches(ask.principal or None, ask.xid, ask.limit, found)

    def _shown(self, row: BranchRow) -> b.SurveyedBranch:
        found = self._branches.shown(row)
        return b.SurveyedBranch(
            row.principal, row.xid, row.state, row.session, row.instance, found.here, row.messages,
            row.accepted, row.queues, row.prepared_ns,
        )  # fmt: skip

    def change(self, rid: bytes, ask: b.ChangeBranch) -> None:
        """Answers once it is durable."""

        def done(answer: BranchDecided) -> None:
            self._answers.tell(rid, b.BranchChanged(
                ask.cid, answer.position, answer.messages, answer.accepted, answer.mixed
            ))  # fmt: skip

        self._branches.request(BranchRequest(
            ask.principal, ask.xid, ask.decision, ask.decision != "forget", ask.force, done,
            lambda error: self._answers.tell(rid, refusal_of(ask, error)), ask.dry_run,
            ask.instance,
        ))  # fmt: skip
