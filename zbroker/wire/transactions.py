"""Transactions: commands of clients to the queues process, and its questions to the journal. Pure.

    client                                          queues
        AttachSession{session}            ->  SessionAttached{epoch, stage, last ...}
        CommitTransaction{accepts, rejects}
                                          ->  TransactionCommitted{position}    when it is durable
        DetachSession{session, epoch}     ->  SessionDetached                   when it is durable

    queues                                          journal
        AskSession{principal, session}    ->
                                          <-  SessionFound{epoch ...}           after the sync
        CommitUnits: a TransactionRecord, and the facts of queues

What a transaction publishes goes to ingest as messages that are staged under the token
`stage` + its number; the commit comes once these are acknowledged. A commit that was not answered
is not sent again: the session attaches again, and hears what it committed last.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct, field

from zbroker.limits import (
    END_CODE_MAX,
    END_TEXT_MAX,
    HOLDER_MAX,
    REASON_MAX,
    SESSION_MAX_BYTES,
)
from zbroker.wire.internal import JournalRequest, Refusable
from zbroker.wire.messages import U63, Cid, ClientCommand, ServerAnswer

ACCEPTS_MAX: Final = 100  # consumers of one transaction
REJECTS_MAX: Final = 1_000  # messages of one transaction: each may be a dead letter of its unit
RESTATED_MAX: Final = 1_000  # consumers that a session says it has

SessionName = Annotated[str, Meta(min_length=1, max_length=SESSION_MAX_BYTES)]
Number = Annotated[int, Meta(ge=1, le=1 << 48)]  # of a transaction, and with it its token is short


class SessionKey(NamedTuple):
    """Whose session it is."""

    principal: str
    session: str


class AttachSession(ClientCommand, tag="attach_session"):
    """-> queues. The session begins again, on this connection alone. Answered by SessionAttached.

    holder: how the program calls itself, the same while it runs. again: it had the session; refused
    if another one began it since (session_fenced). force: also where it began last on another
    instance, which may be away and have commits that are not here yet.
    timeout_ms: how long it is kept when its connection is lost; a longer one than the broker allows
    is cut. Then its consumers keep what they hold; 0: leases alone count. consumers: which ones it
    has, by queue and `holder`; a broker that began again waits for what these say they hold.
    epoch: the highest in which this program has attached it. An instance that has not heard of that
    waits for it, and refuses the session else (session_elsewhere), also with `force`.
    """

    session: SessionName
    holder: Annotated[str, Meta(max_length=HOLDER_MAX)] = ""
    again: bool = False
    force: bool = False
    cid: Cid = None
    timeout_ms: U63 = 0
    consumers: Annotated[list[tuple[str, str]], Meta(max_length=RESTATED_MAX)] | None = None
    epoch: U63 = 0


class DetachSession(ClientCommand, tag="detach_session"):
    """-> queues. The session ends, on every instance. Answered by SessionDetached.

    What its consumers hold comes back. epoch: as it was attached; of whatever connection. code,
    text: why, if its program failed: the next one that attaches it hears that.
    """

    session: SessionName
    epoch: U63
    code: Annotated[str, Meta(max_length=END_CODE_MAX)] = ""
    text: Annotated[str, Meta(max_length=END_TEXT_MAX)] = ""
    cid: Cid = None


class Accepted(Struct, array_like=True):
    """Messages that a consumer of this principal holds. holder: as it said when it began, of any of
    its connections. ends: [first, end, first, end ...] of runs of positions; generation: of these,
    see Settle."""

    queue: str
    holder: str
    generation: int
    ends: list[int]


class RejectedMessages(Accepted, array_like=True):
    """Messages that a consumer of this principal holds and that cannot be processed: dead letters.

    reason: why, for the letter.
    """

    reason: Annotated[str, Meta(max_length=REASON_MAX)] = ""


class CommitTransaction(ClientCommand, tag="commit_transaction"):
    """-> queues. All of it or nothing. Answered by TransactionCommitted.

    epoch: as the session was attached. number: above that of the last commit. messages: how many
    were published under its token. A consumer is in `accepts` once, in `rejects` once for each
    reason, and a message in one of them.
    """

    session: SessionName
    epoch: U63
    number: Number
    messages: U63 = 0
    accepts: list[Accepted] = field(default_factory=list)
    cid: Cid = None
    rejects: list[RejectedMessages] = field(default_factory=list)


class SessionAttached(ServerAnswer, tag="session_attached"):
    """queues -> client. stage: how the tokens of its transactions begin.

    committed, number: epoch and number of the last transaction of this session that was committed
    in this log, 0: none. position: of its first message here, 0: not known; messages: how many.
    timeout_ms: as it was granted. ended: why it was over before this, "": it was not; code, text:
    as its program said then. rejects: its transactions take rejects; an earlier release did not
    look at them. after: the epoch before, as this log knew it, 0: none; an earlier release did not
    say.
    """

    session: str
    epoch: int
    stage: str
    committed: int = 0
    number: int = 0
    position: int = 0
    messages: int = 0
    cid: Cid = None
    timeout_ms: int = 0
    ended: str = ""
    code: str = ""
    text: str = ""
    rejects: bool = False
    after: int | None = None


class SessionDetached(ServerAnswer, tag="session_detached"):
    """queues -> client. It is over, durably."""

    session: str
    cid: Cid = None


class TransactionCommitted(ServerAnswer, tag="transaction_committed"):
    """queues -> client. It is durable. position: of the first of its messages; accepted: how many
    messages left their queues; rejected: so many of these were rejected."""

    session: str
    number: int
    position: int = 0
    messages: int = 0
    accepted: int = 0
    cid: Cid = None
    rejected: int = 0


class AskSession(JournalRequest, tag="ask_session"):
    """queues -> journal. Answered by SessionFound."""

    principal: str
    session: str


class SessionFound(Refusable, tag="session_found"):
    """journal -> queues: as a TransactionRow has it; stage: see SessionAttached. epoch 0: there is
    no session of this name. instance: where it may begin: it began there last, or was handed over
    to that one."""

    epoch: int = 0
    instance: int = 0
    committed: int = 0
    number: int = 0
    position: int = 0
    messages: int = 0
    stage: str = ""
    holder: str = ""
    timeout_ms: int = 0
    ended: str = ""
    end_code: str = ""
    end_text: str = ""


class AskSessions(JournalRequest, tag="ask_sessions"):
    """queues -> journal. principal, session: only of these names; "" is all. limit: rows at most.
    kept_by: only those with a time-out that began on this instance and did not end; 0: all. after:
    only those after this principal and name. Answered by SessionList."""

    principal: str
    session: str
    limit: int
    kept_by: int = 0
    after: SessionKey = SessionKey("", "")


class SessionRow(Struct, array_like=True, gc=False):
    """A session as a TransactionRow has it; instance: see SessionFound."""

    principal: str
    session: str
    epoch: int
    instance: int
    committed: int
    number: int
    position: int
    messages: int
    holder: str = ""
    timeout_ms: int = 0
    ended: str = ""
    code: str = ""
    text: str = ""


class SessionList(Refusable, tag="session_list"):
    """journal -> queues: by principal and name. left_out: how many more there are."""

    rows: list[SessionRow] = field(default_factory=list)
    left_out: int = 0


ToQueues = AttachSession | CommitTransaction | DetachSession
FromQueues = SessionAttached | TransactionCommitted | SessionDetached
ToJournal = AskSession | AskSessions
FromJournal = SessionFound | SessionList
