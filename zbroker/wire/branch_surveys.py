"""Questions of the admin about distributed transactions to the queues process, and its answers.
Pure.

AskBranchRows{principal, xid, limit}              ->  BranchesSurveyed{rows, left_out}
ChangeBranch{principal, xid, decision, dry_run}   ->  BranchChanged{accepted}
"""

from __future__ import annotations

from msgspec import Struct, field

from zbroker.wire.branches import BranchState, Decision
from zbroker.wire.internal import Correlated, Refusable
from zbroker.xids import Xid


class AskBranchRows(Correlated, tag="ask_branch_rows"):
    """admin -> queues. principal: only of this one, "" is all. xid: only of this name. limit: rows
    at most."""

    principal: str = ""
    xid: Xid | None = None
    limit: int = 0


class SurveyedBranch(Struct, array_like=True, gc=False):
    """A branch as it is known here. instance: where it was prepared; here: that is the one that is
    asked. messages: staged ones; accepted: locked ones, in `queues`. prepared_ns: when."""

    principal: str
    xid: Xid
    state: BranchState
    session: str
    instance: int
    here: bool
    messages: int
    accepted: int
    queues: list[str]
    prepared_ns: int


class BranchesSurveyed(Refusable, tag="branches_surveyed"):
    """queues -> admin. By principal and xid. left_out: how many more there are."""

    rows: list[SurveyedBranch] = field(default_factory=list)
    left_out: int = 0


class ChangeBranch(Correlated, tag="change_branch"):
    """admin -> queues. An operator decides: see DecideBranch, heuristic, also for `instance`.
    Answered by BranchChanged, durable. dry_run: it is only checked, and what would come of it is
    answered."""

    principal: str
    xid: Xid
    decision: Decision
    force: bool = False
    dry_run: bool = False
    instance: int = 0


class BranchChanged(Refusable, tag="branch_changed"):
    """queues -> admin. The fields of BranchDecided."""

    position: int = 0
    messages: int = 0
    accepted: int = 0
    mixed: bool = False


BranchQuestion = AskBranchRows | ChangeBranch
BranchAnswer = BranchesSurveyed | BranchChanged
