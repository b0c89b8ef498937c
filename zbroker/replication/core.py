"""Replication: which links there are, and what comes of them. Pure.

    sources  --Hello, SendUnits-->  incoming links  --Replicate-->  journal
    log  --blocks-->  outgoing links  --SendUnits-->  destinations  --receipts-->  marks

The journal says what the log holds when a link begins; from then on receipts and watermarks do. A
journal that is another one ends all incoming links: their sources send again what was on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from msgspec import Struct

from zbroker.engine.contract import Now
from zbroker.engine.effects import JOURNAL, Answer, Note, Say
from zbroker.engine.events import Gone, ReadFailed
from zbroker.engine.journal_session import JournalSession
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS
from zbroker.replication.effects import Effect, LinkBlock, ReadLink, StartFound
from zbroker.replication.holdings import Holdings
from zbroker.replication.incoming_link import CREDIT_BYTES, IncomingLink, last_of
from zbroker.replication.outgoing_link import SILENCE_MS, LinkIdentity, OutgoingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.replicas import (
    AskOrigins,
    AskPublishers,
    OriginRows,
    PeerHolds,
    PublisherNames,
)

FEATURE_LEVEL: Final = 1


class ReplicationSettings(NamedTuple):
    """destinations: names of the links to them."""

    instance: int
    name: str
    group: str
    incarnation: int
    destinations: Sequence[str]


class FromSource(Struct, gc=False):
    """A source says something on its connection."""

    rid: bytes
    message: w.LinkHello | w.SendUnits | w.LinkBeat
    bodies: Sequence[bytes | memoryview] = ()


class FromDestination(Struct, gc=False):
    """A destination says something on the link to it."""

    link: str
    message: w.LinkMessage


Event = (
    m.Welcome | m.UnknownRequester | m.Watermarks | m.JournalReceipt | m.LinkOpened | OriginRows
    | PublisherNames
    | FromSource | FromDestination | StartFound | LinkBlock | ReadFailed | Gone
)  # fmt: skip


class Forwarded(NamedTuple):
    """A record that the journal has not answered yet; its ordinals there and on its link."""

    ordinal: int
    link: IncomingLink
    link_ordinal: int
    origin: Origin
    last: int


class ReplicationCore:
    """The links of one instance."""

    def __init__(self, settings: ReplicationSettings) -> None:
        self.settings = settings
        mine = LinkIdentity(settings.instance, settings.name, settings.group, FEATURE_LEVEL)
        self.own = OwnHoldings(settings.instance)
        self.outgoing = {link: OutgoingLink(link, mine, self.own) for link in settings.destinations}
        self.incoming: dict[bytes, IncomingLink] = {}
        self.persisted = 0
        self._journal = JournalSession(
            settings.incarnation,
            lambda number: m.Hello("replication", settings.incarnation, number=number),
        )
        self._cids = count(1)
        self._begins: dict[int, bytes | None] = {}  # cid: connection of an incoming link, or none
        self._names: dict[int, tuple[str, str]] = {}
        self._asked_names: set[int] = set()
        self._ordinal = 1  # of the next record to the journal
        self._forwarded: deque[Forwarded] = deque()  # what it has not answered yet
        self._confirmed = 0
        self._turns = 0  # whose link reads next
        self._handlers: dict[type, Callable[[Any, Now], Sequence[Effect]]] = {
            m.Welcome: self._welcome,
            m.UnknownRequester: self._unknown,
            m.Watermarks: self._watermarks,
            m.JournalReceipt: self._receipt,
            m.LinkOpened: self._opened,
            OriginRows: self._begun,
            PublisherNames: self._named,
            FromSource: self._source,
            FromDestination: self._destination,
            StartFound: lambda event, _: self.outgoing[event.link].found(event),
            LinkBlock: self._block,
            ReadFailed: self._read_failed,
            Gone: lambda event, _: self._end(event.rid),
        }

    def handle(self, event: Event, now: Now) -> Sequence[Effect]:
        """What follows from an event at once."""
        return self._handlers[type(event)](event, now)

    def tick(self, now: Now, *, drained: bool) -> Sequence[Effect]:
        """Hellos, beats, silence."""
        effects: list[Effect] = [*self._journal.tick(now.mono_ms)]
        for outgoing in self.outgoing.values():
            if self.own.known or outgoing.state != "down":
                effects += outgoing.tick(now.mono_ms, now.wall_ns)
        if drained:
            silent = [
                rid for rid, link in self.incoming.items()
                if now.mono_ms - link.heard_ms > SILENCE_MS
            ]  # fmt: skip
            for rid in silent:
                effects += self._end(rid)
        for link in self.incoming.values():
            if link.welcomed and now.mono_ms >= link.beat_ms:
                effects.append(self._beat(link, now.mono_ms))
        reading = any(link.state == "sending" for link in self.outgoing.values())
        return [*effects, *self._journal.follow(now.mono_ms, needed=reading)]

    def _beat(self, link: IncomingLink, now_ms: int) -> Effect:
        link.beat_ms = now_ms + BEAT_MS
        statement = self.own.changed(link.heard_counter)
        beat = w.LinkBeat(link.session, statement, link.peer.heard, link.answered)
        return Answer(link.rid, beat)

    def next_read(self) -> ReadLink | None:
        """The next block for one of the links, in turn."""
        links = list(self.outgoing.values())
        for number in range(len(links)):
            read = links[(self._turns + number) % len(links)].next_read(self.persisted)
            if read is not None:
                return read
        return None

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        times = [self._journal.next_wake_ms()]
        times += [
            link.next_wake_ms() for link in self.outgoing.values()
            if self.own.known or link.state != "down"
        ]  # fmt: skip
        for link in self.incoming.values():
            times.append(link.heard_ms + SILENCE_MS + 1)
            if link.welcomed:
                times.append(link.beat_ms)
        return min((time for time in times if time is not None), default=None)

    # -- the journal --------------------------------------------------------------------------

    def _welcome(self, welcome: m.Welcome, now: Now) -> Sequence[Effect]:
        renewed = self._journal.welcome(welcome)
        if renewed is None:
            return []
        self.persisted = max(self.persisted, welcome.persisted)
        self._asked_names.clear()
        self._begins.clear()
        self._forwarded.clear()
        wanted = {one for link in self.outgoing.values() for one in link.unnamed(self._names)}
        ended = self._end_all("the journal is another one")
        return [*renewed, *ended, self._ask_origins(None), *self._ask_names(wanted)]

    def _ask_origins(self, rid: bytes | None) -> Effect:
        cid = next(self._cids)
        self._begins[cid] = rid
        return Say(JOURNAL, AskOrigins(cid, self._journal.welcomed_by))

    def _opened(self, opened: m.LinkOpened, now: Now) -> Sequence[Effect]:
        """Refused by the journal: so is the source."""
        link = next((one for one in self.incoming.values() if one.number == opened.cid), None)
        if link is None or not opened.code:
            return []
        self._end(link.rid)
        refused = w.LinkRefused(link.session, opened.code, opened.reason)
        return [Answer(link.rid, refused)]

    def _peer_holds(self, name: str, peer: Holdings) -> list[Effect]:
        """The journal hears how much of its own a peer holds."""
        if not self._journal.welcomed_by:
            return []
        generations = peer.generations_of(self.settings.instance)
        return [Say(JOURNAL, PeerHolds(self._journal.welcomed_by, name, generations))]

    def _unknown(self, _message: m.UnknownRequester, now: Now) -> Sequence[Effect]:
        return [*self._journal.over(now.mono_ms)]

    def _watermarks(self, marks: m.Watermarks, now: Now) -> Sequence[Effect]:
        effects: list[Effect] = [*self._journal.watermarks(marks.incarnation, now.mono_ms)]
        if marks.incarnation != self._journal.welcomed_by:
            return effects
        self.persisted = max(self.persisted, marks.persisted)
        if self.own.known and marks.generation != self.own.generation:
            self.own.lost()
            return [*effects, self._ask_origins(None)]
        if self.own.known:
            here = Origin(marks.instance, marks.generation)
            self.own.raised(here, marks.persisted - 1, 0)
        return effects

    def _begun(self, begun: OriginRows, now: Now) -> Sequence[Effect]:
        if begun.cid not in self._begins:
            return []
        rid = self._begins.pop(begun.cid)
        self.own.begin(begun.generation, begun.started_ns, begun.rows)
        link = self.incoming.get(rid) if rid is not None else None
        if link is None:
            return []
        link.welcomed, link.beat_ms = True, now.mono_ms + BEAT_MS
        self._sources()
        settings = self.settings
        welcome = w.LinkWelcome(
            link.session, FEATURE_LEVEL, settings.name, settings.group, self.own.statement(),
            CREDIT_BYTES,
        )  # fmt: skip
        return [Answer(link.rid, welcome)]

    def _receipt(self, receipt: m.JournalReceipt, now: Now) -> Sequence[Effect]:
        if receipt.incarnation != self._journal.welcomed_by:
            return []
        judged: dict[bytes, IncomingLink] = {}
        for item in receipt.items:
            if not self._forwarded or self._forwarded[0].ordinal != item.ordinal:
                continue  # repeated, or a receipt was lost before it: the beat repeats that one
            forwarded = self._forwarded.popleft()
            self._confirmed = item.ordinal
            if not item.code and forwarded.last:
                self.own.raised(forwarded.origin, forwarded.last, forwarded.link.digest)
            forwarded.link.judged(forwarded.link_ordinal, item)
            judged[forwarded.link.rid] = forwarded.link
        here = (link for link in judged.values() if self.incoming.get(link.rid) is link)
        return [Answer(link.rid, link.receipt()) for link in here]

    # -- links from sources -------------------------------------------------------------------

    def _source(self, event: FromSource, now: Now) -> Sequence[Effect]:
        message = event.message
        if isinstance(message, w.LinkHello):
            return self._hello(event.rid, message, now)
        link = self.incoming.get(event.rid)
        if link is None or link.session != message.session or not link.welcomed:
            return [Answer(event.rid, w.LinkEnded(message.session, "say Hello first"))]
        link.heard_ms = now.mono_ms
        if isinstance(message, w.LinkBeat):
            link.heard_counter = max(link.heard_counter, message.heard)
            if message.ordinal > link.received or w.wrong(message.statement):
                return self._lost(link)
            changed = link.peer.take(message.statement, whole=False)
            return self._peer_holds(link.name, link.peer) if changed else []
        return self._units(link, message, event.bodies)

    def _hello(self, rid: bytes, hello: w.LinkHello, now: Now) -> Sequence[Effect]:
        refusal = self._refusal(hello)
        if refusal is not None:
            return [Answer(rid, w.LinkRefused(hello.session, *refusal))]
        if not self._journal.welcomed_by:
            return [Answer(rid, w.LinkEnded(hello.session, "the journal does not listen yet"))]
        source = hello.statement.instance
        old = next((one for one in self.incoming.values() if one.instance == source), None)
        if old is not None and old.session > hello.session:
            return []  # late, of a socket that the source has given up
        effects = self._end(old.rid) if old is not None else []
        number = next(self._cids)
        link = self.incoming[rid] = IncomingLink(rid, hello, number, now.mono_ms)
        ask = m.OpenLink(number, self._journal.welcomed_by, source, number, [".*"], [".*"])
        said = self._peer_holds(hello.name, link.peer)
        return [*effects, *said, Say(JOURNAL, ask), self._ask_origins(rid)]

    def _refusal(self, hello: w.LinkHello) -> tuple[str, str] | None:
        if reason := w.wrong(hello.statement):
            return "bad_field", reason
        if hello.protocol != w.PROTOCOL:
            reason = f"protocol {hello.protocol} is not known here, {w.PROTOCOL} is"
            return "unknown_version", reason
        if hello.statement.instance == self.settings.instance:
            reason = (
                f"{hello.name} and {self.settings.name} have the same instance id: one is a copy; "
                "give the copy an id of its own, or remove it"
            )
            return "same_instance", reason
        return None

    def _units(
        self, link: IncomingLink, units: w.SendUnits, bodies: Sequence[bytes | memoryview]
    ) -> Sequence[Effect]:
        if len(units.records) != len(bodies) or not link.follows(units):
            return self._lost(link)
        for number, record in enumerate(units.records):
            origin, ordinal = Origin(record.instance, record.generation), self._ordinal + number
            forwarded = Forwarded(ordinal, link, units.ordinal + number, origin, last_of(record))
            self._forwarded.append(forwarded)
        replicate = m.Replicate(
            self._journal.welcomed_by, self._ordinal, self._confirmed, units.records, link.number
        )
        self._ordinal += len(units.records)
        return [Say(JOURNAL, replicate, bodies)]

    def _lost(self, link: IncomingLink) -> list[Effect]:
        ended = w.LinkEnded(link.session, "something was lost on the way")
        return [Answer(link.rid, ended), *self._end(link.rid)]

    def _end(self, rid: bytes) -> list[Effect]:
        if self.incoming.pop(rid, None) is not None:
            self._sources()
        return []

    def _end_all(self, reason: str) -> list[Effect]:
        ended = list(self.incoming.values())
        self.incoming.clear()
        self._sources()
        return [Answer(link.rid, w.LinkEnded(link.session, reason)) for link in ended]

    def _sources(self) -> None:
        self.own.receives_from(one.instance for one in self.incoming.values() if one.welcomed)

    def _read_failed(self, failed: ReadFailed, now: Now) -> Sequence[Effect]:
        """The link begins to read again, later."""
        self.outgoing[failed.of.link].read_failed(now.mono_ms)
        text = f"the log could not be read for {failed.of.link}: {failed.error}; tried again soon"
        return [Note("replication.read_failed", text, values={"link": failed.of.link})]

    # -- links to destinations ----------------------------------------------------------------

    def _destination(self, event: FromDestination, now: Now) -> Sequence[Effect]:
        link, message = self.outgoing[event.link], event.message
        effects = link.heard(message, now.mono_ms)
        if isinstance(message, w.LinkWelcome) and link.state == "finding":
            return [*effects, *self._peer_holds(message.name, link.peer)]
        if isinstance(message, w.LinkBeat) and message.statement.rows and link.state != "down":
            return [*effects, *self._peer_holds(event.link, link.peer)]
        return effects

    def _block(self, block: LinkBlock, now: Now) -> Sequence[Effect]:
        self._turns += 1
        effects, wanted = self.outgoing[block.read.link].read(block, self._names)
        return [*effects, *self._ask_names(wanted)]

    def _ask_names(self, wanted: set[int]) -> list[Effect]:
        asked = sorted(wanted - self._asked_names)
        if not asked or not self._journal.welcomed_by:
            return []
        self._asked_names.update(asked)
        return [Say(JOURNAL, AskPublishers(next(self._cids), self._journal.welcomed_by, asked))]

    def _named(self, names: PublisherNames, now: Now) -> Sequence[Effect]:
        self._names.update({row.id: (row.name, row.principal) for row in names.rows})
        self._asked_names.clear()
        return [effect for link in self.outgoing.values() for effect in link.go_on(self._names)]

    def check(self) -> None:
        """Asserts what is always true."""
        for link in self.outgoing.values():
            link.check()
