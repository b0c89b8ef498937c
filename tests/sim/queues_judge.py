"""What the queues world promises, and who watches over it.

    the log     what is durable, folded by rules of its own: what every queue must be (`Ref`)
    the process    each turn: the same as the log says, as far as it has read it
    offers      in order: priority, position, group, barrier
    sends       what is sent is in the queue, leased to whom it is sent, and flagged if it was sent
                before; nothing that was settled is ever sent again
    holds       nothing that is in a queue is let go of

More than once and in another order messages come only where they came back: after a failure, a
lost consumer, a restart (all of that flagged), and where an operator requeued dead letters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import convert
from pyroaring import BitMap64

from tests.sim.queues_clients import rows_of
from zbroker.config import QueueConfig
from zbroker.engine.effects import Send
from zbroker.ids import parse_bookmark, parse_vector
from zbroker.log import records as r
from zbroker.log.format import (
    FLAG_UNIT,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_WIRING,
)
from zbroker.log.format import Batch as LogBatch
from zbroker.log.records import POINT, PURGE, PurgeRecord
from zbroker.queues.commits import Numbered
from zbroker.queues.effects import Effect, Give
from zbroker.queues.queue_state import GIVEN_UP, QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.work import consumers
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Offer
from zbroker.wire import bodies, codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.internal import Holds

if TYPE_CHECKING:
    from tests.sim.queues_process import ProcessNode
    from tests.sim.queues_world import World

MS_NS = 1_000_000
#: what the queues of the world say of a payload; the product reads the same texts by itself
FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "": lambda data: True,
    "/p > 0": lambda data: data["p"] > 0,
    "/p >= 0": lambda data: True,
    "/b = 1": lambda data: data["b"] == 1,
}


class Violation(AssertionError):
    """The world broke a promise."""


class Message(NamedTuple):
    """A message as it is in the log. expires_ns: its own, 0: never."""

    position: int
    topic: str
    data: bytes
    content: dict[str, Any]
    log_time: int
    expires_ns: int


@dataclass(eq=False)
class Ref:
    """One life of a queue as the durable log says. begun: a process has run it.

    sent, unflagged: how often each message was sent, and how often as if for the first time; for
    barriers by consumer. done: what was settled as acknowledged or rejected. asked: of each verb,
    what was asked for; everything: it was asked for by a filter.
    """

    name: str
    life: int
    config: QueueConfig
    begins: int
    begun: bool = False
    ended: bool = False
    altered: bool = False
    ever: BitMap64 = field(default_factory=BitMap64)
    here: BitMap64 = field(default_factory=BitMap64)
    dead: BitMap64 = field(default_factory=BitMap64)
    noted: BitMap64 = field(default_factory=BitMap64)
    promised: BitMap64 = field(default_factory=BitMap64)  # noted, and that was answered
    requeued: BitMap64 = field(default_factory=BitMap64)
    done: BitMap64 = field(default_factory=BitMap64)
    failures: Counter[int] = field(default_factory=Counter)
    cancels: Counter[int] = field(default_factory=Counter)
    due_ns: dict[int, int] = field(default_factory=dict)
    over_ms: dict[int, int] = field(default_factory=dict)  # by no clock that is set
    why: dict[int, str] = field(default_factory=dict)
    sent: Counter[Any] = field(default_factory=Counter)
    unflagged: Counter[Any] = field(default_factory=Counter)
    asked: dict[str, BitMap64] = field(default_factory=dict)
    everything: set[str] = field(default_factory=set)
    given: BitMap64 = field(default_factory=BitMap64)  # barriers that some consumer was to get
    disputed: BitMap64 = field(default_factory=BitMap64)
    flying: BitMap64 = field(default_factory=BitMap64)  # offered, and not back
    purges: dict[int, BitMap64] = field(default_factory=dict)  # of a replayable one, by record
    purged: int = 0  # an operator asked for what is before
    late: int = 0  # the log start was raised to there before anybody could hold the log for it
    #: before a log start that is not durable: they are in it again if the journal forgets that
    before: BitMap64 = field(default_factory=BitMap64)

    @property
    def once(self) -> bool:
        return self.config.semantics == "at-most-once"

    @property
    def replays(self) -> bool:
        return self.config.kind == "replayable"

    def takes(self, message: Message) -> bool:
        topic = self.config.topic or self.name
        fits = re.fullmatch(topic, message.topic) if self.config.regex else topic == message.topic
        return bool(fits) and FILTERS[self.config.filter](message.content)

    def rank(self, message: Message) -> tuple[int, int]:
        """Who has the lower one comes first."""
        return (-message.content["p"] if self.config.priority else 0, message.position)

    def is_barrier(self, message: Message) -> bool:
        return bool(self.config.barrier) and FILTERS[self.config.barrier](message.content)

    def expires(self, message: Message) -> int:
        """0: never."""
        if message.expires_ns or not self.config.expiration:
            return message.expires_ns
        return message.log_time + self.config.expiration * MS_NS


class Lease(NamedTuple):
    """Who has a message, and until when no one else gets it (monotonic ms; None: no end)."""

    key: int
    end_ms: int | None


class Judge:
    """Sees everything. `asks`: what clients sent, by cid."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.messages: dict[int, Message] = {}
        self.refs: dict[str, Ref] = {}  # newest life of each name
        self.points: dict[str, int] = {}  # also of names that were removed: who began there did
        self._starts: dict[str, int] = {}  # by sid: where the point was, as the process had heard
        self.unnamed: set[str] = set()  # of those, the ones without a place now
        self.removals: Counter[str] = Counter()
        self.asks: dict[str, Any] = {}
        self.begun_ms = 0  # when a queue was run for the first time
        self.end = 1  # position after what was folded
        self.checks: Counter[str] = Counter()
        self._of_cid: dict[str, Ref] = {}
        self._watched: dict[str, QueueState] = {}
        self._process: ProcessNode | None = None
        self._offers: dict[str, list[Offer]] = {}
        self._leases: dict[tuple[str, int], Lease] = {}
        self._readers: dict[str, int] = {}  # of replayable queues: the last position sent, by sid
        self._latest_ns = 0
        self._units: dict[tuple[int, bool], int] = {}  # newest number, by incarnation and sort
        self._promised: dict[str, bool] = {}  # to the admin: is there such a queue
        self._commands = 0  # that processes have taken
        self._began_at: dict[str, int] = {}  # which of them it was, by sid of a consumer
        self._said_at: dict[tuple[str, int], int] = {}  # the last one about a message of a queue

    def demand(self, holds: object, *otherwise: object) -> None:
        if not holds:
            raise Violation(" ".join(map(str, otherwise)))

    # -- the log ------------------------------------------------------------------------------

    def durable(self, batches: list[LogBatch]) -> None:
        """These can never be lost any more."""
        whole = not batches or not batches[-1].flags & FLAG_UNIT
        self.demand(whole, "a unit is durable in part before", self.end)
        for at, batch in enumerate(batches):
            self.demand(batch.position == self.end, "the log has a hole before", batch.position)
            self.end = batch.end_position
            if batch.kind == KIND_PUBLISH:
                after = batches[at + 1] if at + 1 < len(batches) else None
                self._published(batch, after)
            elif batch.kind == KIND_WIRING:
                definition = r.WIRING.decode(batch.body)
                self._unit(definition)
                self._wired(definition, batch.position)
            elif batch.kind == KIND_QUEUE:
                record = r.QUEUE.decode(batch.body)
                self._unit(record, letters=at > 0 and self._letters(batches[at - 1]))
                ref = self.refs.get(record.queue)
                if ref is not None and ref.life == record.life and not ref.ended:
                    for fact in record.facts:
                        self._fact(ref, fact, batches[at - 1] if at else None)
            elif batch.kind == KIND_PURGE:
                self._purge(PURGE.decode(batch.body), batch.position)
            elif batch.kind == KIND_POINT:
                point = POINT.decode(batch.body)
                self._unit(point)
                self.points[point.name] = max(parse_vector(point.vector).values()) + 1
                self.removals[point.name] += point.removed
                (self.unnamed.add if point.removed else self.unnamed.discard)(point.name)
            else:
                self._other(batches, at)

    def _other(self, batches: list[LogBatch], at: int) -> None:
        """A record of another kind is durable."""

    def _purge(self, purge: PurgeRecord, position: int) -> None:
        self._unit(purge)
        behind = max(parse_vector(purge.vector).values()) + 1
        ref = self.refs.get(purge.queue)
        if ref is None or not ref.replays or ref.ended:
            return
        self.demand(behind <= ref.purged, "purged more than was asked for")
        taken = ref.here & BitMap64(range(1, behind))
        self._out(ref, taken, "purged")
        if taken:
            ref.purges[position] = taken

    def _letters(self, batch: LogBatch) -> bool:
        return batch.kind == KIND_PUBLISH and batch.publisher != self.world.publisher

    def _unit(self, record: Numbered, *, letters: bool = False) -> None:
        """Units land once, in the order in which they were decided; letters have an order of their
        own: they may have to wait for space."""
        sort = record.by, letters
        last, self._units[sort] = self._units.get(sort, 0), record.unit
        self.demand(record.unit > last, f"unit {record.unit} landed after {last}")

    def _published(self, batch: LogBatch, after: LogBatch | None) -> None:
        found = list(_messages(batch))
        for message in found:
            self.messages[message.position] = message
            for ref in self.refs.values():
                if not ref.ended and message.position >= ref.begins and self.enters(ref, message):
                    ref.here.add(message.position)
                    ref.ever.add(message.position)
        if self._letters(batch):
            self.checks["letters"] += len(found)
            record = r.QUEUE.decode(after.body) if after and after.kind == KIND_QUEUE else None
            self.demand(record is not None and record.facts, "letters without a record after them")

    def enters(self, ref: Ref, message: Message) -> bool:
        """Whether a message enters a queue."""
        return ref.takes(message)

    def _wired(self, record: r.DefinitionRecord, position: int) -> None:
        ref = self.refs.get(record.name)
        if record.definition is None:
            self.demand(ref is not None, record.name, "was deleted and never was")
            assert ref is not None
            ref.ended = True
            return
        config = convert(record.definition, QueueConfig)
        begins = position if record.begins < 0 else record.begins
        if ref is not None and ref.life == record.life:
            ref.altered = ref.altered or ref.config != config
            ref.config = config
            if ref.begins < begins:
                self._cut(ref, begins)
            return
        made = self.refs[record.name] = Ref(record.name, record.life, config, begins)
        made.late = self.world.log_start if begins < self.world.log_start else 0
        for message in self.messages.values():
            if message.position >= max(begins, self.world.log.oldest) and self.enters(
                made, message
            ):
                made.here.add(message.position)
                made.ever.add(message.position)

    def _cut(self, ref: Ref, begins: int) -> None:
        ref.begins = begins
        early = BitMap64([position for position in ref.ever if position < begins])
        ref.here -= early
        ref.ever -= early

    def _begin_at(self, ref: Ref, log_start: int) -> None:
        ref.before |= BitMap64(at for at in ref.here if at < log_start)
        self._cut(ref, log_start)

    def raised(self, log_start: int) -> None:
        """What is before will be removed; a queue that was run has said what it needs."""
        for ref in self.refs.values():
            if ref.ended or not ref.here:
                continue
            if not ref.begun:
                ref.late = log_start
            else:
                needed = (ref.here - ref.requeued).min() if ref.here - ref.requeued else log_start
                self.demand(needed >= log_start, f"{needed} of {ref.name} is given up")

    def _give_up(self, process: ProcessNode) -> None:
        """A process that knows the new log start gives up what a late queue has before it."""
        for ref in self.refs.values():
            if ref.late and process.core.manager.log_start >= ref.late:
                kept = ref.here & ref.requeued
                self._begin_at(ref, max(ref.begins, ref.late))
                ref.here |= kept
                ref.ever |= kept
                ref.flying &= ref.here
                ref.late = 0

    def _fact(self, ref: Ref, fact: r.AnyFact, before: LogBatch | None) -> None:
        if isinstance(fact, r.MessagesGone):
            where = r.unpack_positions(fact.where)
            self._gone(ref, where & ref.here, fact.why)
            if fact.why in GIVEN_UP and ref.config.dead_letter:
                self._buried(ref, where, fact.why, before)
        elif isinstance(fact, r.Failed):
            for position in r.unpack_positions(fact.where) & ref.here:
                ref.failures[position] += 1
                ref.cancels[position] += fact.why == "cancelled"
                ref.due_ns[position] = fact.due_ns
                ref.over_ms[position] = self.world.at.now_ms + (fact.delay_ms or 1 << 62)
                self.checks["failed"] += 1
        elif isinstance(fact, r.BarrierDelivered):
            self.demand(ref.is_barrier(self.messages[fact.position]), "no barrier:", fact.position)
            self._out(ref, BitMap64([fact.position]), "barrier")
        elif isinstance(fact, r.Returned):
            where = r.unpack_positions(fact.where)
            self.demand(where.issubset(ref.ever), "brought back what never was there")
            oldest = self.world.log.oldest
            self.demand(min(where, default=oldest) >= oldest, "brought back what is removed")
            self._returned(ref, where)
        elif isinstance(fact, r.Noted):
            ref.noted |= r.unpack_positions(fact.where) & ref.here

    def _returned(self, ref: Ref, where: BitMap64) -> None:
        ref.here |= where
        ref.requeued |= where
        ref.done -= where
        ref.dead -= where
        for position in where:
            self.checks["requeued"] += 1
            for counts in (ref.failures, ref.cancels, ref.sent, ref.unflagged):
                counts.pop(position, None)
            ref.due_ns.pop(position, None)

    def _gone(self, ref: Ref, where: BitMap64, why: str) -> None:
        for position in where:
            self.checks[why] += 1
            reason = f"{ref.name}: {position} is gone as {why!r}, and"
            if why in ("acked", "rejected"):
                asked = position in ref.asked.get(why, ()) or why in ref.everything
                self.demand(asked, reason, "no one said so")
            elif why == "purged":
                self.demand(position < ref.purged, reason, "no one asked for that")
            elif why == "time_limit":
                expires = ref.expires(self.messages[position])
                self.demand(0 < expires <= self._latest_ns, reason, "it did not expire")
            elif why in ("max_deliveries", "max_cancels"):
                self._given_up(ref, position, why, reason)
            elif why == "sent":
                self.demand(ref.once, reason, "it may be sent again")
            else:
                self.demand(False, reason, "it can be read")
        if why in GIVEN_UP:
            ref.dead |= where
        self._out(ref, where, why)

    def _given_up(self, ref: Ref, position: int, why: str, reason: str) -> None:
        """A delivery before a crash may count, too; settings may have been altered."""
        counts = ref.failures if why == "max_deliveries" else ref.cancels
        most = ref.config.max_deliveries if why == "max_deliveries" else ref.config.max_cancels
        suspect = why == "max_deliveries"
        self.demand(ref.altered or counts[position] + 1 + suspect >= most, reason, "too early")

    def _out(self, ref: Ref, where: BitMap64, why: str) -> None:
        ref.here -= where
        ref.noted -= where
        ref.why.update(dict.fromkeys(where, why))

    def _buried(self, ref: Ref, where: BitMap64, why: str, letters: LogBatch | None) -> None:
        """The dead letters of these are right before."""
        found = {}
        if letters is not None and letters.kind == KIND_PUBLISH and letters.columns is not None:
            data = msgspec.msgpack.decode(letters.body)
            headers = msgspec.msgpack.decode(letters.columns.headers or b"\x90")
            found = {one["zb-position"]: (one, at) for one, at in zip(headers, data, strict=True)}
            self.demand(letters.topics == [ref.config.dead_letter], "letters to", letters.topics)
        self.demand(BitMap64(found) == where, ref.name, "letters of", list(found), "not", where)
        for position, (header, data) in found.items():
            self.demand(data == self.messages[position].data, "a letter is not its message")
            reported = header["zb-queue"], header["zb-reason"]
            self.demand(reported == (ref.name, why), "a letter says", reported)
            reported = header["zb-failures"]
            self.demand(reported >= ref.failures[position], "a letter says", reported, "failures")

    # -- the process -----------------------------------------------------------------------------

    def began(self, process: ProcessNode, one: QueueState) -> None:
        """A process runs a queue."""
        if process is not self._process:
            self._process = process
            self._watched, self._leases, self._readers, self._offers = {}, {}, {}, {}
        if self._watched.get(one.name) is one:
            return
        self._watched[one.name] = one
        ref = self.ref(one)
        self.demand(ref is not None, one.name, "runs and is not defined in the log")
        assert ref is not None
        if not ref.begun:
            ref.begun, self.begun_ms = True, self.world.at.now_ms
            start = max(ref.begins, process.core.manager.log_start)
            self.demand(one.folded <= start, one.name, "begins at", one.folded, "not at", start)
            self._begin_at(ref, start)
        offer = one.queue.offer

        def offered(*given: Any) -> list[Offer]:
            found = offer(*given)
            self._offers[one.name] = found
            return found

        one.queue.offer = offered  # type: ignore[method-assign, assignment]

    def ref(self, one: QueueState | None) -> Ref | None:
        """The life of a queue that is run."""
        found = self.refs.get(one.name) if one is not None else None
        same = one is not None and found is not None and found.life == one.definition.declaration
        return found if same else None

    def compare(self, process: ProcessNode) -> None:
        """What the process has folded is what the log says."""
        self._latest_ns = max(self._latest_ns, self.world.wall_ns())
        self._give_up(process)
        for one in process.core.manager.running.values():
            ref = self.ref(one)
            if ref is None or ref.ended or not one.ready:
                continue
            queue = one.queue
            if isinstance(queue, Queue):
                ref.flying &= queue.leased(None) | queue.going
            if one.folded != self.end:
                continue
            if back := (queue.here & ref.before) - ref.ever:
                ref.here |= back
                ref.ever |= back
            if queue.here != ref.here:
                less, more = ref.here - queue.here, queue.here - ref.here
                self.demand(False, one.name, "lacks", list(less), "and has too much:", list(more))
            self.checks["compared"] += 1
            if isinstance(queue, Replayable):
                self.demand(queue.noted_ones == ref.noted, one.name, "forgot what was noted")
                self.demand((ref.promised & ref.here).issubset(ref.noted), "a note was lost")
                continue
            for position in queue.here & BitMap64(ref.failures):
                reported = queue.counting.failures.of(position)
                known = ref.failures[position]
                self.demand(
                    reported == known, one.name, position, "failed", known, "times, not", reported
                )

    def held(self, process: ProcessNode, holds: Holds) -> None:
        """What the process says that it needs."""
        self._give_up(process)
        for one in process.core.manager.running.values():
            ref = self.ref(one)
            if ref is None or ref.ended or not ref.here:
                continue
            if ref.here.min() < holds.lowest:
                self.demand(False, f"lets go of {ref.here.min()} in {one.name}: {holds.lowest}")
        self.checks["holds"] += 1

    def removing(self, log_start: int) -> None:
        """What is before is removed."""
        for ref in self.refs.values():
            if ref.begun and not ref.ended and ref.here:
                text = f"{ref.here.min()} of {ref.name} is removed"
                self.demand(ref.here.min() >= log_start, text)

    # -- commands -----------------------------------------------------------------------------

    def commanded(self, process: ProcessNode, received: Any) -> None:
        """The process takes a command."""
        command = codec.decode(codec.QUEUES, received.frames[0])
        self._commands += 1
        if isinstance(command, q.Consume):
            self._began_at[command.sid] = self._commands
        if isinstance(command, q.Consume) and (command.since or "").startswith("point:"):
            row = process.core.manager.points.get(str(command.since).removeprefix("point:"))
            self._starts[command.sid] = row.position if row is not None else 0
        if not isinstance(command, q.Settle) or command.queue is None:
            return
        ref = self.ref(process.running(command.queue))
        if ref is None:
            return
        self._of_cid[command.cid or ""] = ref
        verb = {"Settle": "acked", "RejectMessages": "rejected"}.get(type(command).__name__, "")
        where = self.where(command)
        if command.filter:
            ref.everything.add(verb)
            self._leases = {key: one for key, one in self._leases.items() if key[0] != ref.name}
        ref.asked[verb] = ref.asked.get(verb, BitMap64()) | where
        if command.bookmarks:
            ref.disputed |= where  # looked up first, so it is done later than it came
        for position in where:
            self._leases.pop((ref.name, position), None)
            self._said_at[ref.name, position] = self._commands

    def kept_by(self, answer: q.Consuming, queue: str) -> list[int]:
        """What a consumer keeps, without what was said of meanwhile: answers leave later."""
        since = self._began_at[answer.sid]
        return [at for at in r.of_ends(answer.kept) if self._said_at.get((queue, at), 0) < since]

    def where(self, command: q.Settle) -> BitMap64:
        """The messages that a command names."""
        found = r.of_ends(command.ends)
        for bookmark in command.bookmarks:
            publisher, sequence = parse_bookmark(bookmark)
            found |= BitMap64([
                batch.position + sequence - batch.sequence
                for batch in self.world.log.batches
                if batch.publisher == publisher
                and batch.sequence <= sequence < batch.sequence + batch.taken
            ])  # fmt: skip
        return found

    def asked(self, process: ProcessNode, question: Any) -> None:
        """The process takes a question of the admin."""
        if isinstance(question, s.Purge):
            ref = self.ref(process.running(question.queue))
            before = question.before or self.end
            if question.point:
                before = max(before, self.points.get(question.point, 0))
            if ref is not None:
                ref.purged = max(ref.purged, before)
                ref.disputed |= BitMap64(range(before) if question.leased else ())

    def reported(self, question: Any, answer: Any) -> None:
        """The admin was answered: what was changed is durable."""
        if not isinstance(answer, s.Changed):
            return
        self.checks[f"{type(question).__name__} {answer.code}"] += 1
        if answer.code:
            return
        if isinstance(question, s.Define):
            ref = self.refs.get(question.name)
            there = ref is not None and not ref.ended
            self.demand(there == (question.what != "delete"), question, "and it is not in the log")
        elif isinstance(question, s.SetPoint):
            self.demand(self.points.get(question.name) is not None, "a point is not in the log")
        elif isinstance(question, s.RemovePoint):
            self.demand(self.removals[question.name] > 0, "a removal is not in the log")
        elif isinstance(question, s.Purge) and not question.dry_run:
            ref = self.refs.get(question.queue)
            if ref is not None and ref.replays and not ref.ended and ref.begun:
                left = ref.here & BitMap64(range(answer.position))
                self.demand(not left, "purged, and still there:", list(left))

    # -- offers -------------------------------------------------------------------------------

    def offered(self, process: ProcessNode, effects: list[Effect]) -> None:
        """What was leased in this turn came first; what is left comes later."""
        self._latest_ns = max(self._latest_ns, self.world.wall_ns())
        for effect in effects:
            if isinstance(effect, Give):
                self._giving(process, effect)
        for name, offers in self._offers.items():
            one = self._watched.get(name)
            ref = self.ref(one)
            if one is None or ref is None or not offers or isinstance(one.queue, Replayable):
                continue
            if ref.ended:  # facts after that are not read any more, as of messages brought back
                continue
            self._order(process, ref, one.queue, offers)
            self._bounded(ref, one.queue, offers)
            ref.flying |= BitMap64.union(BitMap64(), *(offer.positions for offer in offers))
        self._offers = {}

    def _order(self, process: ProcessNode, ref: Ref, queue: Queue, offers: list[Offer]) -> None:
        given = BitMap64.union(BitMap64(), *(offer.positions for offer in offers))
        barriers = [at for at in queue.here - ref.requeued if ref.is_barrier(self.messages[at])]
        barrier = min(barriers, default=None)
        if any(offer.barrier for offer in offers):
            self.demand(list(given) == [barrier] == [min(queue.here)], "barrier too early", given)
            present = set(process.core.shared.of.get(ref.name, {}))
            self.demand({offer.consumer for offer in offers} == present, "barrier not to everybody")
            self.checks["barrier"] += 1
            return
        before = barrier is None or max(given) < barrier
        self.demand(before, ref.name, "passes barrier", barrier, list(given))
        for position in given:
            message = self.messages[position]
            expires = ref.expires(message)
            wall_ns = self.world.wall_ns()
            if not ref.altered and position not in ref.requeued:
                late_ns = expires - wall_ns
                self.demand(
                    not expires or late_ns > 0, "offered too late:", position, late_ns, ref.name
                )
            due_ns = ref.due_ns.get(position, 0)
            over = self.world.at.now_ms >= ref.over_ms.get(position, 0)
            early = not over and due_ns > max(self._latest_ns, wall_ns)
            self.demand(not early, "too early:", position)
        if ref.config.group_key:
            self._grouped(ref, queue, given)
            return
        consumers = process.core.shared.of.get(ref.name, {}).values()
        filtered = any(each.filter is not None for each in consumers)
        left = queue.places.ready.standing
        if left and not filtered:
            last = max(ref.rank(self.messages[at]) for at in given)
            first = min(
                (ref.rank(self.messages[at]) for at in left if barrier is None or at < barrier),
                default=None,
            )
            self.demand(first is None or last < first, ref.name, "out of order:", last, first)
        for key in {offer.consumer for offer in offers}:
            ranks = [
                ref.rank(self.messages[at])
                for offer in offers if offer.consumer == key for at in offer.positions
            ]  # fmt: skip
            rising = filtered or ranks == sorted(ranks)
            self.demand(rising, ref.name, "not in order to one consumer:", ranks)
        self.checks["ordered"] += 1

    def _bounded(self, ref: Ref, queue: Queue, offers: list[Offer]) -> None:
        """Whoever is given something holds no more than its queue allows, nor do all of them."""
        config, members = ref.config, queue.consumers.by_key
        if ref.altered or any(offer.barrier for offer in offers):
            return
        free = consumers.BACKLOG_LEAST if ref.once else consumers.BACKLOG_MOST
        most = config.max_per_subscription or free
        held = [len(members[offer.consumer].held) for offer in offers]
        self.demand(max(held) <= most, ref.name, "has a consumer that holds", max(held))
        whole = queue.consumers.held()
        self.demand(whole <= (config.max_backlog or whole), ref.name, "has leased", whole)
        self.checks["bounded"] += 1
        self.checks["grown"] += most == free and max(held) == most > consumers.BACKLOG_LEAST

    def _grouped(self, ref: Ref, queue: Queue, given: BitMap64) -> None:
        """One of each key is under way, and nothing of it is before it."""
        by_key: dict[str, list[int]] = {}
        for position in queue.here:
            key = self.messages[position].content["g"]
            if key is not None:
                by_key.setdefault(key, []).append(position)
        places = queue.places
        busy = ref.flying & (
            places.going if ref.once else places.leases.leased | places.were_leased
        )
        for many in by_key.values():
            offered = [position for position in many if position in given]
            if not offered:
                continue
            self.demand(len(offered) == 1, ref.name, "two of one key:", offered)
            others = [at for at in many if at in busy and at not in offered]
            self.demand(not others, ref.name, "beside others of its key:", offered, others)
            self.demand(offered == many[:1], ref.name, "not the first of its key:", offered, many)
            self.checks["grouped"] += 1

    # -- sends --------------------------------------------------------------------------------

    def _giving(self, process: ProcessNode, give: Give) -> None:
        """It is about to be sent."""
        one = process.running(give.to.queue)
        ref = self.ref(one)
        if one is None or ref is None or not isinstance(one.queue, Queue):
            return
        if give.barrier:
            ref.given |= give.positions
        elif not ref.once:
            mine = one.queue.leased(give.to.key) if self._is_known(one.queue, give) else BitMap64()
            lost = give.positions - mine
            self.demand(not lost, ref.name, "sends what is leased to somebody else:", list(lost))

    def _is_known(self, queue: Queue, give: Give) -> bool:
        return give.to.key in queue.consumers.by_key

    def sent(self, process: ProcessNode, give: Give, send: Send) -> None:
        """A frame has left for a consumer."""
        one = process.running(give.to.queue)
        ref = self.ref(one)
        if one is None or ref is None or ref.ended:
            return
        job = codec.decode(codec.QUEUES_ANSWERS, send.header)
        assert isinstance(job, q.Job)
        for position, data, deliveries in rows_of(job, send.body or b""):
            message = self.messages.get(position)
            self.demand(message is not None, "sent before it was durable:", position)
            assert message is not None
            self.demand(data == message.data, position, "is sent with another content")
            self.demand(position in ref.ever, position, "never entered", ref.name)
            self.demand(position not in ref.done, ref.name, "sends again what is done:", position)
            self.checks["sent"] += 1
            if isinstance(one.queue, Replayable):
                self._replayed(ref, give, position)
            elif job.barrier:
                self._barrier_sent(ref, give, position, deliveries)
            elif ref.once:
                why = ref.why.get(position)
                self.demand(why == "sent", ref.name, "sent before it is gone:", position, why)
                ref.sent[position] += 1
                self.demand(ref.sent[position] == 1, ref.name, "sent twice:", position)
            else:
                self._leased(ref, one.queue, give, position, deliveries)

    def _leased(self, ref: Ref, queue: Queue, give: Give, position: int, deliveries: int) -> None:
        self.demand(position in ref.here, ref.name, "sends what is gone:", position)
        ref.sent[position] += 1
        ref.unflagged[position] += deliveries == 1
        self.checks["flagged"] += deliveries > 1
        text = f"{ref.name}: {position} is sent, not flagged, for the {ref.sent[position]}. time"
        self.demand(ref.unflagged[position] <= 1, text)
        self.demand(ref.sent[position] == 1 or deliveries > 1, text)
        least = ref.failures[position] + 1
        self.demand(deliveries >= least, ref.name, position, "counts", deliveries, "not", least)
        before = self._leases.get((ref.name, position))
        if before is not None and before.key != give.to.key and position not in ref.disputed:
            holder = queue.consumers.by_key.get(before.key)
            current = holder is not None and not holder.lost
            over = before.end_ms is not None and before.end_ms <= self.world.at.now_ms
            text = f"{position} goes to two: {before} {give.to.key}"
            self.demand(over or not current, ref.name, text)
        self._leases[ref.name, position] = Lease(give.to.key, queue.places.leases.end(position))

    def _barrier_sent(self, ref: Ref, give: Give, position: int, deliveries: int) -> None:
        """Once to each; another process may send it again, flagged."""
        assert self._process is not None
        ref.sent[position] += 1
        processes = {key[1] for key in ref.sent if isinstance(key, tuple) and key[0] == position}
        again = bool(processes - {self._process.incarnation})
        ref.sent[position, self._process.incarnation, give.to.key] += 1
        twice = ref.sent[position, self._process.incarnation, give.to.key] > 1
        text = f"{ref.name}: barrier {position} comes again, not flagged"
        self.demand(deliveries > 1 or not (again or twice), text)

    def _replayed(self, ref: Ref, give: Give, position: int) -> None:
        last = self._readers[give.to.sid]
        skipped = ref.here & BitMap64(range(last + 1, position))
        self.demand(position > last, ref.name, "goes back to", position)
        self.demand(not skipped, ref.name, "skips", list(skipped))
        purged = BitMap64.union(BitMap64(), *ref.purges.values()) & BitMap64(
            range(last + 1, position)
        )
        self.demand(not purged, ref.name, "skips in silence what was purged:", list(purged))
        self._readers[give.to.sid] = position
        self.checks["replayed"] += 1

    # -- answers ------------------------------------------------------------------------------

    def answered(self, process: ProcessNode, send: Send) -> None:
        """An answer leaves for a client: what it says is a promise."""
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, send.header)
        if isinstance(answer, q.Settled):
            self._settled(process, answer)
        elif isinstance(answer, q.Consuming):
            self._consuming(process, answer)
        elif isinstance(answer, m.Error):
            self.checks[f"error {answer.code}"] += 1

    def _settled(self, process: ProcessNode, answer: q.Settled) -> None:
        command, ref = self.asks.get(answer.cid or ""), self._of_cid.get(answer.cid or "")
        if command is None or ref is None or ref.ended:
            return
        self.checks[f"settled {type(command).__name__}"] += 1
        where = self.where(command) & ref.ever - self.not_promised(ref)
        if type(command) is q.Settle and ref.replays:
            self.demand((where & ref.here).issubset(ref.noted), "an ack is not in the log")
            ref.promised |= where
        elif type(command) in (q.Settle, q.RejectMessages) and not ref.once:
            sure = type(command) is q.Settle and ref.config.leasing != "strict"
            if sure or not answer.ignored:
                left = where & ref.here - ref.requeued
                self.demand(not left, ref.name, "settled, and not gone in the log:", list(left))
                ref.done |= where - ref.requeued
        elif isinstance(command, q.Extend):
            queue = process.core.manager.running[ref.name].queue
            for position in where:
                known = self._leases.get((ref.name, position))
                if known is not None and isinstance(queue, Queue):
                    end_ms = queue.places.leases.end(position)
                    self._leases[ref.name, position] = Lease(known.key, end_ms)

    def not_promised(self, ref: Ref) -> BitMap64:
        """Messages of which an answer to an ack does not say that they are gone."""
        return BitMap64()

    def _consuming(self, process: ProcessNode, answer: q.Consuming) -> None:
        command = self.asks[answer.sid]
        kept, holding = r.of_ends(answer.kept), r.of_ends(command.holding)
        self.demand(kept.issubset(holding), "keeps more than was held")
        self.checks["kept"] += len(kept)
        if answer.position is not None:
            if any(each.sid == answer.sid for each in process.core.shared.consumers.values()):
                self._check_start(process, command, answer.position)  # else it was overtaken since
            purges = self._purges(process, self.refs[command.queue])
            oldest = max((purged.max() for purged in purges), default=0)
            self._readers[answer.sid] = max(answer.position - 1, oldest)

    def _purges(self, process: ProcessNode, ref: Ref) -> list[BitMap64]:
        """What the process has read of them."""
        one = process.running(ref.name)
        folded = one.folded if one is not None else 0
        return [purged for record, purged in ref.purges.items() if record < folded]

    def _check_start(self, process: ProcessNode, command: q.Consume, reported: int) -> None:
        """Where a consumer of a replayable queue must begin; nothing after that was purged."""
        ref, since = self.refs[command.queue], command.since or "0"
        if since == "now":
            return
        start = 0
        if since.startswith("point:"):
            start = self._starts[command.sid]
        elif since != "0":
            [position] = self.where(q.Settle(bookmarks=[since]))
            start = position + 1
        for purged in self._purges(process, ref) if start else ():
            gone = purged.max() >= start
            self.demand(not gone, ref.name, "honours", command.since, "inside what was purged")
            self.checks["purged places"] += 1
        test = FILTERS[command.selector or ""]
        passed = ref.here & BitMap64(range(min(start, reported), max(start, reported)))
        wrong = [at for at in passed if reported < start or test(self.messages[at].content)]
        self.demand(not wrong, ref.name, "begins at", reported, "not", start, command)
        if command.selector:
            fits = reported in ref.ever and test(self.messages[reported].content)
            self.demand(fits, ref.name, "begins with what does not fit:", reported)

    # -- the end ------------------------------------------------------------------------------

    def verdict(self, process: ProcessNode) -> None:
        """Everything is drained; what was promised to the admin holds."""
        alive = {name for name, ref in self.refs.items() if not ref.ended}
        running = set(process.core.manager.running)
        self.demand(alive == running, "defined are", alive, "and not", running)
        for name, position in self.points.items():
            row = process.core.manager.points.get(name)
            reported = row.position if row is not None else None
            expected = None if name in self.unnamed else position
            self.demand(reported == expected, "point", name, "is at", reported, "not", expected)
        for ref in self.refs.values():
            passed = (at for at, why in ref.why.items() if why == "barrier")
            lost = [at for at in passed if at not in ref.given]
            self.demand(ref.ended or not lost, ref.name, "barriers went to no one:", lost)
            if not ref.ended and not ref.replays:
                self.demand(not ref.here, ref.name, "was not drained:", list(ref.here))
            one = None if ref.ended else process.core.manager.running[ref.name]
            config = None if one is None else one.definition.config
            self.demand(config in (None, ref.config), ref.name, "runs with other settings")


def _messages(batch: LogBatch) -> Iterator[Message]:
    data: list[bytes] = msgspec.msgpack.decode(batch.body)
    columns = batch.columns or m.Columns()
    index = bodies.indexes(columns.index) if columns.index is not None else [0] * batch.count
    expiry: Any = [0] * batch.count
    if columns.expiry is not None:
        expiry = bodies.expiry(columns.expiry, batch.count)
    for at in range(batch.skip, batch.count - batch.cut):
        position = batch.position + at - batch.skip
        content = msgspec.json.decode(data[at])
        yield Message(
            position, batch.topics[index[at]], data[at], content, batch.log_time, expiry[at]
        )  # fmt: skip
