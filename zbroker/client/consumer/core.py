"""One consumer on one connection to the queues listener. No I/O.

    logged on --consume--> ASKED --consuming--> LIVE --job--> ... --leave, error of its sid--> ENDED
                             ^                    |
                             +-- connection lost -+

How the connection comes about and is kept: see ../connection.py. After a loss the consumer asks
again, with what it holds; what the broker does not keep of that is somebody else's, so it is handed
out only if it was already. Nothing that waits is handed out before the broker has said so.
Positions of another origin (another instance, or one that was put back from an old copy) mean
nothing any more.

Credit goes back when a batch is used up; so what waits is never more than it (and one batch). How
many messages it holds is up to the broker: it counts those that are not settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from zbroker.client.connection import ANSWER_MS, Phase, TokenConnection
from zbroker.client.consumer.held_messages import (
    ConsumerLeases,
    HeldMessages,
    kept_of,
    positions_of,
)
from zbroker.client.consumer.message import QueueMessage, Settler, decode, origins_of
from zbroker.client.consumer.message_credit import MessageCredit
from zbroker.client.consumer.settlement import (
    ACK,
    EXTEND,
    RUNS_MAX,
    PendingSettlements,
    Verb,
    Whose,
)
from zbroker.client.consumer.single_acks import Acked
from zbroker.client.effects import Effect, Event, MessagesArrived, SendCommand, raised
from zbroker.engine.contract import Now
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.ids import (
    Origin,
    Vector,
    format_vector,
    is_range,
    parse_range,
    parse_vector,
    raise_to,
)
from zbroker.limits import STORED_MAX_BYTES
from zbroker.log.records import ends_of
from zbroker.wire.bodies import credit_bytes
from zbroker.wire.consumer_credit import Acquired, ConsumerFlow, Flushed
from zbroker.wire.messages import Ack, Error, Logoff
from zbroker.wire.queue_messages import Cancel, Consume, Consuming, Extend, Job, Settled
from zbroker.wire.transactions import Accepted


class ConsumerCore(TokenConnection):
    """`command` says what is wanted; `settler` is where its messages are settled."""

    def __init__(
        self,
        command: Consume,
        settler: Settler,
        jitter: Callable[[], float],
        heartbeat_s: float | None = None,
        on_resubscribed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(jitter, heartbeat_s)
        self.held = HeldMessages()
        self.settling = PendingSettlements()
        self.flow = MessageCredit(command)
        self.granted: Consuming | None = None  # what the broker said last
        self.live = False  # it has begun on this connection
        self.ended = False  # everything up to its end came in
        self.error: ZBrokerError | None = None
        self.seen: Vector = {}  # how far a replayable queue came in
        self.passed: Vector = {}  # and what was handed out
        self._leases = ConsumerLeases()
        self._command = command
        self._settler = settler
        self._epoch = 0  # counts the origins
        self._origin: Origin | None = None
        self._asks = 0
        self._sid = self._asked_cid = self._cancel_cid = ""
        self._answer_by_ms: int | None = None
        self._credit = command.credit  # as granted
        self._used = 0  # bytes handed out and not given back
        self._on_resubscribed = on_resubscribed

    @property
    def replays(self) -> bool:
        """True if its queue is a replayable one: nothing is leased."""
        return self.granted is not None and self.granted.kind == "replayable"

    @property
    def by_origin(self) -> bool:
        """True if its queue is a replayable one of several instances: places of all of them are in
        a vector, and each instance can go on after that."""
        return self.granted is not None and self.granted.vector is not None

    @property
    def once(self) -> bool:
        """True if what came in is gone from the queue: nothing is leased."""
        return self.granted is not None and self.granted.semantics == "at-most-once"

    @property
    def backlog(self) -> int:
        return 0 if self.granted is None else self.granted.backlog

    @property
    def lease_ms(self) -> int:
        return self._leases.lease_ms

    # -- what the program does ----------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if there is something to hand out, as far as is known."""
        return bool(self.held.line) and (self.live or self.replays or self.once)

    def hand_out(self, most: int | None, now_ms: int) -> tuple[list[QueueMessage], list[Effect]]:
        """Up to `most` messages that came together, and the credit to give back for them."""
        held, freed = self.held, 0
        while self.ready:
            first = held.line[0]
            if self.live and not self._leases.hold(first.came_ms, now_ms):
                self.flow.dropped(positions_of(first.rest))
                freed += held.drop_first()
                continue
            taken, size = held.take(most)
            if self.by_origin:
                raise_to(self.passed, origins_of(taken))
            elif self.replays:
                self.passed[self.own] = taken[-1]._at
            effects = self._give_back(freed + size)
            return taken, [*effects, *self._due(now_ms)] if freed else effects
        return [], [*self._give_back(freed), *self._due(now_ms)] if freed else []

    def settle(self, verb: Verb, messages: Sequence[QueueMessage], now_ms: int) -> None:
        """What becomes of messages; sent by `tick`. Those that are settled already are left out.

        Raises: ZBrokerError, what ended it; bad_field.
        """
        if self.state is Phase.ENDED:
            raise self.error or ZBrokerError("closed", "the consumer was closed")
        mine = [message for message in messages if message._head.epoch == self._epoch]
        if len(mine) < len(messages):
            self._renounce(len(messages) - len(mine))
        if self.replays:
            self._note(verb, mine)
        elif verb.kind == "extend":
            self._lengthen(verb, mine, now_ms)
        elif found := self.held.settle(positions_of(mine), ours=verb.kind != "ack"):
            self.settling.add(self._meant(verb), found)

    def accepting(self, messages: Sequence[QueueMessage]) -> Accepted:
        """What a transaction takes, all of which it has to hold. Raises: ZBrokerError
        transaction_aborted, bad_field."""
        if self.replays:
            raise ZBrokerError("bad_field", "a replayable queue has no part in a transaction")
        positions = positions_of(messages)
        here = all(message._head.epoch == self._epoch for message in messages)
        if not here or not positions.issubset(self.held.in_hand - self.held.lost):
            text = f"queue {self._command.queue!r}: a message is not held any more"
            raise ZBrokerError("transaction_aborted", text, "it comes again: process that one")
        holder, generation = self._command.holder, self.own.generation
        return Accepted(self._command.queue, holder, generation, ends_of(positions))

    def accepted(self, messages: Sequence[QueueMessage]) -> None:
        """A transaction has taken them."""
        mine = [message for message in messages if message._head.epoch == self._epoch]
        self.held.settle(positions_of(mine), ours=False)

    def handle(self, event: Event | Acked, now: Now) -> list[Effect]:
        """Also what follows from acks of single messages."""
        if isinstance(event, Acked):
            self.acked(event.messages, now.mono_ms)
            return []
        return super().handle(event, now)

    def acked(self, messages: Sequence[QueueMessage], now_ms: int) -> None:
        """As `settle` with an ack; a consumer that has ended takes none."""
        if self.state is not Phase.ENDED:
            self.settle(ACK, messages, now_ms)

    def _meant(self, verb: Verb) -> Verb:
        """A message that is gone cannot go back: all that is left is its place in the backlog."""
        return ACK if self.once else verb

    def _note(self, verb: Verb, messages: list[QueueMessage]) -> None:
        if verb.kind == "reject":
            raise ZBrokerError("bad_field", "a replayable queue has no dead letters")
        if verb.kind == "ack" and messages:
            self.settling.add(verb, positions_of(messages))

    def _lengthen(self, verb: Verb, messages: list[QueueMessage], now_ms: int) -> None:
        found = positions_of(messages) & (self.held.in_hand - self.held.lost)
        if found and not self.once:
            self._leases.lengthen(found, verb.ms, now_ms)
            self.settling.add(verb, found)

    def cancel(self, now_ms: int) -> list[Effect]:
        """Has the broker end it: nothing more comes. `is_cancelled` tells when that is so."""
        if not self.live:
            return []
        effects = self._due(now_ms)
        self.live, self._cancel_cid = False, self._cid()
        return [*effects, SendCommand(Cancel(self._sid, self._cancel_cid))]

    @property
    def is_cancelled(self) -> bool:
        """The broker delivers nothing to it: it said so, or the connection is lost."""
        return not self.live and not self._cancel_cid

    def client_ended(self, error: ZBrokerError, now_ms: int) -> list[Effect]:
        """It ends with `error`. What it holds comes back to the queue."""
        return self.leave(now_ms, error)

    def leave(self, now_ms: int, error: ZBrokerError | None = None) -> list[Effect]:
        """It ends, maybe by an error. What it holds comes back to the queue."""
        if self.state is Phase.ENDED:
            return []
        effects = self._due(now_ms) + self._partings()
        self.error = error
        self._stop()
        return effects

    # -- what is due --------------------------------------------------------------------------

    def tick(self, now: Now, *, drained: bool) -> list[Effect]:
        """Also sends what piled up in this turn."""
        return [*super().tick(now, drained=drained), *self._due(now.mono_ms)]

    def _due(self, now_ms: int) -> list[Effect]:
        """What piled up to be sent."""
        if not self.live:
            return []
        wanted = self._leases.is_due(now_ms) and self._leases.extend(self.held.leased, now_ms)
        if wanted:
            self.settling.add(EXTEND, wanted)
        whose = Whose(self._sid, self._command.queue, self.own.generation)
        commands = self.settling.due(self._cid, whose, now_ms)
        if wanted:
            rounds = [each for each in commands if isinstance(each, Extend) and not each.lease_ms]
            self._leases.sent((each.cid or "" for each in rounds), now_ms)
        sends: list[Effect] = [SendCommand(command) for command in commands]
        if self.flow:
            more = self.flow.due(self._cid, whose, self._restored)
            sends += [SendCommand(command) for command in more]
        return sends

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        times = [super().next_wake_ms()]
        if self.live:
            times += [self.settling.next_wake_ms(), self._leases.next_wake_ms()]
        return min((time for time in times if time is not None), default=None)

    def _answer_due_ms(self) -> int | None:
        if not self.live:
            return self._answer_by_ms
        since_ms = self.settling.waits_since_ms()
        return None if since_ms is None else since_ms + ANSWER_MS

    # -- asking -------------------------------------------------------------------------------

    def _forget(self, now_ms: int) -> list[Effect]:
        self.live, self._answer_by_ms, self._cancel_cid = False, None, ""
        self.settling.lost()
        return super()._forget(now_ms)

    def _begin(self, now_ms: int) -> list[Effect]:
        if self._origin not in (None, self.own):
            self._change_origin()
        self._origin = self.own
        self._asks += 1
        self._sid, self._asked_cid = f"c{self._asks}", self._cid()
        self._answer_by_ms = now_ms + ANSWER_MS
        return [SendCommand(self._ask())]

    def _ask(self) -> Consume:
        command = self._command
        left = command.credit - self.held.size
        self._used, self._credit = min(0, left), max(0, left)
        self.flow.restate(command)
        again = replace(command, sid=self._sid, cid=self._asked_cid, credit=self._credit)
        if self.replays and self.seen:
            again.since, again.selector = self._left_to_read(), None
            again.bookmark_not_found = "fail"
        elif not self.replays and not self.once:
            mine = self.held.leased | self.settling.under_way("ack", "release", "reject")
            again.holding = ends_of(mine)[: 2 * RUNS_MAX]
            again.generation = self.own.generation if again.holding else None
        return again

    def _left_to_read(self) -> str:
        since, seen = self._command.since or "", format_vector(self.seen)
        return parse_range(since).after(seen).text if is_range(since) else seen

    def _begun(self, event: Consuming, now_ms: int) -> list[Effect]:
        try:
            self.flow.check(event)
            kept = kept_of(event)
        except ZBrokerError as error:
            return self._fail(error)
        self.granted, self.live, self._answer_by_ms = event, True, None
        self._credit = event.credit + self.held.size + self._used
        self.held.keeps = not self.replays
        freed, firm = 0, self.replays or self.once
        self._leases.begin(0 if firm else event.lease_ms, now_ms)
        if event.vector is not None:
            for vector in (self.seen, self.passed):
                if not vector and event.vector:
                    vector |= parse_vector(event.vector)
        elif self.replays and event.position:
            # the place that the broker found, so that another connection goes on from there
            for vector in (self.seen, self.passed):
                if not vector:
                    vector[self.own] = event.position - 1
        if not firm:
            self.settling.keep(kept)
            self.flow.dropped(self.held.waiting - kept)
            freed = self.held.keep(kept)
        if self._is_back(now_ms) and self._on_resubscribed is not None:
            self._on_resubscribed()
        return [*self._give_back(freed), *self._due(now_ms)]

    def _change_origin(self) -> None:
        """The positions from before name other messages, or none."""
        self._epoch += 1
        if not (self.replays or self.once):
            self.flow.dropped(self.held.waiting)
        self.flow.forget_positions()
        lost = self.settling.clear()
        if self.replays or self.once:
            self.held.in_hand.clear()
        else:
            self.held.clear()
        if lost:
            self._renounce(lost)

    def _renounce(self, count: int) -> None:
        if self.once:
            return  # they are gone from the queue
        what = f"{count} messages were not settled at the broker that they came from"
        self.settling.refuse(ZBrokerError("stale_epoch", what, "they are delivered again there"))

    # -- answers ------------------------------------------------------------------------------

    def _arrived(self, event: MessagesArrived, now_ms: int) -> list[Effect]:
        """New messages wait for the program."""
        job, body = event.answer, event.body
        assert isinstance(job, Job), "delivery has another connection"
        if not self.live or job.sid != self._sid or self.ended:
            return []
        try:
            messages = decode(job, body, self.own, STORED_MAX_BYTES, self._settler, self._epoch)
        except ZBrokerError as error:
            return self._fail(error)
        size, freed = credit_bytes(body, job.columns), 0
        if self.by_origin:
            messages = self._not_seen(messages)
        elif self.replays:
            messages = self._after_seen(messages)
        elif not self.once and not job.barrier:
            messages, freed = self._fresh(messages)
        elif self.flow.counted:
            self.flow.came(messages)
        if not messages:
            return self._give_back(size + freed)
        self.held.put(messages, size, now_ms)
        self._leases.came(now_ms)
        return self._give_back(freed) if freed else []

    def _after_seen(self, messages: list[QueueMessage]) -> list[QueueMessage]:
        seen = self.seen.get(self.own, 0)
        if messages[0]._at <= seen:
            messages = [message for message in messages if message._at > seen]
        if messages:
            self.seen[self.own] = messages[-1]._at
        return messages

    def _not_seen(self, messages: list[QueueMessage]) -> list[QueueMessage]:
        """Those of a batch, which has one origin, that came from no instance before."""
        if (last := self.seen.get(messages[0]._head.origin, 0)) >= messages[0].position:
            messages = [message for message in messages if message.position > last]
        raise_to(self.seen, origins_of(messages))
        return messages

    def _fresh(self, messages: list[QueueMessage]) -> tuple[list[QueueMessage], int]:
        """Those that the program has not, and has not done; the bytes of what they replace.

        A message comes again with a new lease. One that the program works on goes on with that.
        """
        positions, held = positions_of(messages), self.held
        if self.settling:
            self.settling.came_again(positions)
        known = held.in_hand | self.settling.under_way("ack", "reject")
        freed = 0
        if positions.intersect(held.waiting):
            self.flow.dropped(positions & held.waiting)
            freed = held.drop(positions & held.waiting)
        if self.flow.counted:
            self.flow.came(messages)
        if positions.intersect(known):
            self.flow.dropped(positions & known)
            held.lost -= positions
            messages = [message for message in messages if message._at not in known]
        return messages, freed

    def _replied(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Settled):
            if event.cid is not None and self.settling.settled(event.cid) is not None:
                self._leases.settled(event.cid)
        elif isinstance(event, Consuming):
            if event.cid == self._asked_cid and not self.live and self._answer_by_ms is not None:
                return self._begun(event, now_ms)
        elif isinstance(event, Ack | Error) and event.cid and event.cid == self._cancel_cid:
            self._cancel_cid = ""
        elif isinstance(event, Acquired | Flushed) or (isinstance(event, Ack) and event.cid):
            self.flow.answered(event)
        elif isinstance(event, Ack):
            over = event.ended or self._command.until is not None
            self.ended |= event.type == "completed" and event.sid == self._sid and over
        elif isinstance(event, Error):
            return self._on_error(event, now_ms)
        return []

    def _on_error(self, error: Error, now_ms: int) -> list[Effect]:
        """A refusal of something that was settled, of the consumer, or of the connection."""
        again = error.code in TEMPORARY
        if error.cid and self.settling.refused(
            error.cid, raised(error), again=again, now_ms=now_ms
        ):
            return []
        if error.cid and self.flow.refused(error.cid, raised(error)):
            return []
        whole = error.cid == self._logon_cid or (error.cid is None and error.sid is None)
        mine = error.cid == self._asked_cid or (error.cid is None and error.sid == self._sid)
        if not whole and not mine:
            return []  # about something that is over
        if again or (not self.live and self._passes(error, now_ms)):
            return self._lose(now_ms)
        return self._fail(raised(error))

    def _fail(self, error: ZBrokerError) -> list[Effect]:
        """It ends with an error; what it holds comes back to the queue."""
        self.error, partings = error, self._partings()
        self._stop()
        return partings

    def _partings(self) -> list[Effect]:
        if self.state is not Phase.LIVE:
            return []
        asked = self.live or self._answer_by_ms is not None
        return [*([SendCommand(Cancel(self._sid))] if asked else ()), SendCommand(Logoff())]

    def _stop(self) -> None:
        """Ends it.

        Messages that are gone from the queue, or never left it, are still handed out after an
        error.
        """
        self.live = False
        super()._stop()
        if self.error is None or not (self.replays or self.once):
            self.held.clear()

    # -- credit -------------------------------------------------------------------------------

    def _give_back(self, size: int) -> list[Effect]:
        """Credit is returned when half of it is used: few small commands, and it never runs dry."""
        if not self.live and self._answer_by_ms is None:
            return []  # the next consume command counts what waits
        self._used += size
        if not self.live or self._used <= 0 or self._used * 2 < self._credit or self.flow.quiet:
            return []
        used, self._used = self._used, 0
        return [SendCommand(ConsumerFlow(self._sid, used))]

    def _restored(self) -> int:
        """What a consumer that was stopped is given: all that does not wait here."""
        if self.flow.revoked:
            self.flow.revoked, self._used = False, self._credit - self.held.size
        used, self._used = max(0, self._used), min(0, self._used)
        return used

    def check(self) -> None:
        """Asserts what is always true."""
        self.held.check()
        assert not self.held.in_hand & self.settling.under_way("ack", "release", "reject")
        assert self.state is Phase.LIVE or not self.live
