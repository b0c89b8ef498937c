"""The links from other instances: their rights, and what of them goes to the journal. Pure.

    Hello --may it?--> OpenLink, AskOrigins to the journal --OriginRows--> Welcome
    SendUnits --nothing is missing before it--> Replicate --receipt, after the sync--> LinkReceipt

Whatever was lost on the way, and a journal that is another one, ends a link: its source says Hello
again, and sends again what was on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from zbroker.access.core import Access
from zbroker.engine.contract import Now
from zbroker.engine.effects import JOURNAL, Answer, LoggedOff, LoggedOn, Note, Say
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS
from zbroker.link_topics import LinkTopics
from zbroker.replication.asking_instances import has_answered
from zbroker.replication.contract import FEATURE_LEVEL, ReplicationSettings
from zbroker.replication.effects import Effect
from zbroker.replication.holdings import Holdings
from zbroker.replication.incoming_link import CREDIT_BYTES, IncomingLink, last_of
from zbroker.replication.link_agreement import LinkAgreement
from zbroker.replication.link_refusals import LinkRefusals
from zbroker.replication.outgoing_link import SILENCE_MS
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.replication.state_choice import StateChoice
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.replicas import PeerHolds, ReplicationRow, StateTaken
from zbroker.wire.surveys import CODES, Peers, stranger, unknown

RIGHT: Final = "replicate"
_COPY: Final = "one is a copy; give the copy an id of its own, or remove it"


class FromSource(Struct, gc=False):
    """A source says something on its connection. key: of that, in Z85; "" without CURVE."""

    rid: bytes
    message: w.ToDestination
    bodies: Sequence[bytes | memoryview] = ()
    key: str = ""


class BadFrame(Struct):
    """A source sent a frame that is not a message."""

    rid: bytes
    error: ClientError


class Forwarded(NamedTuple):
    """A record that the journal has not answered yet; its ordinals there and on its link."""

    ordinal: int
    link: IncomingLink
    link_ordinal: int
    origin: Origin
    last: int


class Sources:
    """The links from other instances, by connection."""

    def __init__(
        self, settings: ReplicationSettings, own: OwnHoldings,
        ask_origins: Callable[[bytes | None], Effect], number: Callable[[], int],
        peers: Peers = unknown,
    ) -> None:  # fmt: skip
        """ask_origins: what the journal holds, for a link. number: of the next link session.
        peers: addresses of connections."""
        self._settings, self._own, self._peers = settings, own, peers
        self.refusals = LinkRefusals(settings.incarnation, peers)
        self._ask_origins, self._number = ask_origins, number
        self.links: dict[bytes, IncomingLink] = {}
        self.access: Access = settings.access
        self._keys = {rule.name: rule.key for rule in settings.destinations}
        self.journal = 0  # that listens; 0: none does
        self._ordinal = 1  # of the next record to the journal
        self._forwarded: deque[Forwarded] = deque()  # what it has not answered yet
        self._confirmed = 0
        self.wanted: Callable[[int, w.Request], Sequence[Effect]]  # set by the core
        self.beginning = StateChoice(settings, own, self.links)
        self.agreement = LinkAgreement(settings, own)

    # -- what sources say ---------------------------------------------------------------------

    def heard(self, event: FromSource, now: Now) -> Sequence[Effect]:
        """A message of a source."""
        message = event.message
        if isinstance(message, w.LinkHello):
            return self._hello(event, message, now)
        link = self.links.get(event.rid)
        if link is None or link.session != message.session or not link.welcomed:
            return [
                Answer(event.rid, w.LinkEnded(message.session, "no Hello on this connection yet"))
            ]
        if link.key != event.key:
            who = self._principal(event.key)
            self.refusals.ended(event.rid, who, link.name, "auth_failed", now.mono_ms)
            return self._ended(link, "the key is not that of the Hello")
        link.heard_ms = now.mono_ms
        if isinstance(message, w.LinkBeat):
            link.heard_counter = max(link.heard_counter, message.heard)
            if message.ordinal > link.received or w.wrong(message.statement):
                return self._lost(link)
            link.lacks = frozenset(message.lacks)
            changed = link.peer.take(message.statement, whole=False)
            self._tell()
            return self._answers(link) if changed else []
        if isinstance(message, w.SendUnits):
            return self._units(link, message, event.bodies)
        if isinstance(message, w.Request):
            return self.wanted(link.instance, message)
        effects = self.beginning.heard(link, message, event.bodies)
        if isinstance(message, w.SkipRange) and effects:
            effects.append(self._ask_origins(None))  # after it: the row has changed
        return effects

    def bad_frame(self, event: BadFrame) -> Sequence[Effect]:
        """Nothing that came after it counts, either."""
        link = self.links.get(event.rid)
        error = event.error
        if link is None:
            return [Answer(event.rid, w.LinkRefused(0, error.code, error.reason[:1_000]))]
        return self._ended(link, error.reason)

    def _hello(self, event: FromSource, hello: w.LinkHello, now: Now) -> Sequence[Effect]:
        rid = event.rid
        try:
            topics, wants = self._allowed(event.key, hello)
        except ClientError as error:
            refused = w.LinkRefused(hello.session, error.code, error.reason)
            return [self._refused(event, hello.name, refused, now)]
        if not self.journal:
            return [
                Answer(
                    rid,
                    w.LinkEnded(
                        hello.session, "the journal is not ready yet; the link is tried again"
                    ),
                )
            ]
        source = hello.statement.instance
        old = next((one for one in self.links.values() if one.instance == source), None)
        if old is not None and (old.key, old.name) != (event.key, hello.name):
            if (refusal := self._copy(old, event.key, hello)) is not None:
                return [self._refused(event, hello.name, refusal, now)]
            effects = self._ended(old, f"{hello.name} sends here with the same instance id")
        elif old is not None and old.peer.started_ns > hello.statement.started_ns:
            # else the two would end each other's links for ever, and each would get some records in
            reason = f"a later start of {old.name} sends here with the same instance id: {_COPY}"
            refusal = w.LinkRefused(hello.session, "same_instance", reason)
            return [self._refused(event, hello.name, refusal, now)]
        elif old is not None and old.session > hello.session:
            return []  # late, of a socket that the source has given up
        else:
            effects = self.end(old.rid) if old is not None else []
        number = self._number()
        link = self.links[rid] = IncomingLink(rid, event.key, hello, number, now.mono_ms)
        link.topics, link.wants = topics, wants
        ask = m.OpenLink(number, self.journal, source, number, topics, [".*"], link.digest)
        said = self._answers(link)
        return [*effects, *said, LoggedOn(rid), Say(JOURNAL, ask), self._ask_origins(rid)]

    def _principal(self, key: str) -> str:
        """The principal of a source, or the beginning of its key, for the audit log."""
        try:
            return self.access.identify(key, None)
        except ClientError:
            return stranger(key)

    def _refused(self, event: FromSource, name: str, refused: w.LinkRefused, now: Now) -> Effect:
        """The answer; and the audit log hears of it."""
        who = self._principal(event.key)
        self.refusals.hello(event.rid, who, name, refused.code, now.mono_ms)
        return Answer(event.rid, refused)

    def _copy(self, old: IncomingLink, key: str, hello: w.LinkHello) -> w.LinkRefused | None:
        """One of two sources with one instance id is a copy: the one that is not a destination
        here, even if it was first; else the one that comes second."""
        if self._keys.get(old.name) != old.key and self._keys.get(hello.name) == key:
            return None
        reason = (
            f"{old.name} sends here with the same instance id, and another key or name than "
            f"{hello.name}: {_COPY}"
        )
        return w.LinkRefused(hello.session, "same_instance", reason)

    def _answers(self, link: IncomingLink) -> list[Effect]:
        """A destination says here, too, how much of this instance it holds; others are not asked:
        what they claim would begin a generation."""
        if self._keys.get(link.name) != link.key:
            return []
        return self.peer_holds(link.name, link.peer)

    def _allowed(self, key: str, hello: w.LinkHello) -> tuple[list[str], LinkTopics]:
        """Patterns of the topics that this source may bring, and what its link carries.

        Raises: ClientError.
        """
        if reason := w.wrong(hello.statement):
            raise ClientError("bad_field", reason)
        if hello.protocol != w.PROTOCOL:
            reason = f"protocol {hello.protocol} is not known here, {w.PROTOCOL} is"
            raise ClientError("unknown_version", reason)
        if hello.statement.instance == self._settings.instance:
            reason = (
                f"{hello.name} and {self._settings.name} have the same instance id: one is a copy; "
                "give the copy an id of its own, or remove it"
            )
            raise ClientError("same_instance", reason)
        rights = self._rights(key, hello.name)
        # patterns cost time: with a right only
        wants = LinkTopics(hello.topics, hello.filter, hello.types)
        if wants.digest != hello.digest:
            raise ClientError("bad_field", "the digest of the link is not that of its topics")
        return rights, wants

    def _rights(self, key: str, name: str) -> list[str]:
        permit = self.access.permit(self.access.identify(key, None), RIGHT)
        if permit.nothing:
            reason = f"{name} may not send its log here: its principal has no right `{RIGHT}`"
            raise ClientError("not_entitled", reason)
        patterns = permit.patterns()
        if patterns is None:
            reason = f"a `deny` for `{RIGHT}` is not supported: list the allowed topics"
            raise ClientError("not_entitled", reason)
        return patterns

    def rules_changed(self, access: Access, now: Now) -> list[Effect]:
        """Ends links whose sources may send here no more, or other topics than before."""
        self.access = access
        effects: list[Effect] = []
        for link in list(self.links.values()):
            try:
                same = self._rights(link.key, link.name) == link.topics
            except ClientError as error:
                same = False
                who = self._principal(link.key)
                self.refusals.ended(link.rid, who, link.name, error.code, now.mono_ms)
            if not same:
                effects += self._ended(link, "the access rules have changed")
        return effects

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
            self.journal, self._ordinal, self._confirmed, units.records, link.number, units.covered
        )
        self._ordinal += len(units.records)
        for one in units.covered:
            link.covered[Origin(one.instance, one.generation)] = one.position
        said: list[Effect] = [Say(JOURNAL, replicate, bodies)]
        if any(covered.keep or self._changes(link, covered) for covered in units.covered):
            said.append(self._ask_origins(None))  # its row says that it is kept, or by what topics
        return said

    def _changes(self, link: IncomingLink, covered: m.Covered) -> bool:
        """Whether the row of an origin gets the topics of this link."""
        row = self._own.row(Origin(covered.instance, covered.generation))
        return row is not None and row.digest != link.digest and covered.instance == link.instance

    # -- what the journal says ----------------------------------------------------------------

    def journal_begins(self, journal: int) -> list[Effect]:
        """Another journal listens: records on their way to the one before may be lost."""
        self.journal = self.beginning.journal = journal
        self._forwarded.clear()
        return self._end_all("the journal was restarted; records on their way are sent again")

    def opened(self, opened: m.LinkOpened, now: Now) -> list[Effect]:
        """Refused by the journal: so is the source."""
        link = next((one for one in self.links.values() if one.number == opened.cid), None)
        if link is None or not opened.code:
            return []
        who = self._principal(link.key)
        self.refusals.hello(link.rid, who, link.name, opened.code, now.mono_ms)
        refused = Answer(link.rid, w.LinkRefused(link.session, opened.code, opened.reason))
        return [refused, *self.end(link.rid)]

    def begun(self, rid: bytes, now: Now) -> list[Effect]:
        """The journal has said what it holds, for this link."""
        link = self.links.get(rid)
        if link is None:
            return []
        link.welcomed, link.beat_ms = True, now.mono_ms + BEAT_MS
        self._tell()
        settings = self._settings
        welcome = w.LinkWelcome(
            link.session, FEATURE_LEVEL, settings.name, settings.group, self._own.statement(),
            CREDIT_BYTES, self.beginning.takes(link),
        )  # fmt: skip
        which = "" if link.wants.is_everything else f" (topics: {link.wants})"
        text = f"{link.name} sends its log here now{which}"
        note = Note("replication.source_up", text, "info", {"link": link.name})
        return [Answer(link.rid, welcome), note, *self.agreement.notes(link)]

    def receipt(self, receipt: m.JournalReceipt, now: Now) -> list[Effect]:
        """Records are durable here, or were refused."""
        judged: dict[bytes, IncomingLink] = {}
        for item in receipt.items:
            if not self._forwarded or self._forwarded[0].ordinal != item.ordinal:
                continue  # repeated, or a receipt was lost before it: the beat repeats that one
            forwarded = self._forwarded.popleft()
            self._confirmed = item.ordinal
            if not item.code and forwarded.last:
                own = forwarded.origin.instance == self._own.instance  # it comes back whole
                digest = 0 if own else forwarded.link.digest
                self._own.raised(forwarded.origin, forwarded.last, digest)
            if item.code in CODES:
                self._beyond_right(forwarded, item.code, now)
            forwarded.link.judged(forwarded.link_ordinal, item)
            judged[forwarded.link.rid] = forwarded.link
        here = (link for link in judged.values() if self.links.get(link.rid) is link)
        return [Answer(link.rid, link.receipt()) for link in here]

    def _beyond_right(self, forwarded: Forwarded, code: str, now: Now) -> None:
        """A record that its source may not bring."""
        link, origin = forwarded.link, forwarded.origin
        who = self._principal(link.key)
        self.refusals.records(link.rid, who, origin, code, now.mono_ms)

    @property
    def peers(self) -> list[Holdings]:
        """What the sources say that they hold."""
        return [link.peer for link in self.links.values()]

    def peer_holds(self, name: str, peer: Holdings, asked_in: int = 0) -> list[Effect]:
        """The journal hears how much of its own a peer holds, and of what it holds more than this
        instance. asked_in: see PeerHolds."""
        if not self.journal:
            return []
        generations = peer.generations_of(self._settings.instance)
        whole = None if peer.is_whole else peer.whole_of(self._settings.instance)
        rows = [*peer.rows.values()]
        if self.beginning.is_open:
            far = [w.OriginPosition(*one.origin, one.position) for one in peer.far_of(self._own)]
            rows = [*peer.more_than(self._own), *far]
        here = "" if self.beginning.is_open else self._settings.name
        less = not has_answered(peer, self._own.asking, here)
        later = [(one.instance, one.generation) for one in peer.later]
        said = PeerHolds(self.journal, name, generations, rows, asked_in, whole, less, later)
        return [Say(JOURNAL, said)]

    def state_taken(self, taken: StateTaken) -> list[Effect]:
        """A part of a state is in the journal, or it was refused."""
        link = next((one for one in self.links.values() if one.number == taken.link), None)
        if link is None:
            return []
        if taken.code:
            if taken.code not in ("dropped", "disk_full"):  # these pass; it is asked again
                self.beginning.refused(link)
            text = f"{link.name} sent a state that is not taken: {taken.reason}; one is asked again"
            note = Note("replication.state_refused", text, values={"link": link.name})
            return [note, *self._ended(link, taken.reason)]
        answer = Answer(link.rid, w.StateReceipt(link.session, taken.parts, taken.done))
        if not taken.done:
            return [answer]
        text = f"the log begins with the state of {link.name}"
        note = Note("replication.state_taken", text, "info", {"link": link.name})
        return [note, answer, *self._end_all("the log has a state now; say Hello again")]

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int, *, drained: bool) -> list[Effect]:
        """Beats; sources of which nothing is heard are forgotten."""
        effects: list[Effect] = [*self.beginning.tick(now_ms)]
        if (stalled := self.beginning.stalled(now_ms)) is not None:
            effects += self._ended(stalled, "the state that was asked for does not come")
        if drained:
            silent = [
                rid for rid, link in self.links.items() if now_ms - link.heard_ms > SILENCE_MS
            ]
            for rid in silent:
                effects += self.end(rid)
        for link in self.links.values():
            if link.welcomed and now_ms >= link.beat_ms:
                effects.append(self._beat(link, now_ms))
        return effects

    def _beat(self, link: IncomingLink, now_ms: int) -> Effect:
        link.beat_ms = now_ms + BEAT_MS
        statement = self._own.changed(link.heard_counter)
        beat = w.LinkBeat(link.session, statement, link.peer.heard, link.answered)
        return Answer(link.rid, beat)

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        times = [self.beginning.next_wake_ms]
        times += [link.heard_ms + SILENCE_MS + 1 for link in self.links.values()]
        times += [link.beat_ms for link in self.links.values() if link.welcomed]
        return min(times, default=None)

    # -- the end ------------------------------------------------------------------------------

    def _lost(self, link: IncomingLink) -> list[Effect]:
        return self._ended(link, "a message of this link was lost; the source sends it again")

    def _ended(self, link: IncomingLink, reason: str) -> list[Effect]:
        ended = w.LinkEnded(link.session, reason[:1_000])
        return [Answer(link.rid, ended), *self.end(link.rid)]

    def end(self, rid: bytes) -> list[Effect]:
        """A link is over; its connection may say Hello again."""
        if self.links.pop(rid, None) is None:
            return []
        self._tell()
        return [LoggedOff(rid)]

    def _end_all(self, reason: str) -> list[Effect]:
        return [effect for link in [*self.links.values()] for effect in self._ended(link, reason)]

    def _tell(self) -> None:
        live = [one for one in self.links.values() if one.welcomed]
        self._own.receives_from(one.instance for one in live if self._brings_all(one, live))

    def _brings_all(self, link: IncomingLink, live: Sequence[IncomingLink]) -> bool:
        """Whether no other instance has to send anything of this source. One that was set back
        may not even know of a generation that it began before, and that another source holds."""
        instance, said, own = link.instance, link.peer, self._own
        if instance in link.lacks:
            return False
        for other in live:
            held = other.peer.generations_of(instance) if other is not link else ()
            for generation, at in held:
                origin = Origin(instance, generation)
                older = generation != said.generation  # more of the newest is on its way
                if older and at > own.reach(origin) and not said.reaches(origin, at):
                    return False
        return True

    def rows(self) -> list[ReplicationRow]:
        """For people."""
        return [
            ReplicationRow(
                link.name, "in", "receiving" if link.welcomed else "opening", link.instance,
                self._peers(link.rid)[0], lag=self._lag(link), topics=[*link.wants.patterns],
                filter=link.wants.filter,
            )
            for link in self.links.values()
        ]  # fmt: skip

    def _lag(self, link: IncomingLink) -> int:
        """Positions of all origins that the source holds, as it said last, and this log does not.
        A generation that is closed here has no row, and nothing of it is missing."""
        own = self._own
        rows = (at for at in link.peer.rows.items() if at[0] not in own.closed)
        return sum(
            max(0, row.position - max(own.position(origin), link.covered.get(origin, 0)))
            for origin, row in rows
        )
