"""/transactions: the branches of distributed transactions, and what an operator decides of one."""

from __future__ import annotations

from typing import Any

from zbroker.admin import requests as asking
from zbroker.admin.documents import seconds_since
from zbroker.admin.process_link import QueueLink
from zbroker.clock import Clock, format_time
from zbroker.errors import ClientError
from zbroker.wire import branch_surveys as b
from zbroker.wire.branches import Decision
from zbroker.xids import Xid, parse_xid

Document = dict[str, Any]


class BranchReports:
    """Answers from any thread. All methods raise ClientError."""

    def __init__(self, link: QueueLink, clock: Clock) -> None:
        self._link, self._clock = link, clock

    def transactions(self, wanted: asking.TransactionsQuery) -> Document:
        """By principal and xid."""
        xid = _parsed(wanted.xid) if wanted.xid else None
        ask = b.AskBranchRows(0, wanted.principal, xid, wanted.limit)
        answer, now_ns = self._link.look(b.BranchesSurveyed, ask), self._clock.wall_ns()
        rows = [_branch(row, now_ns) for row in answer.rows]
        return {"left_out": answer.left_out, "transactions": rows}

    def commit(self, ask: asking.CommitRequest) -> Document:
        """Its messages are visible, and what it locked has left its queues, when this returns."""
        return self._decide("commit", ask)

    def rollback(self, ask: asking.ForcedRequest) -> Document:
        """Nothing of it holds, and what it locked is back in its queues, when this returns."""
        return self._decide("rollback", ask, force=ask.force, instance=ask.instance)

    def forget(self, ask: asking.ForcedRequest) -> Document:
        """What an operator decided is not kept any more."""
        return self._decide("forget", ask, force=ask.force, instance=ask.instance)

    def _decide(
        self, decision: Decision, ask: asking.CommitRequest | asking.ForcedRequest, *,
        force: bool = False, instance: str = "",
    ) -> Document:  # fmt: skip
        xid = _parsed(ask.xid)
        prepared_on = int(instance or "0", 16)
        question = b.ChangeBranch(0, ask.principal, xid, decision, force, ask.dry_run, prepared_on)
        done = self._link.decide(question)
        return {
            "principal": ask.principal, "xid": str(xid), "decision": decision,
            "dry_run": ask.dry_run, "position": done.position, "messages": done.messages,
            "locked": done.accepted, "mixed": done.mixed,
        }  # fmt: skip


def _parsed(text: str) -> Xid:
    try:
        return parse_xid(text)
    except ValueError as error:
        hint = "as `zbroker-admin transaction ls` prints it: FORMAT:GTRID:BQUAL"
        raise ClientError("bad_field", f"key `xid`: {error}", hint) from None


def _branch(row: b.SurveyedBranch, now_ns: int) -> Document:
    return {
        "principal": row.principal, "xid": str(row.xid), "state": row.state,
        "session": row.session, "instance": f"{row.instance:016x}", "here": row.here,
        "messages": row.messages, "locked": row.accepted, "queues": row.queues,
        "prepared": format_time(row.prepared_ns), "age_s": seconds_since(row.prepared_ns, now_ns),
    }  # fmt: skip
