"""Messages of the replication process to other processes of its instance. Pure.

replication                                     journal
    AskOrigins{}                      ->  OriginRows{rows}          after the sync
    AskPublishers{ids}                ->  PublisherNames{rows}      after the sync
    PeerHolds{peer, generations}      ->
    ForgetPeer{peer}                  ->  PeerForgotten{}           after the sync
    OpenLink, Replicate, JournalReceipt, Holds: see zbroker.wire.internal

replication                                     admin
    Links{rows}                       <-  AskLinks{}
    LinkChanged{text}                 <-  ChangeLink{what, link}

and to ingest, by XPUB: Replicated, at once when it changes, and on each beat.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from zbroker.wire.internal import Correlated, InternalMessage, JournalRequest, Refusable
from zbroker.wire.replication import ClosedGeneration, OriginPosition


class AskOrigins(JournalRequest, tag="ask_origins"):
    """What the log holds, after all that was sent before. An undecided journal says it at once."""


class OriginRows(Correlated, tag="origin_rows"):
    """rows: how far each origin is durable, also the own generations of this instance. closed:
    generations that have ended, which have no row. forgotten: peers that are not waited for.
    open_generations: of this instance, that are not closed, without the newest."""

    generation: int
    started_ns: int
    rows: list[OriginPosition]
    closed: list[ClosedGeneration] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    open_generations: int = 0


class ForgetPeer(JournalRequest, tag="forget_peer"):
    """Generations of this instance are closed without the answer of this peer, until it answers."""

    peer: str


class PeerForgotten(Refusable, tag="peer_forgotten"):
    """That is durable."""


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

    asked_in: the generation of this instance when its link to the peer began.
    """

    incarnation: int
    peer: str
    generations: list[tuple[int, int]]
    asked_in: int = 0


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

    mark: everything that the destination wants below this local position is durable there.
    lag: local positions from there to the durable end of the log. stopped: origins that are not
    sent on, `<instance hex>.<generation>`, and why. problem: what the other end refused last.
    paused: by hand, also while what is on its way is still awaited. by_hand: it was downgraded by a
    person, and stays so. unanswered: it has not said how much of this instance it holds since the
    newest generation began. forgotten: that is not waited for.
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


class Links(Correlated, tag="links"):
    """rows: all links. needed, through: as in Replicated; needed is None without synchronous
    destinations. origins: how far each origin is durable here. open_generations: as in
    OriginRows."""

    rows: list[ReplicationRow]
    persisted: int
    through: int = 0
    needed: int | None = None
    origins: list[OriginPosition] = field(default_factory=list)
    open_generations: int = 0


LinkAction = Literal["pause", "resume", "downgrade", "upgrade", "forget"]


class ChangeLink(Correlated, tag="change_link"):
    """Pause or resume the link to a destination, begin or cease to wait for it, or forget it.

    All but the last hold until the next such request or the end of the process. dry_run: only say
    what would be.
    """

    what: LinkAction
    link: str
    dry_run: bool = False


class LinkChanged(Refusable, tag="link_changed"):
    """It is done (of a dry run: it would be). text: what follows from it."""

    text: str = ""


LinkQuestion = AskLinks | ChangeLink
LinkAnswer = Links | LinkChanged

ToJournal = AskOrigins | AskPublishers | PeerHolds | ForgetPeer
FromJournal = OriginRows | PublisherNames | PeerForgotten
