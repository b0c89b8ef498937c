"""Messages of the replication process to other processes of its instance. Pure.

replication                                     journal
    AskOrigins{}                      ->  OriginRows{rows}          after the sync
    AskPublishers{ids}                ->  PublisherNames{rows}      after the sync
    PeerHolds{peer, generations, rows} ->
    AskFirstStart{}                   ->  FirstStartRow{phase, text}
    TakeState{part, last} + body      ->  StateTaken{parts, done}   the last one after the sync
    FollowLog{}, BeginFresh{}         ->
    SkipMissing{origin, first, last}  ->
    ForgetPeer{peer}                  ->  PeerForgotten{}           after the sync
    ForkOrigin{origin, last, host}    ->  OriginForked{end}         after the sync
    OpenLink, Replicate, JournalReceipt, Holds: see zbroker.wire.internal

replication                                     admin
    Links{rows}                       <-  AskLinks{}
    LinkChanged{text}                 <-  ChangeLink{what, link}
    RefusalRows{rows}                 <-  AskRefusals{after}        see zbroker.wire.surveys

and by XPUB: Replicated, on each beat to ingest, delivery and queues; at once when it changes to
ingest, and to the others while something there waits for it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from zbroker.wire.internal import Correlated, InternalMessage, JournalRequest, Refusable
from zbroker.wire.replication import ClosedGeneration, OriginPosition
from zbroker.wire.surveys import AskRefusals


class AskOrigins(JournalRequest, tag="ask_origins"):
    """What the log holds, after all that was sent before. An undecided journal says it at once."""


class OriginRows(Correlated, tag="origin_rows"):
    """rows: how far each origin is durable, also the own generations of this instance. closed:
    generations that have ended, which have no row. forgotten: peers that are not waited for.
    open_generations: of this instance, that are not closed, without the newest. takes_state: the
    log is empty, and was never open: it may begin with the state of another one. filling: it gets
    what others hold. awaits: see FirstStartRow. later: of other instances, a generation above
    all in `rows` and `closed`, which readers have seen or a state has named: [instance, generation]
    of each."""

    generation: int
    started_ns: int
    rows: list[OriginPosition]
    closed: list[ClosedGeneration] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    open_generations: int = 0
    takes_state: bool = False
    filling: bool = False
    awaits: list[str] | None = None
    later: list[tuple[int, int]] = field(default_factory=list)


class ForgetPeer(JournalRequest, tag="forget_peer"):
    """Generations of this instance are closed without the answer of this peer, until it answers."""

    peer: str


class PeerForgotten(Refusable, tag="peer_forgotten"):
    """That is durable."""


class ForkOrigin(JournalRequest, tag="fork_origin"):
    """Records beyond the end of a closed generation of this instance, up to `last`, are taken again
    as new ones from the instance `host`. dry_run: only say whether they can be."""

    instance: int
    generation: int
    last: int
    host: int
    dry_run: bool = False


class OriginForked(Refusable, tag="origin_forked"):
    """That is durable. end: where the generation has ended here."""

    end: int = 0


class AskPublishers(JournalRequest, tag="ask_publishers"):
    """The names of publishers, by id."""

    ids: list[int]


class PublisherName(Struct, array_like=True, gc=False):
    """One row of the answer."""

    id: int
    name: str
    principal: str


class PublisherNames(Correlated, tag="publisher_names"):
    """Those that are known."""

    rows: list[PublisherName]


class PeerHolds(InternalMessage, tag="peer_holds"):
    """A peer says how far it has generations of this instance: [generation, position] of each.

    asked_in: the generation of this instance when its link to the peer began. whole: the same of
    those that it has with all topics; None: all are. rows: all that it holds, while this one is not
    open; then of other instances, what it has with all topics and this one has not, or says that
    others have. filling: it does not hold yet what belongs there. later: as in OriginRows, of this
    instance, too.
    """

    incarnation: int
    peer: str
    generations: list[tuple[int, int]]
    rows: list[OriginPosition] = field(default_factory=list)
    asked_in: int = 0
    whole: list[tuple[int, int]] | None = None
    filling: bool = False
    later: list[tuple[int, int]] = field(default_factory=list)


class MissingRange(Struct, array_like=True, gc=False):
    """Positions of an origin that are not in this log: why is "state", "skipped" or "forked"; or
    not all of them, "topics"."""

    instance: int
    generation: int
    first: int
    last: int
    why: str


class AskFirstStart(JournalRequest, tag="ask_first_start"):
    """Is the log open to publishers, or does it get something first?"""


class FirstStartRow(Correlated, tag="first_start_row"):
    """phase: see zbroker.journal.first_start.

    missing: peers that did not answer. text: for people, "" if it is open. bytes: of the state that
    came so far. ranges: of origins, that are not in this log. awaits: peers without which this log
    does not open as a new one, while it asks them; None: it does not ask, or is not empty.
    """

    phase: str
    missing: list[str] = field(default_factory=list)
    text: str = ""
    bytes: int = 0
    ranges: list[MissingRange] = field(default_factory=list)
    awaits: list[str] | None = None


class TakeState(InternalMessage, tag="take_state"):
    """A part of the state of a source, over the link session with this number. The body is a frame.
    Answered by StateTaken."""

    incarnation: int
    link: int
    part: int
    last: bool = False


class StateTaken(InternalMessage, tag="state_taken"):
    """So many parts are here; done: all of it is durable. With a code it was refused."""

    link: int
    parts: int
    done: bool = False
    code: str = ""
    reason: str = ""


class FollowLog(InternalMessage, tag="follow_log"):
    """The source that was asked for a state has everything in its log: it begins there."""

    incarnation: int


class BeginFresh(InternalMessage, tag="begin_fresh"):
    """A person says that this log is a new one: nothing has to come first."""

    incarnation: int


class SkipMissing(InternalMessage, tag="skip_missing"):
    """A person at the source of this link session gave up a range of an origin."""

    incarnation: int
    link: int
    instance: int
    generation: int
    first: int
    last: int


class Replicated(InternalMessage, tag="replicated"):
    """Everything below `through` that somebody waits for is durable at as many synchronous
    destinations as the config asks for; positions are those of the journal with this incarnation.

    needed: how many are waited for now; 0: none, since all were downgraded.
    """

    journal: int
    through: int
    needed: int


class AskLinks(Correlated, tag="ask_links"):
    """How is each link?"""


class ReplicationRow(Struct, omit_defaults=True):
    """One link. direction: "out" to a destination, "in" from a source. state: of an outgoing link
    down, greeting, finding, sending or paused; of an incoming one opening or receiving.

    address: of a source. mark: everything that the destination wants below this local position is
    durable there. lag: local positions from there to the durable end of the log; of an incoming
    link the positions of all origins that the source has said it holds, and this log does not.
    stopped: origins that are not sent on, `<instance hex>.<generation>`, and why. problem: what the
    other end refused last.
    paused: by hand, also while what is on its way is still awaited. by_hand: it was downgraded by a
    person, and stays so. unanswered: it has not said how much of this instance it holds since the
    newest generation began. forgotten: that is not waited for. topics: of the link; none: all.
    filter: of the link; "": none.
    """

    name: str
    direction: str
    state: str
    instance: int = 0
    address: str = ""
    mode: str = ""
    downgraded: bool = False
    mark: int = 0
    lag: int = 0
    on_the_way_bytes: int = 0
    stopped: dict[str, str] = {}
    problem: str = ""
    paused: bool = False
    by_hand: bool = False
    unanswered: bool = False
    forgotten: bool = False
    topics: list[str] = []
    filter: str = ""


class Links(Correlated, tag="links"):
    """rows: all links. needed, through: as in Replicated; needed is None without synchronous
    destinations. origins: how far each origin is durable here. phase, waits: of the first start of
    this log, see FirstStartRow; ranges: not in it. open_generations: as in OriginRows."""

    rows: list[ReplicationRow]
    persisted: int
    through: int = 0
    needed: int | None = None
    origins: list[OriginPosition] = field(default_factory=list)
    phase: str = "open"
    waits: str = ""
    state_bytes: int = 0
    ranges: list[MissingRange] = field(default_factory=list)
    open_generations: int = 0


LinkAction = Literal["pause", "resume", "downgrade", "upgrade", "skip", "forget", "fresh", "fork"]


class ChangeLink(Correlated, tag="change_link"):
    """Pause or resume the link to a destination, or begin or cease to wait for it: until the next
    such request, or the end of the process.

    forget: generations are closed without the answer of the destination, until it answers.
    skip: give up what the destination lacks of `origin` and this log does not have; "" of all.
    fresh: this log begins as a new one; `link` is "". fork: take again what the source `link` has
    of `origin` beyond its end. dry_run: only say what would be.
    """

    what: LinkAction
    link: str
    dry_run: bool = False
    origin: str = ""


class LinkChanged(Refusable, tag="link_changed"):
    """It is done (of a dry run: it would be). text: what follows from it."""

    text: str = ""


LinkQuestion = AskLinks | ChangeLink | AskRefusals
LinkAnswer = Links | LinkChanged

ToJournal = (
    AskOrigins | AskPublishers | PeerHolds | ForgetPeer | ForkOrigin | AskFirstStart | TakeState
    | FollowLog | BeginFresh | SkipMissing
)  # fmt: skip
FromJournal = (
    OriginRows | PublisherNames | PeerForgotten | OriginForked | FirstStartRow | StateTaken
)
