"""Distributed transactions: commands of clients to the queues process, and its questions. Pure.

    client                                          queues
        PrepareTransaction{xid, accepts, rejects}
                                          ->  BranchPrepared           when it is durable
        DecideBranch{xid, "commit"}       ->  BranchDecided{position}  when it is durable
        ListBranches                      ->  BranchList

    queues                                          journal
        AskBranches{principal, xid}       ->
                                          <-  BranchesFound            after the sync
        CommitUnits: a BranchRecord, and the facts of queues

A branch is the part that this broker has in a transaction of several systems, of which a program
outside (the transaction manager) decides. It is prepared in a session, like a commit of a local
transaction, and decided by anybody of its principal, on the instance where it was prepared.

Source: seed 001, "Dtx commands"; X/Open XA for the states and what may follow on which.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from zbroker.wire.internal import JournalRequest, Refusable
from zbroker.wire.messages import U63, Cid, ClientCommand, ServerAnswer
from zbroker.wire.transactions import Accepted, Number, RejectedMessages, SessionName
from zbroker.xids import Xid

BRANCHES_LISTED_MAX: Final = 1_000

Decision = Literal["commit", "rollback", "forget"]
#: of a principal: xid, and the instance that prepared it
BranchPlace = tuple[Xid, int]
#: prepared: not decided; committed, rolled_back: decided by an operator, and to be forgotten
BranchState = Literal["prepared", "committed", "rolled_back"]


class PrepareTransaction(ClientCommand, tag="prepare_transaction"):
    """-> queues. All of it can be committed from here on, whatever dies, or rolled back; or it
    is refused, and nothing of it holds. Answered by BranchPrepared.

    session, epoch, number, messages, accepts, rejects: as of CommitTransaction; the number is used
    up. Its messages stay staged, without end; what it takes is locked in the queues: no consumer
    gets it. What it rejects becomes dead letters when it is committed.
    """

    session: SessionName
    epoch: U63
    number: Number
    xid: Xid
    messages: U63 = 0
    accepts: list[Accepted] = field(default_factory=list)
    cid: Cid = None
    rejects: list[RejectedMessages] = field(default_factory=list)


class DecideBranch(ClientCommand, tag="decide_branch"):
    """-> queues. What becomes of a prepared branch. Answered by BranchDecided.

    principal: whose branch it is, "": that of this connection; others need the right `dtx_admin`.
    heuristic: an operator decides, not its transaction manager. So the branch is kept until that
    has asked for it, and says `forget`. force: also where it was not prepared, if that instance is
    away; not to commit. instance: the one that this instance prepared, 0: any; where several others
    have prepared one of that name, it has to be named.
    """

    xid: Xid
    decision: Decision
    principal: Annotated[str, Meta(max_length=255)] = ""
    heuristic: bool = False
    force: bool = False
    cid: Cid = None
    instance: Annotated[int, Meta(ge=0)] = 0


class ListBranches(ClientCommand, tag="list_branches"):
    """-> queues. Answered by BranchList: also branches of other instances, as far as they are known
    here. xid: this one alone. principal: as of DecideBranch. after: those after this one, the last
    of the answer before."""

    xid: Xid | None = None
    principal: Annotated[str, Meta(max_length=255)] = ""
    limit: Annotated[int, Meta(ge=1, le=BRANCHES_LISTED_MAX)] = 100
    cid: Cid = None
    after: BranchPlace | None = None


class Branch(Struct, array_like=True, gc=False):
    """A branch as it is known here. instance: where it was prepared, and can be decided; here:
    that is this one. messages: staged ones; accepted: locked ones. prepared_ns: when. epoch,
    number: which transaction of the session it was; 0: not known."""

    xid: Xid
    principal: str
    state: BranchState
    session: str
    instance: int
    here: bool
    messages: int
    accepted: int
    prepared_ns: int
    epoch: int = 0
    number: int = 0


class BranchPrepared(ServerAnswer, tag="branch_prepared"):
    """queues -> client. It is durable. accepted: messages that are locked for it; rejected: so many
    of these are to be dead letters."""

    xid: Xid
    messages: int = 0
    accepted: int = 0
    cid: Cid = None
    rejected: int = 0


class BranchDecided(ServerAnswer, tag="branch_decided"):
    """queues -> client. It is durable.

    position: of the first of its messages, 0: none. accepted: messages that left their queues, or
    came back to them; rejected: so many of those that left were rejected. mixed: fewer than were
    locked: another instance had delivered the others, after a takeover, or their queue was deleted.
    """

    xid: Xid
    decision: Decision
    position: int = 0
    messages: int = 0
    accepted: int = 0
    mixed: bool = False
    cid: Cid = None
    rejected: int = 0


class BranchList(ServerAnswer, tag="branch_list"):
    """queues -> client: by principal, xid and instance. left_out: how many more there are."""

    branches: list[Branch]
    left_out: int = 0
    cid: Cid = None


class AskBranches(JournalRequest, tag="ask_branches"):
    """queues -> journal. Answered by BranchesFound. principal, xid: only of these; None: all.
    token: only the one that staged under it. after: of one principal, those after this one."""

    principal: str | None
    xid: Xid | None
    limit: int
    token: str | None = None
    after: BranchPlace | None = None


class BranchRow(Struct, array_like=True, gc=False):
    """A branch in a state snapshot, and for the queues process.

    number: of its transaction, in an epoch of its session. queues: that have messages of it.
    position: of the record that it was prepared with, in this log. instance: that wrote it.
    """

    principal: str
    xid: Xid
    state: BranchState
    session: str
    epoch: int
    number: int
    instance: int
    position: int
    prepared_ns: int
    messages: int
    accepted: int
    queues: list[str]


class BranchesFound(Refusable, tag="branches_found"):
    """journal -> queues. left_out: how many more there are."""

    rows: list[BranchRow] = field(default_factory=list)
    left_out: int = 0


ToQueues = PrepareTransaction | DecideBranch | ListBranches
FromQueues = BranchPrepared | BranchDecided | BranchList
ToJournal = AskBranches
FromJournal = BranchesFound
