"""Changes of exchanges and bindings: what there is to be written, and when it holds. Pure.

    plan  --nothing to change--------------------------------+
          --rows committed--landed--> safe at destinations --+--> ingest routes by it --> done

So whatever is published after the end of a change, at this instance, goes where it says. Repeating
one is harmless. Rights are checked by those who ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.exchanges import Exchange
from zbroker.exchanges.exchange_rows import Row, record_of
from zbroker.exchanges.exchange_table import ExchangeTable
from zbroker.log.format import KIND_EXCHANGE
from zbroker.log.queue_records import QueueDeclaration
from zbroker.queues.context import QueuesContext
from zbroker.queues.queue_state import QueueState
from zbroker.recording import Recording
from zbroker.wire.bodies import Scalar

BINDINGS_MAX: Final = 20_000  # of all exchanges: each start of ingest gets all of them at once
UNDER_WAY_MAX: Final = 1_000  # changes that have not landed

Key = tuple[str, ...]
#: called with the refusal, or None once a change holds
Done = Callable[[ClientError | None], None]


class NamedBinding(NamedTuple):
    """What a bind or an unbind names."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Scalar]


class Plan(NamedTuple):
    """A change. key: what its rows are about, of which one change is on its way at a time. rows:
    none if it is so already. bindings: how many end with an exchange."""

    key: Key
    rows: Sequence[Row]
    bindings: int = 0

    @property
    def changes(self) -> bool:
        """There is something to write."""
        return bool(self.rows)


class ExchangeChanges:
    """Plans changes, each of which raises ClientError, and performs them."""

    def __init__(self, shared: QueuesContext, recording: Recording) -> None:
        self._shared, self._recording = shared, recording
        self._known = shared.manager.exchanges
        self._known.changed = self._delete_unused
        self._changing: set[Key] = set()  # what rows on their way are about

    @property
    def _table(self) -> ExchangeTable:
        return self._known.table

    # -- exchanges ----------------------------------------------------------------------------

    def declare(self, wanted: Exchange) -> Plan:
        """There is to be such an exchange."""
        name = wanted.name
        self.check_known()
        self._check_idle((name,))
        row = self._table.declare(wanted, self._shared.manager.origin, self._shared.now.wall_ns)
        if row is None:
            return Plan((name,), [])
        if self._recording.kind(name) is not True:
            reason = f"the topic {name[:64]!r} is not recorded, or not all of it"
            hint = "an exchange is a topic: name it in a [[record]] table without a filter"
            raise ClientError("topic_not_recorded", reason, hint)
        return Plan((name,), [row])

    def look(self, name: str) -> None:
        """Raises: ClientError unknown_exchange, not_ready."""
        self.check_known()
        if self._table.exchange(name) is None:
            raise ClientError("unknown_exchange", f"there is no exchange {name[:64]!r}")

    def delete(self, name: str, *, if_unused: bool) -> Plan:
        """It is to be gone."""
        self.check_known()
        self._check_idle((name,))
        rows = self._table.delete(name, self._shared.manager.origin)
        count = self._table.binding_count_of(name)
        if if_unused and count:
            raise ClientError("exchange_in_use", f"exchange {name[:64]!r} has {count} bindings")
        return Plan((name,), rows, count)

    def _delete_unused(self) -> None:
        """Those that go with their last binding."""
        manager = self._shared.manager
        if manager.here is None:
            return
        for name in self._table.unused(manager.here.instance):
            if (name,) not in self._changing:
                self._write((name,), self._table.delete(name, manager.here), lambda *_: None)

    # -- bindings -----------------------------------------------------------------------------

    def bind(self, wanted: NamedBinding) -> Plan:
        """Messages are to enter the queue."""
        self.check_known()
        one = self._bound(wanted.queue)
        if self._table.binding_count >= BINDINGS_MAX:
            reason = f"there are {BINDINGS_MAX} bindings, with those that were taken back"
            raise ClientError("too_many", reason, "delete queues or exchanges that have many")
        row = self._table.bind(*wanted, self._shared.manager.origin, self._local_life(one))
        return Plan(self._key(wanted), [] if row is None else [row])

    def unbind(self, wanted: NamedBinding) -> Plan:
        """The binding is to be taken back."""
        self.check_known()
        local = self._local_life(self._bound(wanted.queue))
        rows = self._table.unbind(*wanted, self._shared.manager.origin, local)
        return Plan(self._key(wanted), rows)

    def _key(self, wanted: NamedBinding) -> Key:
        """What the rows of a binding are about; while its exchange changes, too, they wait."""
        self._check_idle((wanted.exchange,))
        key = (wanted.exchange, wanted.queue, wanted.key)
        self._check_idle(key)
        return key

    def _bound(self, queue: str) -> QueueState:
        """The queue of a binding."""
        one = self._shared.running(queue)
        if not one.definition.config.bound:
            reason = f"queue {queue[:64]!r} has a topic: it is not fed by bindings"
            hint = "declare another one with bound = true, and bind that"
            raise ClientError("bad_queue", reason, hint)
        return one

    def _local_life(self, one: QueueState) -> QueueDeclaration | None:
        if one.replicated is not None:
            return None
        [(_, life)] = one.definition.names
        return QueueDeclaration(*life)

    # -- rows on their way --------------------------------------------------------------------

    def check_known(self) -> None:
        """Raises: ClientError not_ready."""
        if not (self._shared.manager.known and self._known.follower.known):
            raise ClientError("not_ready", "the exchanges are being read")

    def _check_idle(self, key: Key) -> None:
        """Rows are made of what is known: the next ones about the same thing wait."""
        if key in self._changing:
            raise ClientError("not_ready", f"{' '.join(key)!r} is being changed; try again")
        if len(self._changing) >= UNDER_WAY_MAX:
            raise ClientError("not_ready", "too many changes are under way; try again")

    def perform(self, plan: Plan, done: Done) -> None:
        """Calls `done` when its rows hold, and publishes go by them; at once if there is nothing to
        write and they do."""

        def safe(position: int) -> None:
            self._known.when_routed(position + 1, lambda: done(None))

        def landed(code: str, reason: str, position: int) -> None:
            if code:
                done(ClientError(code, reason))
            else:
                self._shared.promises.at(position, lambda: safe(position))

        if plan.changes:
            self._write(plan.key, plan.rows, landed)
        else:  # another command may have made it so a moment ago
            landed("", "", self._known.position - 1)

    def _write(self, key: Key, rows: Sequence[Row], done: Callable[[str, str, int], None]) -> None:
        def landed(code: str, reason: str, position: int) -> None:
            self._changing.discard(key)
            done(code, reason, position)

        self._changing.add(key)
        landing = self._known.landing(rows, landed)
        self._shared.manager.commits.add_record(KIND_EXCHANGE, record_of(rows), landing)
