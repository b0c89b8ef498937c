"""Messages of replicated queues change their owner: given, given back, taken over. Pure.

    TransferRequest --no consumer here can take them--> granted --landed, read--> another's
    granted to this instance, and no consumer takes them for a lease --> given back
    TakeOver --an owner is away, says a person--> this instance's, flagged
        --until it is back--> so is what comes of it later

From the moment of the decision on the owner does not offer them; the other instance offers them
when it has read the record. A request that is not granted has no answer: it comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyroaring import BitMap64

from zbroker.engine.contract import Now
from zbroker.engine.effects import Note, Tell
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.log.queue_records import of_steps
from zbroker.log.records import StandIn
from zbroker.queues.commits import PendingUnit, control
from zbroker.queues.context import QueuesContext
from zbroker.queues.queue_state import Ending, QueueState, after_all
from zbroker.queues.replicated.fact_records import Move, UnitStamp, moves_of
from zbroker.queues.replicated.ownership import OwnerClaim
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import insert, remove, without
from zbroker.queues.work.values import Outcome
from zbroker.wire import queue_surveys as s
from zbroker.wire.owner_requests import LiveSources, TransferRequest

GRANT_MAX: Final = 50_000  # messages of one record
LOOK_MS: Final = 1_000  # how often it is looked what was granted and not used
UNUSED_MS: Final = 30_000  # of a queue without leases
NOT_OWNED: Final = (
    "messages of replayable queues, like %r, belong to no instance: each one gives all that it has"
)


class OwnerMoves:
    """Decides about the owners of messages."""

    def __init__(self, shared: QueuesContext, *, on: bool) -> None:
        """on: the instance has links."""
        self._shared = shared
        self._since: dict[tuple[str, OwnerClaim], int] = {}  # when it was seen first
        self._look_ms = 0
        #: instances whose log comes here; None: the replication process has not said it yet
        self._live: frozenset[int] | None = None if on else frozenset()

    # -- another instance asks for some ------------------------------------------------------------

    def request(self, event: TransferRequest) -> None:
        """An instance could take so many messages, or those that it names. What a consumer here
        has room for stays, and what a filter here was not compared with yet: it comes again."""
        one = self._shared.manager.running.get(event.queue)
        if one is None or not isinstance(one.replicated, ReplicatedQueue):
            return
        leaves, queue = self._shared.leaves(one), one.queue
        assert isinstance(queue, Queue)
        busy = not one.offers or self._shared.manager.commits.full
        if busy or event.instance == one.replicated.me:
            return
        useless = None if leaves else queue.untaken()
        outcomes: list[Outcome] = []
        if event.where:
            named = _named(one.replicated, event)
            outcomes += queue.grant(event.most, named if useless is None else named & useless)
        if event.count:
            outcomes += queue.grant(min(event.count, GRANT_MAX), useless)
        for outcome in outcomes:
            # an instance that is to stop gets nothing back
            self.give(one, outcome, event.instance, back=leaves)

    # -- what was granted here and is not used ------------------------------------------------

    def tick(self, now: Now) -> None:
        """Gives back what no consumer took for as long as a lease. Also looks at all messages again
        of which some may belong to an instance by now for which this one acts."""
        replicated = self._shared.manager.folding.replicated
        if not replicated or now.mono_ms < self._look_ms:
            return
        self._look_ms = now.mono_ms + LOOK_MS
        since, self._since = self._since, {}
        for one in replicated.values():
            if one.stand_ins.of:
                one.stand_ins.looked_to = 0
                self._shared.touch(one)
            if one.offers and isinstance(one.queue, Queue):
                self._give_back(one, one.queue, since, now)

    def _give_back(
        self, one: QueueState, queue: Queue, since: dict[tuple[str, OwnerClaim], int], now: Now
    ) -> None:
        assert isinstance(one.replicated, ReplicatedQueue)
        lease_ms = one.definition.config.lease or UNUSED_MS
        useless = queue.untaken()
        if useless is None:
            useless = queue.places.ready.standing
        for claim, part in one.replicated.ownership.granted():
            unused = part & useless
            if not unused:
                continue
            key = one.name, claim
            begun = self._since[key] = since.get(key, now.mono_ms)
            if now.mono_ms - begun < lease_ms:
                continue
            for outcome in queue.grant(GRANT_MAX, unused):
                self.give(one, outcome, claim.instance, back=True)

    def next_wake_ms(self) -> int | None:
        """When there may be something to give back."""
        return self._look_ms if self._shared.manager.folding.replicated else None

    # -- records --------------------------------------------------------------------------------

    def give(
        self, one: QueueState, outcome: Outcome, to: int, *, back: bool = False,
        then: Ending | None = None,
    ) -> None:  # fmt: skip
        """Messages are to belong to another instance. back: it keeps those that it has no use
        for."""
        assert isinstance(one.queue, Queue)
        seen = one.queue.counting.before(outcome.positions)

        def done(code: str) -> None:
            if code:
                one.queue.undo(outcome)
            if then is not None:
                then(code)

        self._commit(one, Move(outcome.positions, to, seen, back=back), done)

    def _commit(self, one: QueueState, move: Move, then: Ending) -> None:
        assert isinstance(one.replicated, ReplicatedQueue)
        manager = self._shared.manager
        stamp = UnitStamp(manager.commits.incarnation, manager.commits.number())
        kind, body = moves_of(one.replicated, move, stamp)

        def done(code: str, _reason: str, _position: int) -> None:
            then(code)
            manager.changed(one)

        manager.commits.add(PendingUnit([control(kind, body)], [body], done, stamp.unit))

    # -- an owner is away ---------------------------------------------------------------------

    def take_over(self, rid: bytes, ask: s.TakeOver) -> s.Changed | None:
        """A person says so. Raises: ClientError."""
        one = self._shared.running(ask.queue)
        one.check_ready()
        replicated = one.replicated
        if replicated is None:
            raise ClientError(
                "bad_queue", f"queue {ask.queue!r} is local: no other instance has it"
            )
        if not isinstance(replicated, ReplicatedQueue):
            raise ClientError("bad_queue", NOT_OWNED % ask.queue, "let its consumers go on here")
        if ask.instance == replicated.me:
            raise ClientError(
                "bad_field", "key `instance`: this instance owns its messages already"
            )
        once = one.definition.config.semantics == "at-most-once"
        if once and not ask.may_duplicate and not ask.end:
            text = f"queue {ask.queue!r} is at-most-once, and the owner may have delivered some"
            raise ClientError("bad_queue", text, "say --may-duplicate, or wait for the owner")
        if ask.until_back:
            self._check_away(ask.instance)
        here = BitMap64() if ask.end else one.queue.here
        [taken] = _belonging(one, replicated, here, {ask.instance: ask.name})
        answer = s.Changed(ask.cid, len(taken))
        changes = ask.until_back or (ask.end and ask.instance in one.stand_ins.of)
        if ask.dry_run or not (changes or taken):
            return answer

        def done(code: str) -> None:
            answer.code, answer.reason = code, code and "it could not be written"
            self._shared.out.append(Tell(rid, answer))

        ending = after_all(bool(changes) + bool(taken), done)
        if changes:
            self._stands_in(one, StandIn(ask.instance, ask.name, not ask.end), ending)
        if taken:
            self._commit(one, Move(taken, replicated.me, taken, takeover=True), ending)
        return None

    def _check_away(self, instance: int) -> None:
        """Raises: ClientError."""
        if self._live is None:
            raise ClientError("not_ready", "it is not known yet whether that instance is away")
        if instance in self._live:
            text = "key `instance`: its log comes here, so it is not away"
            raise ClientError("bad_field", text, "take over what is here now, without --until-back")

    # -- as long as it is away ------------------------------------------------------------------

    def stand_in(self, one: QueueState) -> None:
        """Takes over what came of instances for which this one acts; not what these took over
        themselves, or two that act for each other would do so for ever."""
        many, replicated = one.stand_ins, one.replicated
        if (
            not many.of
            or not isinstance(replicated, ReplicatedQueue)
            or self._shared.leaves(one)
            or not one.ready
            or not isinstance(one.queue, Queue)
        ):
            return
        for fact in many.again(one.folded):
            self._stands_in(one, fact)
        fresh = many.fresh(one.queue.places.foreign)
        if not fresh or self._shared.manager.commits.full:
            return
        many.looked_to = fresh.max() + 1
        fresh = without(fresh, replicated.ownership.taken_over())
        names = {instance: row.name for instance, row in many.of.items()}
        for part in _belonging(one, replicated, fresh, names):
            if part:
                self._take(one, replicated.me, part)

    def _take(self, one: QueueState, me: int, part: BitMap64) -> None:
        insert(one.stand_ins.taking, part)

        def done(code: str) -> None:
            if code:
                remove(one.stand_ins.taking, part & one.stand_ins.taking)
                one.stand_ins.looked_to = 0

        self._commit(one, Move(part, me, part, takeover=True), done)

    def _stands_in(self, one: QueueState, fact: StandIn, then: Ending | None = None) -> None:
        """This instance begins to, or does no more, once the record was read."""
        changing = one.stand_ins.changing
        changing.add(fact.instance)

        def done(code: str) -> None:
            if code:
                changing.discard(fact.instance)  # it was refused, and may be tried again
            if then is not None:
                then(code)

        one.facts.append(fact)
        one.endings.append(done)
        self._shared.touch(one)

    def sources(self, live: LiveSources) -> None:
        """For instances that are back it acts no more."""
        self._live = here = frozenset(live.instances)
        for one in self._shared.manager.folding.replicated.values():
            back = here & one.stand_ins.of.keys() - one.stand_ins.changing
            for instance in sorted(back):
                name = one.stand_ins.of[instance].name
                text = (
                    f"queue {one.name!r}: {name or f'{instance:016x}'} is back; its messages "
                    "belong to it again, as they come"
                )
                values = {"queue": one.name, "instance": f"{instance:016x}"}
                self._shared.out.append(Note("queues.owner_is_back", text, "info", values))
                self._stands_in(one, StandIn(instance, name, on=False))


def _named(replicated: ReplicatedQueue, event: TransferRequest) -> BitMap64:
    """The messages of this log that a request names."""
    named = (
        replicated.runs.local(Origin(one.instance, one.generation), of_steps(one.steps))
        for one in event.where
    )
    return BitMap64.union(BitMap64(), *named)


def _belonging(
    one: QueueState, replicated: ReplicatedQueue, positions: BitMap64, names: Mapping[int, str]
) -> list[BitMap64]:
    """Those of each instance, with its name: it may be the initial owner, whose id none knows."""
    owners = replicated.ownership.owners(positions)
    initial = one.definition.config.initial_owner
    found = []
    for instance, name in names.items():
        part = owners.get(instance, BitMap64())
        found.append(part | owners.get(0, BitMap64()) if name and name == initial else part)
    return found
