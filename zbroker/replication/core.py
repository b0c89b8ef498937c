"""Replication: which links there are, and what comes of them. Pure.

    sources  --Hello, SendUnits-->  links from them  --Replicate-->  journal
    log  --blocks-->  links to destinations  --SendUnits-->  destinations  --receipts-->  marks

The journal says what the log holds when a link begins; from then on receipts and watermarks do. How
far enough destinations hold the log is published to ingest: acknowledgements wait for it. What a
destination lacks is held in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from msgspec import Struct

from zbroker.engine import effects as e
from zbroker.engine import events as ev
from zbroker.engine.contract import MS_NS, Now
from zbroker.engine.effects import JOURNAL, Note, Say
from zbroker.engine.events import Gone, ReadFailed
from zbroker.engine.journal_session import JournalSession
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS
from zbroker.replication import forks
from zbroker.replication.asking_instances import asking_rows
from zbroker.replication.contract import FEATURE_LEVEL, LinkIdentity, ReplicationSettings
from zbroker.replication.durability import Durability
from zbroker.replication.effects import (
    Effect,
    LinkBlock,
    LinkEffect,
    MarkSubscribed,
    MoveMark,
    PublishMark,
    ReadLink,
    ReadState,
    StartFound,
    StateBlock,
)
from zbroker.replication.far_holdings import far_rows
from zbroker.replication.link_changes import LinkChanges
from zbroker.replication.link_needs import LinkNeeds
from zbroker.replication.link_rows import row_of
from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.replication.request_routes import RequestRoutes
from zbroker.replication.return_fence import ReturnFence
from zbroker.replication.sources import BadFrame, FromSource, Sources
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.owner_requests import LiveSources, QueuesHere, ToReplication
from zbroker.wire.replicas import (
    AskLinks,
    AskOrigins,
    AskPublishers,
    ChangeLink,
    FirstStartRow,
    ForgetPeer,
    ForkOrigin,
    LinkChanged,
    Links,
    OriginForked,
    OriginRows,
    PeerForgotten,
    PublisherNames,
    Replicated,
    StateTaken,
)
from zbroker.wire.surveys import AskRefusals, Peers, unknown


class FromDestination(Struct, gc=False):
    """A destination says something on the link to it."""

    link: str
    message: w.LinkMessage


class DestinationBroke(Struct, gc=False):
    """A destination sent a frame that is not a message of a link."""

    link: str
    reason: str


Event = (
    m.Welcome | m.UnknownRequester | m.Watermarks | m.JournalReceipt | m.LinkOpened | OriginRows
    | PublisherNames | PeerForgotten | OriginForked | FirstStartRow | StateTaken | StateBlock
    | FromSource | BadFrame | FromDestination | DestinationBroke | StartFound | LinkBlock
    | MarkSubscribed | ReadFailed | Gone | ev.RulesChanged | ev.Unauthenticated | ev.Asked
    | ev.StopAsked
)  # fmt: skip


class ReplicationCore:
    """The links of one instance."""

    def __init__(self, settings: ReplicationSettings, peers: Peers = unknown) -> None:
        """peers: addresses of connections of sources. Raises: ClientError bad_filter."""
        self.settings = settings
        mine = LinkIdentity(settings.instance, settings.name, settings.group, FEATURE_LEVEL)
        self.own = OwnHoldings(settings.instance)
        self.outgoing = {
            rule.name: OutgoingLink(rule.name, mine, self.own, rule.topics, settings.type_of)
            for rule in settings.destinations
        }
        self.durability = Durability(settings.destinations, settings.sync_needed, settings.min_sync)
        self._changes = LinkChanges(self.outgoing, self.durability)
        self._cids = count(1)
        self.sources = Sources(
            settings, self.own, self._ask_origins, lambda: next(self._cids), peers
        )
        self._requests = RequestRoutes(settings, self.outgoing, self.sources)
        self.sources.wanted = self._requests.heard
        self._fence = ReturnFence(self.outgoing, self.own, settings.return_wait_ms)
        self.persisted = self._sendable = 0
        self._serial = 0  # of the open segment; 0: not known
        self._log_start = 0
        self._needs = LinkNeeds(self.outgoing, self.own)
        self._journal = JournalSession(
            settings.incarnation,
            lambda number: m.Hello("replication", settings.incarnation, number=number),
        )
        self._begins: dict[int, bytes | None] = {}  # cid: connection of an incoming link, or none
        self._names: dict[int, tuple[str, str]] = {}
        self._asked_names: set[int] = set()
        self._forgets: dict[int, tuple[bytes, LinkChanged]] = {}  # answers, once that is durable
        self._forks: dict[int, tuple[bytes, ChangeLink, ForkOrigin]] = {}  # likewise
        self._turns = 0  # whose link reads next
        self._beat_ms = 0
        self._published: tuple[int, int, int] | None = None
        self._ready = False
        self._another = False  # journal, which has not said yet what it holds
        self._handlers = self._events()

    def _events(self) -> dict[type, Callable[[Any, Now], Sequence[Effect]]]:
        return {
            m.Welcome: self._welcome,
            m.UnknownRequester: self._unknown,
            m.Watermarks: self._watermarks,
            m.JournalReceipt: self._receipt,
            m.LinkOpened: lambda event, now: self.sources.opened(event, now),
            OriginRows: self._begun,
            PublisherNames: self._named,
            PeerForgotten: self._forgotten,
            OriginForked: self._forked,
            FromSource: lambda event, now: self.sources.heard(event, now),
            BadFrame: lambda event, _: self.sources.bad_frame(event),
            FromDestination: self._destination,
            DestinationBroke: self._broke,
            StartFound: self._found,
            LinkBlock: self._block,
            StateBlock: self._state_block,
            FirstStartRow: lambda event, _: self.sources.beginning.said(event),
            StateTaken: self._state_taken,
            MarkSubscribed: lambda _event, _: self._publish(again=True),
            ReadFailed: self._read_failed,
            Gone: lambda event, _: self.sources.end(event.rid),
            ev.RulesChanged: lambda event, now: self.sources.rules_changed(event.access, now),
            ev.Unauthenticated: self._unauthenticated,
            ev.Asked: self._asked,
            ev.StopAsked: lambda _event, _: [e.Exit()],
        }

    def handle(self, event: Event, now: Now) -> Sequence[Effect]:
        """What follows from an event at once."""
        return self._handlers[type(event)](event, now)

    def tick(self, now: Now, *, drained: bool) -> Sequence[Effect]:
        """Hellos, beats, silence; what the others of this instance have to know."""
        now_ms = now.mono_ms
        beat = now_ms >= self._beat_ms
        if beat:
            self._beat_ms = now_ms + BEAT_MS
            self._requests.beat()
            self._pass_on()
        effects: list[Effect] = [*self._journal.tick(now_ms)]
        for name, link in self.outgoing.items():
            if self.own.known or link.state != "down":
                effects += self._from_link(name, link.tick(now_ms, now.wall_ns))
        effects += self.sources.tick(now_ms, drained=drained)
        effects += self.durability.tick(now_ms, self.persisted)
        effects += self._hold(now, again=beat)
        effects += self._publish(again=beat)
        return [*effects, *self._journal.follow(now_ms, needed=self._sends)]

    def _pass_on(self) -> None:
        """What peers say goes on to instances to which they have no link."""
        peers = [link.peer for link in self.outgoing.values()]
        self.own.far = far_rows(self.own, [*peers, *self.sources.peers])
        self.own.asking = asking_rows(self.settings.name, self.own.awaits, peers)

    def _from_link(self, name: str, effects: Sequence[LinkEffect]) -> list[Effect]:
        """What a link to a destination decided; where its mark moved, that may be published."""
        kept: list[Effect] = [one for one in effects if not isinstance(one, MoveMark)]
        if len(kept) < len(effects):
            self.durability.moved(name, self.outgoing[name].mark)
            kept += self._publish(again=False)
        return kept

    def _publish(self, *, again: bool) -> list[Effect]:
        durability, journal = self.durability, self._journal.welcomed_by
        if not durability.asked or not journal:
            return []
        said, before = (journal, durability.through, durability.needed), self._published
        if said == before and not again:
            return []
        self._published = said
        to_all = again or before is None or durability.through < before[1]
        return [PublishMark(Replicated(*said), to_all)]

    def _hold(self, now: Now, *, again: bool) -> list[Effect]:
        """The part of the log that a destination may lack. Where acknowledgements wait for one, a
        link sends messages while they become durable here."""
        said = self._needs.say(
            self._journal.welcomed_by, self._log_start, self.persisted, now.wall_ns // MS_NS,
            eager=self.durability.asked and self._sends, again=again,
        )  # fmt: skip
        return [Say(JOURNAL, said)] if said is not None else []

    @property
    def _sends(self) -> bool:
        return any(link.state == "sending" for link in self.outgoing.values())

    def next_read(self) -> ReadLink | ReadState | None:
        """The next block for one of the links, in turn."""
        links = list(self.outgoing.values())
        for number in range(len(links)):
            link = links[(self._turns + number) % len(links)]
            read = link.next_read(self._sendable, self._serial)
            if read is not None:
                return read
        return None

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        times = [self._journal.next_wake_ms(), self.sources.next_wake_ms(), self._beat_ms]
        times.append(self.durability.next_wake_ms())
        times += [
            link.next_wake_ms() for link in self.outgoing.values()
            if self.own.known or link.state != "down"
        ]  # fmt: skip
        return min((time for time in times if time is not None), default=None)

    # -- the journal --------------------------------------------------------------------------

    def _welcome(self, welcome: m.Welcome, now: Now) -> Sequence[Effect]:
        renewed = self._journal.welcome(welcome)
        if renewed is None:
            return []
        self.persisted = max(self.persisted, welcome.persisted)
        self._sendable, self._serial = welcome.persisted, 0
        self._log_start = welcome.log_start
        self._asked_names.clear()
        self._begins.clear()
        for link in self.outgoing.values():
            link.journal_begins(welcome.persisted)
        self.durability.journal_begins(welcome.persisted)
        self._another = True
        wanted = {one for link in self.outgoing.values() for one in link.unnamed(self._names)}
        ended = self.sources.journal_begins(welcome.incarnation)
        ready = [] if self._ready else [e.Ready()]
        self._ready = True
        asks = [self._ask_origins(None), *self._ask_names(wanted)]
        return [*renewed, *ended, *asks, *self._publish(again=True), *ready]

    def _ask_origins(self, rid: bytes | None) -> Effect:
        cid = next(self._cids)
        self._begins[cid] = rid
        return Say(JOURNAL, AskOrigins(cid, self._journal.welcomed_by))

    def _unknown(self, _message: m.UnknownRequester, now: Now) -> Sequence[Effect]:
        return self._over(self._journal.over(now.mono_ms))

    def _over(self, effects: Sequence[Effect]) -> list[Effect]:
        if not self._journal.welcomed_by:
            self.sources.journal = 0
        return [*effects]

    def _watermarks(self, marks: m.Watermarks, now: Now) -> Sequence[Effect]:
        effects = self._over(self._journal.watermarks(marks.incarnation, now.mono_ms))
        if marks.incarnation != self._journal.welcomed_by:
            return effects
        self.persisted = max(self.persisted, marks.persisted)
        self._sendable, self._serial = max(self._sendable, marks.sendable), marks.serial
        self._log_start = max(self._log_start, marks.log_start)
        if self.own.known and marks.generation != self.own.generation:
            self.own.lost()
            return [*effects, self._ask_origins(None)]
        if self.own.known and marks.closed != self.own.closings:
            self.own.closings = marks.closed
            effects = [*effects, self._ask_origins(None)]
        if self.own.known and marks.travels:
            here = Origin(marks.instance, marks.generation)
            self.own.raised(here, marks.travels, 0)
        return effects

    def _begun(self, begun: OriginRows, now: Now) -> Sequence[Effect]:
        if begun.cid not in self._begins:
            return []
        rid, own = self._begins.pop(begun.cid), self.own
        own.begin(begun.generation, begun.started_ns, begun.rows, begun.closed)
        own.takes_state, own.filling, own.awaits = begun.takes_state, begun.filling, begun.awaits
        own.later = [w.LaterGeneration(*one) for one in begun.later[: w.LATER_MAX]]
        own.forgotten, own.open_generations = frozenset(begun.forgotten), begun.open_generations
        self._pass_on()
        effects = [
            effect for name, link in self.outgoing.items()
            if self._another or link.asked_in < begun.generation
            for effect in self._from_link(name, link.ask_again(now.mono_ms))
        ]  # fmt: skip
        self._another = False
        return [*effects, *self.sources.begun(rid, now)] if rid is not None else effects

    def _state_taken(self, taken: StateTaken, now: Now) -> Sequence[Effect]:
        effects = self.sources.state_taken(taken)
        return [*effects, self._ask_origins(None)] if taken.done else effects

    def _receipt(self, receipt: m.JournalReceipt, now: Now) -> Sequence[Effect]:
        if receipt.incarnation != self._journal.welcomed_by:
            return []
        return self.sources.receipt(receipt, now)

    def _read_failed(self, failed: ReadFailed, now: Now) -> Sequence[Effect]:
        """The link begins to read again, later."""
        self.outgoing[failed.of.link].read_failed(now.mono_ms)
        link = failed.of.link
        why = f"the log could not be read for {link}: {failed.error}"
        text = f"{why}; nothing is sent to it meanwhile; tried again soon"
        return [Note("replication.read_failed", text, values={"link": failed.of.link})]

    # -- links to destinations ----------------------------------------------------------------

    def _destination(self, event: FromDestination, now: Now) -> Sequence[Effect]:
        link, message = self.outgoing[event.link], event.message
        effects = self._from_link(event.link, link.heard(message, now.mono_ms))
        if not link.is_up or getattr(message, "session", 0) != link.session:
            return effects  # of an earlier session; before a Welcome nothing is known of this one
        if isinstance(message, w.Request):
            return [*effects, *self._requests.heard(link.peer.instance, message)]
        welcomed = isinstance(message, w.LinkWelcome) and link.state == "finding"
        says = link.peer.news or not self.sources.beginning.is_open  # then all of it matters
        if welcomed or (isinstance(message, w.LinkBeat) and says):
            return [*effects, *self.sources.peer_holds(event.link, link.peer, link.asked_in)]
        return effects

    def _found(self, found: StartFound, now: Now) -> Sequence[Effect]:
        return self._from_link(found.link, self.outgoing[found.link].found(found))

    def _broke(self, event: DestinationBroke, now: Now) -> Sequence[Effect]:
        return self._from_link(
            event.link, self.outgoing[event.link].broke(event.reason, now.mono_ms)
        )

    def _block(self, block: LinkBlock, now: Now) -> Sequence[Effect]:
        self._turns += 1
        name = block.read.link
        effects, wanted = self.outgoing[name].read(block, self._names)
        return [*self._from_link(name, effects), *self._ask_names(wanted)]

    def _state_block(self, block: StateBlock, now: Now) -> Sequence[Effect]:
        self._turns += 1
        link = self.outgoing[block.read.link]
        return self._from_link(link.link, link.read_state(block, now.mono_ms))

    def _ask_names(self, wanted: set[int]) -> list[Effect]:
        asked = sorted(wanted - self._asked_names)
        if not asked or not self._journal.welcomed_by:
            return []
        self._asked_names.update(asked)
        return [Say(JOURNAL, AskPublishers(next(self._cids), self._journal.welcomed_by, asked))]

    def _named(self, names: PublisherNames, now: Now) -> Sequence[Effect]:
        self._names.update({row.id: (row.name, row.principal) for row in names.rows})
        self._asked_names.clear()
        return [
            effect for name, link in self.outgoing.items()
            for effect in self._from_link(name, link.go_on(self._names))
        ]  # fmt: skip

    # -- for operators ---------------------------------------------------------------------------

    def _forget(self, rid: bytes, link: str, answer: LinkChanged) -> list[Effect]:
        """The journal keeps it; it is done when that says so."""
        if not self._journal.welcomed_by:
            reason = "the journal does not answer now; ask again"
            return [e.Tell(rid, LinkChanged(answer.cid, code="not_ready", reason=reason))]
        cid = next(self._cids)
        self._forgets[cid] = rid, answer
        return [Say(JOURNAL, ForgetPeer(cid, self._journal.welcomed_by, link))]

    def _forgotten(self, said: PeerForgotten, now: Now) -> Sequence[Effect]:
        if said.cid not in self._forgets:
            return []
        rid, answer = self._forgets.pop(said.cid)
        if said.code:
            answer = LinkChanged(answer.cid, code=said.code, reason=said.reason)
        return [e.Tell(rid, answer), self._ask_origins(None)]

    def _fork(self, rid: bytes, ask: ChangeLink) -> list[Effect]:
        """The journal keeps it, likewise."""
        sources = self.sources.links.values()
        found = forks.of_host(ask, sources, [*self.outgoing], self._journal.welcomed_by)
        if isinstance(found, LinkChanged):
            return [e.Tell(rid, found)]
        found.cid = next(self._cids)
        self._forks[found.cid] = rid, ask, found
        return [Say(JOURNAL, found)]

    def _forked(self, said: OriginForked, now: Now) -> Sequence[Effect]:
        if said.cid not in self._forks:
            return []
        rid, ask, asked = self._forks.pop(said.cid)
        answer = forks.answer(said, ask, asked)
        if answer.code or ask.dry_run:
            return [e.Tell(rid, answer)]
        text = f"{ask.link}: fork asked for by an operator; {answer.text}"
        note = Note("replication.fork", text, "info", {"link": ask.link})
        return [note, e.Tell(rid, answer), self._ask_origins(None)]

    # -- the queues of this instance -------------------------------------------------------------

    def _queues_here(self, rid: bytes, here: QueuesHere, now: Now) -> list[Effect]:
        """Requests of others go there; if it has just begun, it asks whether it may offer."""
        self._requests.rid = rid
        read = self._fence.look(now.mono_ms) if here.returning else None
        live = e.Tell(rid, LiveSources(sorted(self.own.sources)))
        return [live, e.Tell(rid, read)] if read is not None else [live]

    # -- questions -------------------------------------------------------------------------------

    def _unauthenticated(self, event: ev.Unauthenticated, now: Now) -> Sequence[Effect]:
        self.sources.refusals.connection(event.key, event.host, now.mono_ms)
        return ()

    def _asked(self, asked: ev.Asked, now: Now) -> Sequence[Effect]:
        ask: AskLinks | ChangeLink | AskRefusals | ToReplication = asked.question
        if isinstance(ask, QueuesHere):
            return self._queues_here(asked.rid, ask, now)
        if isinstance(ask, ToReplication):
            return self._requests.ask(ask)
        if isinstance(ask, AskRefusals):
            return [e.Tell(asked.rid, self.sources.refusals.report(ask))]
        if isinstance(ask, ChangeLink) and ask.what == "fresh":
            begins, changed = self.sources.beginning.fresh(ask)
            return [*begins, e.Tell(asked.rid, changed)]
        if isinstance(ask, ChangeLink) and ask.what == "fork":
            return self._fork(asked.rid, ask)
        if isinstance(ask, ChangeLink):
            decided, changed = self._changes.change(ask, now.mono_ms)
            if ask.what == "forget" and not changed.code and not ask.dry_run:
                return self._forget(asked.rid, ask.link, changed)
            effects = self._from_link(ask.link, decided)
            return [*effects, *self._publish(again=False), e.Tell(asked.rid, changed)]
        durability, rows = self.durability, self.sources.rows()
        rules = {rule.name: rule for rule in self.settings.destinations}
        for name, link in self.outgoing.items():
            row = row_of(link, self.persisted)
            row.mode = "sync" if rules[name].sync else "async"
            row.downgraded, row.by_hand = durability.downgraded(name), durability.by_hand(name)
            answered = link.state in ("finding", "sending")
            row.unanswered = not answered or link.asked_in < self.own.generation
            row.forgotten = name in self.own.forgotten
            rows.append(row)
        needed = durability.needed if durability.asked else None
        origins = self.own.statement().rows
        answer = Links(ask.cid, rows, self.persisted, durability.through, needed, origins)
        answer.open_generations = self.own.open_generations
        self.sources.beginning.explain(answer)
        return [e.Tell(asked.rid, answer)]

    def stats(self) -> dict[str, int | float | str]:
        """What the process reports."""
        out = self.outgoing.values()
        stats: dict[str, int | float | str] = {
            "sources": len(self.sources.links),
            "destinations": len(out),
            "sending": sum(link.state == "sending" for link in out),
            "lag_max": max((max(0, self.persisted - link.mark) for link in out), default=0),
            "stopped": sum(len(link.stopped) for link in out),
            "paused": sum(link.paused for link in out),
            "journal": "up" if self._journal.welcomed_by else "down",
        }
        if self.durability.asked:
            stats["needed"] = self.durability.needed
        return stats

    def check(self) -> None:
        """Asserts what is always true."""
        for link in self.outgoing.values():
            link.check()
