"""A local queue becomes a queue of several instances, with all that is in it. Pure.

    asked --its log is read for the names of its messages; it works on--> named
          --nothing is offered, what was decided lands--> quiet
          --one unit: the local queue ends, its state by origin, the definition--> landed
          --the queue begins again as one of several instances, and is read--> over

Acknowledgements that come after `named` wait, and count in the queue that it is then, or in the
local one if it stays that. Before the unit has landed the queue is local, after that it is not:
there is nothing between the two. The definition is the last part of the unit, so who knows of it
has what is done in its log before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.config import QueueConfig
from zbroker.engine.contract import Now
from zbroker.engine.effects import Note
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.limits import MIB
from zbroker.log import queue_records as qr
from zbroker.log.format import KIND_DEFINITION, KIND_OUTCOMES, KIND_WIRING
from zbroker.log.records import DefinitionRecord, encode
from zbroker.queues.commits import PendingUnit, control
from zbroker.queues.context import QueuesContext
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replicated.origin_scan import OriginScan
from zbroker.queues.replicated_registry import LocalPlace
from zbroker.queues.work.carried import CarriedPart, parts_of
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import span

QUIET_MAX_MS: Final = 10_000  # consumers get nothing meanwhile; then it stays local
STATE_MAX_BYTES: Final = 4 * MIB  # of the record: about two million messages apart from each other
SET_POSITIONS: Final = 1 << 31  # of one set of a fact: a reader takes no larger ones
WHY: Final = "migrated"

#: called when it is over: how many messages the queue has now; or why it is local still
Over = Callable[[int, ClientError | None], None]
#: what waits for a change to be over; the queue with this name then, None if there is none
Held = Callable[[QueueState | None], None]


class ScopeChange(Struct):
    """One on its way. until_ms: it has to be quiet by then; 0: names are being read. count: of
    messages that are left, once it was written. held: see Held."""

    one: QueueState
    config: QueueConfig
    source: str
    over: Over
    scan: OriginScan
    until_ms: int = 0
    count: int | None = None
    landed: bool = False
    held: list[Held] = field(default_factory=list)


class ScopeChanges:
    """All of a process."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared
        self._many: dict[str, ScopeChange] = {}

    # -- begin --------------------------------------------------------------------------------

    def begin(self, one: QueueState, config: QueueConfig, source: str, over: Over) -> None:
        """The local queue is to be as this says. Raises: ClientError."""
        manager = self._shared.manager
        self.check(one)
        scan = OriginScan(manager.rows[one.name].begins, one.definition.topics)
        self._many[one.name] = ScopeChange(one, config, source, over, scan)
        manager.moving.add(one.name)
        manager.folding.begin_scan(one, scan)

    def check(self, one: QueueState) -> None:
        """Raises: ClientError, if a change cannot begin now."""
        self.check_stays(one)
        one.check_unlocked()
        if one.returning:
            raise ClientError("not_ready", f"dead letters come back to {one.name!r}; try again")

    def check_stays(self, one: QueueState) -> None:
        """Raises: ClientError not_ready, if what is in the queue is not known, or may not change
        now."""
        one.check_ready()
        if one.name in self._many:
            text = f"queue {one.name!r} is about to be on several instances; try again"
            raise ClientError("not_ready", text)

    def is_changing(self, name: str) -> bool:
        """One of this queue is on its way: what would change what is in it has to wait."""
        return name in self._many

    def hold(self, one: QueueState, then: Held) -> bool:
        """True if a command has to wait until it is known what the queue becomes."""
        if not self.holds(one):
            return False
        self._many[one.name].held.append(then)
        return True

    def holds(self, one: QueueState) -> bool:
        """Whether commands about what is in it wait."""
        change = self._many.get(one.name)
        return change is not None and change.until_ms > 0

    def configured(self) -> None:
        """Queues that are local in the log and not in the config any more."""
        manager = self._shared.manager
        for name, config in [*manager.to_move.items()]:
            one = manager.running.get(name)
            if one is None or not one.ready or self.is_changing(name):
                continue
            if one.returning or one.reserved:
                continue
            del manager.to_move[name]
            self.begin(one, config, "config", self._noted(config))

    def _noted(self, config: QueueConfig) -> Over:
        name, scope = config.name, config.scope

        def over(count: int, error: ClientError | None) -> None:
            values: dict[str, object] = {"queue": name, "scope": scope, "messages": count}
            if error is None:
                text = (
                    f"queue {name!r} was local and has scope {scope!r} now, with {count} messages"
                )
                self._shared.out.append(Note("queues.scope_changed", text, "info", values))
                return
            values["reason"] = error.reason
            text = (
                f"queue {name!r} stays local, and the config has scope {scope!r}: {error.reason}; "
                "nothing is lost: the next start tries again"
            )
            self._shared.out.append(Note("queues.scope_not_changed", text, "error", values))

        return over

    # -- steps --------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """The next step of each."""
        manager = self._shared.manager
        if manager.to_move:
            self.configured()
        for name, change in [*self._many.items()]:
            if change.landed:
                self._landed(name, change)
            elif manager.running.get(name) is not change.one:
                self._fail(name, change, ClientError("unknown_queue", f"queue {name!r} is gone"))
            elif change.count is None:
                self._step(name, change, now)

    def _step(self, name: str, change: ScopeChange, now: Now) -> None:
        one = change.one
        if not change.scan.following:
            return
        if not change.until_ms:
            change.until_ms = now.mono_ms + QUIET_MAX_MS
            one.migrating = True
        if self._is_quiet(one):
            try:
                self._write(name, change)
            except ClientError as error:
                self._fail(name, change, error)
        elif now.mono_ms >= change.until_ms:
            text = "earlier decisions about its messages could not be written in time"
            self._fail(name, change, ClientError("not_ready", text, "see why, and try again"))

    @staticmethod
    def _is_quiet(one: QueueState) -> bool:
        """All that was decided is in the log, and was read there."""
        decided = one.entries or one.facts or one.queue.going or one.returning
        return not decided and not one.letters_read

    def next_wake_ms(self) -> int | None:
        """When one has taken too long."""
        ends = [one.until_ms for one in self._many.values() if one.until_ms and one.count is None]
        return min(ends, default=None)

    # -- the unit -----------------------------------------------------------------------------

    def _write(self, name: str, change: ScopeChange) -> None:
        """Raises: ClientError too_large."""
        one, manager = change.one, self._shared.manager
        assert isinstance(one.queue, Queue)
        here = one.queue.here.copy()
        assert change.scan.is_whole(here), "each message has an origin"
        ended = _ended(manager.rows[name])
        made = manager.replicated.migrated(
            change.config, change.source, change.scan.begins, ended.types
        )
        facts = self._facts(change.scan, one.queue, here)
        state = qr.OutcomesRecord(name, made.life, 0, 0, qr.packed(facts))
        number = manager.commits.number()
        for record in (ended, state, made):
            record.by, record.unit = manager.commits.incarnation, number
        bodies = [encode(ended), encode(state), encode(made)]
        if len(bodies[1]) > STATE_MAX_BYTES:
            text = (
                f"the state of queue {name!r} takes {len(bodies[1])} bytes, and a unit at most "
                f"{STATE_MAX_BYTES}: too many messages are done between others that are not"
            )
            hint = "let consumers do more of the oldest ones, or purge them, and try again"
            raise ClientError("too_large", text, hint)
        change.count = len(here)
        lowest = one.queue.lowest
        first = one.folded if lowest is None else min(lowest, one.folded)
        place = LocalPlace(first, dict(change.scan.read))
        manager.folding.end_scan(name)
        kinds = (KIND_WIRING, KIND_OUTCOMES, KIND_DEFINITION)
        parts = [control(kind, body) for kind, body in zip(kinds, bodies, strict=True)]

        def done(code: str, reason: str, position: int) -> None:
            if code:
                self._fail(name, change, ClientError(code, reason))
                return
            change.landed = True
            manager.migrated(ended, made, position, place)

        manager.commits.add(PendingUnit(parts, [*bodies], done, number))

    @staticmethod
    def _facts(scan: OriginScan, queue: Queue, here: BitMap64) -> list[qr.AnyQueueFact]:
        """The state of the queue by origin."""
        return [*_gone(scan, here), *(_carried(scan, part) for part in parts_of(queue))]

    # -- over ---------------------------------------------------------------------------------

    def _landed(self, name: str, change: ScopeChange) -> None:
        """It was read as far as it was written, or is over already."""
        one = self._shared.manager.running.get(name)
        if one is not None and not one.ready:
            return
        del self._many[name]
        change.over(change.count or 0, None)
        for then in change.held:
            then(one)

    def _fail(self, name: str, change: ScopeChange, error: ClientError) -> None:
        """The queue is what it was."""
        manager = self._shared.manager
        del self._many[name]
        manager.moving.discard(name)
        manager.folding.end_scan(name)
        change.one.migrating = False
        manager.replicated.converge(name)  # what a peer has defined meanwhile
        self._shared.touch(change.one)
        change.over(0, error)
        for then in change.held:
            then(manager.running.get(name))


def _ended(record: DefinitionRecord) -> DefinitionRecord:
    """The record that ends the local queue."""
    return DefinitionRecord(
        record.name, record.life, "admin", record.created, record.begins, types=record.types
    )


def _gone(scan: OriginScan, here: BitMap64) -> Iterator[qr.OriginsGone]:
    where = _sets(scan.done(here))
    if where:
        yield qr.OriginsGone(where, WHY)


def _carried(scan: OriginScan, part: CarriedPart) -> qr.Carried:
    where = _sets(scan.names(part.positions))
    return qr.Carried(where, *part[1:])


def _sets(names: dict[Origin, BitMap64]) -> list[qr.OriginSet]:
    found = []
    for origin, positions in sorted(names.items()):
        for first in range(positions.min(), positions.max() + 1, SET_POSITIONS):
            part = positions & span(first, first + SET_POSITIONS)
            if part:
                found.append(qr.OriginSet(*origin, qr.steps_of(part)))
    return found
