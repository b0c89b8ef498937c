"""Messages between the broker's own processes, over ipc: the same kind of maps as outside.

    requester (ingest, delivery)                    journal
        Hello{incarnation, number}        ->
                                          <-  Welcome{incarnation, credit, ...}
        Open{name}                        ->                                      (ingest)
                                          <-  Opened{session, seq, acked}
        Append{ordinal, entries} + bodies ->                                      (ingest)
                                          <-  JournalReceipt{items, persisted}    after the sync
        OpenLink{peer, number, digest, ...} ->                                    (replication)
                                          <-  LinkOpened{}
        Replicate{link, ordinal, records} + bodies ->                             (replication)
                                          <-  JournalReceipt{items, persisted}    after the sync
        Locate{what}                      ->  Located{position, serial, offset}   (delivery)
        Holds{log_start, lowest, ...}     ->                                      (delivery)
        AskHolders, Lease, Remove,        ->                                      (admin)
        Retire, Reindex                   <-  Holders, Removal, Done
        anything without a Hello          ->  UnknownRequester
    and to everybody, by XPUB: Watermarks, after each commit and on each beat.

    ingest, where not everything is recorded        delivery
        Hello{incarnation}                ->
                                          <-  LiveCredit{taken, credit, ...}      and on each beat
        Live{incarnation, entries} + bodies ->

A changed incarnation on either side, or UnknownRequester: a new socket, Hello again, everything
after the last receipt again (ZeroMQ hands frames queued for a dead process to its successor).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from zbroker.cpus import ANY_CPU
from zbroker.ids import Cut
from zbroker.wire.messages import Columns


class InternalMessage(Struct, tag_field="cmd", omit_defaults=True, gc=False):
    """What one process of an instance may send to another."""


class Correlated(InternalMessage):
    """A question, or its answer, which has the `cid` of the question."""

    cid: int


class Refusable(Correlated, kw_only=True):
    """An answer that is a refusal if it has a `code`, for `reason`."""

    code: str = ""
    reason: str = ""


class JournalRequest(Correlated):
    """A question to the journal with this incarnation; an older one is dropped."""

    incarnation: int


class OpenSession(Struct, array_like=True, gc=False):
    """A publisher session that ingest holds open across a restart of the journal."""

    name: str
    principal: str
    session: int


class Hello(InternalMessage, tag="hello"):
    """requester -> journal, first on each new socket; `number` rises. Answered by Welcome."""

    process: str = field(name="room")
    incarnation: int
    sessions: list[OpenSession] = []
    number: int = 0


class Welcome(InternalMessage, tag="welcome"):
    """journal -> requester. `echo`: the requester's incarnation; `ended`: refused sessions;
    `generations`: of the log, each with its first position."""

    incarnation: int
    echo: int
    instance: int
    generation: int
    credit_bytes: int
    durability: str
    log_start: int = field(name="floor")
    written: int
    persisted: int
    ended: list[str] = []
    generations: list[tuple[int, int]] = []


class UnknownRequester(InternalMessage, tag="unknown"):
    """journal -> whoever speaks without a Hello that still counts: say it again, on a new socket.

    ZeroMQ reads connections in any order, so the late Hello of a process that died may be taken
    for one of its successor's.
    """


class Open(JournalRequest, tag="open"):
    """ingest -> journal, after everything forwarded for `name`. Answered by Opened."""

    name: str
    principal: str


class Opened(Refusable, tag="opened"):
    """journal -> ingest. A refusal is one of the logon. position: of its newest message here.
    missing: how many ranges of origins were given up, or are older than this log."""

    name: str
    publisher: int = 0
    session: int = 0
    seq: int = 0
    acked: int = 0
    position: int = 0
    missing: int = 0


class Close(InternalMessage, tag="close"):
    """ingest -> journal: the session is over; nothing is answered."""

    incarnation: int
    name: str
    session: int


class Entry(Struct, array_like=True, gc=False):
    """One record batch to append; its body, which crc covers, is the frame of the same index.

    prev None: nothing that was sent before it can be missing. hole: it goes on although it knows
    that `prev` is missing here. stage: the token it is staged under; "": it is published. routes:
    where its messages go, as zbroker.exchanges.route_column has it; b"": none is of an exchange."""

    publisher: int
    session: int
    seq: int
    count: int
    prev: int | None
    crc: int
    codec: str | None
    topics: list[str]
    time_ns: int | None = None
    columns: Columns | None = None
    hole: bool = False
    stage: str = ""
    routes: bytes = b""


class Batches(InternalMessage):
    """What goes into the log: the first has `ordinal`, and receipts up to `confirmed` were seen."""

    incarnation: int
    ordinal: int
    confirmed: int


class Append(Batches, tag="append"):
    """ingest -> journal.

    cpu: on which ingest looks for the receipt until it comes; ANY_CPU: it sleeps meanwhile.
    """

    entries: list[Entry]
    cpu: int = ANY_CPU


class OpenLink(JournalRequest, tag="open_link"):
    """replication -> journal: link session `number` with the instance `peer` begins; its older one
    ends, and what came of that and is not placed yet is answered `dropped`.

    digest: of the filter by which this instance gets records over the link; 0: everything. topics,
    origins: patterns of the topics, and of the instances (16 hex digits), of which the peer may
    bring records. Answered by LinkOpened.
    """

    peer: int
    number: int
    topics: list[str]
    origins: list[str]
    digest: int = 0


class LinkOpened(Refusable, tag="link_opened"):
    """journal -> replication: records of this link session are taken, or it is refused."""


class Covered(Struct, array_like=True, gc=False):
    """The sender has nothing of this origin for us between `after` and `position`.

    keep: it is to be known after a crash, too, since the sender is about to forget what was there.
    """

    instance: int
    generation: int
    after: int
    position: int
    keep: bool = False


class Replicate(Batches, tag="replicate"):
    """replication -> journal: like Append, with records of link session `link`, in whole units, as
    their flags say. Refused ones are sent again, in order. covered: what holds after these."""

    records: list[Record]
    link: int
    covered: list[Covered] = []


class ReceiptItem(Struct, array_like=True, gc=False):
    """What became of one entry: in the log up to `position`, or refused with `code`.

    position: of its last message, 0 if refused. high: highest sequence of the publisher in the log;
    of a refused record, the highest position of its origin. duplicate: how many of its messages
    were in the log before.
    """

    ordinal: int
    position: int
    high: int
    duplicate: int = 0
    code: str = ""
    reason: str = ""


class JournalReceipt(InternalMessage, tag="receipt"):
    """journal -> requester, after the sync; repeats every item not confirmed yet."""

    incarnation: int
    persisted: int
    items: list[ReceiptItem]


class Confirm(InternalMessage, tag="confirm"):
    """requester -> journal, on its beat: receipts seen up to `confirmed`. Not answered."""

    incarnation: int
    confirmed: int


class Locate(Correlated, tag="locate"):
    """delivery -> journal. Where is this point? `value` is one bookmark, time, vector, "0" or now.

    end: a range ends there: for a vector then the place after the last message that it covers, not
    before the first one that it does not. cut: which side of what `value` names is meant. closed:
    `passed` is to name closed generations that the journal could put back, too.
    """

    value: str
    end: bool = False
    cut: Cut = ""
    closed: bool = False


class Located(Refusable, tag="located"):
    """journal -> delivery. The position after the cut; for a time at or after it.

    serial, offset: a batch at or before it, to be verified; 0 when it is the tail. log_start,
    persisted: as they are now. time_ns: a time later than all of the log. passed: [instance,
    generation, position], a vector that covers what is before `passed_at` (0: not looked for), or
    the one that was asked for, which may cover more (mixed). tied: [publisher, first, last] after
    `position` that it covers by another origin. at_end: as `passed`, at `persisted`. forked: it
    covers messages of an ended generation that are not here: see zbroker.log.former_names.
    """

    position: int = 0
    serial: int = 0
    offset: int = 0
    log_start: int = field(default=0, name="floor")
    persisted: int = 0
    time_ns: int | None = None
    passed: list[tuple[int, int, int]] = []
    passed_at: int = 0
    mixed: bool = False
    tied: list[tuple[int, int, int]] = []
    at_end: list[tuple[int, int, int]] = []
    forked: bool = False


class Holding(Struct, array_like=True, gc=False):
    """A reader that needs the log from `position` on, why, and since when (ms since 1970)."""

    who: str
    what: str
    position: int
    since_ms: int


class Holds(InternalMessage, tag="holds"):
    """reader -> journal, on its beat and when the log start moved. Silence means: holds everything.

    log_start: of the newest watermarks that the reader acted on; it opens no cursor below it any
    more. lowest: no cursor of the reader is below it, U63_MAX if it has none. holdings: the lowest
    ones, at most HOLDINGS_MAX, for people. eager: a subscription or a link wants messages that are
    written and not durable yet, so watermarks are wanted before the sync, too.
    """

    incarnation: int
    log_start: int = field(name="floor")
    lowest: int
    holdings: list[Holding] = []
    eager: bool = False


class Lease(JournalRequest, tag="lease"):
    """admin -> journal: hold the log from `position` on for `ttl_ms`; 0 ends it. By `holding.who`.

    Answered by Done. For readers of files without a cursor in the broker: exports, backups, jobs.
    """

    holding: Holding
    ttl_ms: int


class AskHolders(JournalRequest, tag="ask_holders"):
    """admin -> journal. Answered by Holders."""


class Holders(Correlated, tag="holders"):
    """journal -> admin. silent: readers that did not say yet what they hold at this log start.

    removing: serials that are removed as soon as no reader needs them. stated: the newest serial
    with a complete state snapshot; only older segments may be removed.
    """

    log_start: int = field(name="floor")
    persisted: int
    log_time_ns: int
    holdings: list[Holding]
    silent: list[str] = []
    removing: list[int] = []
    stated: int = 0


class Remove(JournalRequest, tag="remove"):
    """admin -> journal: remove the oldest segments up to `through`. Answered by Removal.

    share_max: percent of the log that goes at most. dry_run: only a plan, `without` a queue.
    """

    through: int
    share_max: int = 100
    dry_run: bool = False
    without: str = ""


class Removal(Correlated, tag="removal"):
    """journal -> admin. the serials that are (or would be) removed; `blocked` says why not more.

    The log start is after them at once; files are removed, oldest first, when every reader has let
    go.
    """

    serials: list[int]
    log_start: int = field(name="floor")
    blocked: str = ""
    held_by: list[Holding] = []


class Retire(JournalRequest, tag="retire"):
    """admin -> journal: unlink one copy of a segment, of which another one is whole. -> Done.

    archived: the copy in the archive directory; packed: the compressed one.
    """

    serial: int
    archived: bool
    packed: bool


class Reindex(JournalRequest, tag="reindex"):
    """admin -> journal: rebuild the bookmark index from the log, while it serves. -> Done."""


class Done(Refusable, tag="done"):
    """journal -> admin: it is done, or refused."""


class Watermarks(InternalMessage, tag="marks"):
    """journal -> everybody, one frame. Each mark is a position below which something holds.

    serial: the segment with the write head. log_time_ns: newest log time given. raised: number,
    first position of generations begun since the start. travels: newest durable record of this one
    that goes to others, or 0. closed, definitions, exchanges: change with generations, with queues
    and points, and with exchanges of all. routed: ingest routes by all that the log says of
    exchanges before it. sendable: written, and durable but for messages: links send it."""

    incarnation: int
    instance: int
    generation: int
    log_start: int = field(name="floor")
    written: int
    persisted: int
    serial: int
    log_time_ns: int
    raised: list[tuple[int, int]] = []
    travels: int = 0
    closed: int = 0
    definitions: int = 0
    exchanges: int = 0
    routed: int = 0
    sendable: int = 0


# -- what is not recorded ---------------------------------------------------------------------


class Live(InternalMessage, tag="live"):
    """ingest -> delivery. Batches of topics that are not recorded, one body frame per entry.

    Sent within the credit and never again: what the incarnation it names does not get is lost.
    """

    incarnation: int
    entries: list[Entry]


class LiveCredit(InternalMessage, tag="grant"):
    """delivery -> ingest: so many body bytes were taken since its Hello, so many may be under way.

    echo: the incarnation of the ingest that said Hello; 0 to one that has not: it must.
    """

    incarnation: int
    echo: int
    taken_bytes: int
    credit_bytes: int


ToJournal = (
    Hello | Open | Close | Append | OpenLink | Replicate | Confirm | Locate
    | Holds | Lease | AskHolders | Remove | Retire | Reindex
)  # fmt: skip
FromJournal = (
    Welcome | UnknownRequester | Opened | LinkOpened | JournalReceipt | Located | Holders | Removal
    | Done
)  # fmt: skip
ToLive = Hello | Live


class Record(Struct, array_like=True, gc=False):
    """A record batch of another instance's log, unchanged; its body is a frame as above.

    instance, generation, position: its origin, of the first message that counts. after: the sender
    has nothing of this origin for us between this origin position and the record; a record
    whose `after` is not here yet is refused with `origin_gap`, as a batch by its `prev`; so is the
    first one of a generation while something that was refused of an older one is missing.
    after_crc: content CRC of the record before it, which the first one after a connect says: if
    that here is another, two histories have one name, `fork`; None: the sender has none.
    seq, prev, count, skip, cut, flags, crc: as in the batch header (zbroker.log.format).
    log_time, columns: the times that it got at its origin.
    A publisher record names its publisher, for this link session, and is not part of its origin's
    chain; a noop says that there is nothing for us of its origin up to its position.
    """

    kind: int
    instance: int
    generation: int
    position: int
    after: int
    log_time: int
    publisher: int = 0
    session: int = 0
    seq: int = 0
    prev: int = 0
    count: int = 1
    skip: int = 0
    cut: int = 0
    flags: int = 0
    crc: int = 0
    topics: list[str] = []
    columns: Columns | None = None
    extra: list[tuple[int, bytes]] = []
    after_crc: int | None = None

    @property
    def last(self) -> int:
        """The origin position of its last message that counts."""
        return self.position + self.count - self.skip - self.cut - 1


MALFORMED: Final = -1  # the kind of a record that could not be decoded
