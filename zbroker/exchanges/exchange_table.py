"""All exchanges, bindings and bound queues that are known, the same on every instance. Pure.

    rows, in any order --learn--> table --changes--> Router

Two tables that learned the same rows are equal. Two instances that cannot reach each other may
declare one exchange: two lives of one name. When they meet they become one exchange:

    the exchange   is there while one of its lives has not ended; bindings of all of these count
    definition     the highest version of all these lives
    queues         likewise: messages go to the lowest life of a name; a binding goes with the life
                   of the queue that it names, and with that of its exchange. Each life of a local
                   queue is a queue by itself: two instances may have one of that name

A binding that was made for another kind than the exchange has in the end asks for nothing, if its
arguments show that: it would match every message of a headers exchange.

Rows of lives that ended are forgotten. A binding for a queue that is not known here counts: the
instance that made it knew the queue, and what is routed to it enters when its definition comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.exchanges.exchange import (
    DEFAULT,
    PREDECLARED,
    Binding,
    BoundQueue,
    Conditions,
    Exchange,
    check_exchange,
    checked_binding,
    conditions_of,
)
from zbroker.exchanges.exchange_rows import (
    BindingIdentity,
    BindingRow,
    DeclaredQueue,
    ExchangeRow,
    Row,
    UsedExchange,
    conflict,
    holds,
    identity,
    in_order,
    rank,
)
from zbroker.ids import Origin
from zbroker.log.queue_records import QueueDeclaration, Version
from zbroker.wire.bodies import Scalar

EXCHANGES_MAX: Final = 1_000  # each is a topic with rights and a cache
BINDINGS_MAX: Final = 10_000  # of an exchange; about 1 KiB each
HEADERS_BINDINGS_MAX: Final = 1_000  # likewise: a message may be compared with all of them

ALWAYS: Final = QueueDeclaration(0, 0, 0)  # the life of exchanges that are always there
_HINT_KNOWN: Final = "declare it first"


class ExchangeChange(NamedTuple):
    """An exchange has this definition from here on; None: it is gone. All its bindings were taken
    back before, if it goes, or if its kind changes."""

    name: str
    definition: Exchange | None


class BindingChange(NamedTuple):
    """A binding counts from here on, or (`bound` is false) does not any more."""

    exchange: str
    key: str
    conditions: Conditions | None
    queue: BoundQueue
    bound: bool = True


Change = ExchangeChange | BindingChange


class Learned(NamedTuple):
    """What a row changed. changes: for a router, in order. lost: a row that does not hold against
    one of another instance that did not know it, or a definition that differs between two lives."""

    changes: Sequence[Change]
    lost: Sequence[ExchangeRow | BindingRow] = ()


class ExchangeTable:
    """What exchanges there are, and what is bound. version: counts the rows that changed it.

    Rows of peers are to be checked like those of clients before they are learned.
    """

    def __init__(self) -> None:
        self.version = 0
        self._exchanges: dict[str, dict[QueueDeclaration, ExchangeRow]] = {
            one.name: {ALWAYS: ExchangeRow(one.name, ALWAYS, Version(0, 0, 0), one)}
            for one in PREDECLARED
        }
        self._current = {one.name: one for one in PREDECLARED}
        self._used: set[tuple[str, QueueDeclaration]] = set()
        self._queues: dict[str, dict[QueueDeclaration, bool]] = {}  # True: it has not ended
        self._local: set[BoundQueue] = set()  # of these, those of one instance
        self._rows: dict[BindingIdentity, BindingRow] = {}
        # dicts in place of sets: the order of changes does not depend on hashes
        self._of_exchange: dict[str, dict[BindingIdentity, None]] = {}
        self._of_queue: dict[str, dict[BindingIdentity, None]] = {}
        self._counting: dict[str, dict[BindingIdentity, BindingChange]] = {}
        self._named: dict[str, BoundQueue] = {}  # what the default exchange binds

    # -- what is known --------------------------------------------------------------------------

    def exchange(self, name: str) -> Exchange | None:
        """The definition that holds; None: there is no such exchange, or not any more."""
        return self._current.get(name)

    def exchanges(self) -> list[Exchange]:
        """All of them, by name; the default one is not listed."""
        return [self._current[name] for name in sorted(self._current) if name != DEFAULT]

    def bindings(self, exchange: str, queue: str = "", key: str | None = None) -> list[Binding]:
        """What an exchange binds; the default one everything, so nothing is listed of it.

        queue: only to a queue of this name. key: only with this one. Where two instances made the
        same binding, it is there twice: under each life of its exchange or queue.
        """
        counting = self._counting.get(exchange, {})
        found = self._of_queue.get(queue, {}) if queue else counting
        return [
            self._rows[one].binding
            for one in found
            if key in (None, one.key) and one in counting
        ]  # fmt: skip

    def binding_count_of(self, exchange: str) -> int:
        """How many bindings of it count."""
        return len(self._counting.get(exchange, ()))

    def is_local(self, queue: BoundQueue) -> bool:
        """It is a queue of the instance of its life alone."""
        return queue in self._local

    def queue(self, name: str) -> BoundQueue | None:
        """The queue of this name that messages go to; None: none that has not ended is known."""
        return self._named.get(name)

    @property
    def binding_count(self) -> int:
        """Bindings of all exchanges, those that were taken back included: their rows are kept."""
        return len(self._rows)

    def unused(self, instance: int) -> list[str]:
        """The `auto_delete` exchanges declared by this instance that had a binding and have none.

        One instance deletes each of them: that of the lowest life.
        """
        return [
            name
            for name, one in self._current.items()
            if one.auto_delete and not self._counting.get(name) and self._was_used(name)
            and min(self._live(name)).instance == instance
        ]  # fmt: skip

    def _was_used(self, name: str) -> bool:
        return any((name, life) in self._used for life in self._live(name))

    def rows(self) -> list[Row]:
        """The rows from which an equal table can be made, in one order; for a snapshot."""
        found: list[Row] = [
            row for each in self._exchanges.values() for life, row in each.items() if life != ALWAYS
        ]
        found += self._rows.values()
        found += (
            DeclaredQueue(name, life, not live, BoundQueue(name, life) in self._local)
            for name, lives in self._queues.items()
            for life, live in lives.items()
        )
        found += (UsedExchange(name, life) for name, life in self._used)
        return in_order(found)

    def changes(self) -> list[Change]:
        """Everything that a new router has to know."""
        found: list[Change] = [ExchangeChange(name, one) for name, one in self._current.items()]
        for each in self._counting.values():
            found += each.values()
        found += (_default(queue) for queue in self._named.values())
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExchangeTable) and self.rows() == other.rows()

    # -- what becomes known ---------------------------------------------------------------------

    def learn(self, row: Row) -> Learned:
        """Takes a row into account. Nothing new: no changes, and the version stays."""
        match row:
            case ExchangeRow():
                return self._learn_exchange(row)
            case BindingRow():
                return self._learn_binding(row)
            case DeclaredQueue():
                return Learned(self._learn_queue(row))
            case UsedExchange():
                self._use(row.name, row.life)
                return Learned([])

    def _learn_exchange(self, row: ExchangeRow) -> Learned:
        if row.life == ALWAYS or ALWAYS in self._exchanges.get(row.name, ()):
            return Learned([])  # nothing changes what is always there
        rows = self._exchanges.setdefault(row.name, {})
        before = rows.get(row.life)
        if before is not None and not holds(row, before):
            return Learned([], [row] if conflict(row, before) else [])
        lost = [before] if before is not None and conflict(row, before) else []
        rows[row.life] = row
        self.version += 1
        changes = self._redefine(row.name)
        if row.definition is None:
            self._used.discard((row.name, row.life))
            of_exchange = self._of_exchange.get(row.name, ())
            self._forget([one for one in of_exchange if one.exchange_life == row.life])
        else:
            lost += self._other_definitions(row)
        return Learned(changes, lost)

    def _other_definitions(self, row: ExchangeRow) -> list[ExchangeRow]:
        """Definitions of other lives that do not hold against the newest one, or the row itself."""
        rows = [self._exchanges[row.name][life] for life in self._live(row.name)]
        newest = max(rows, key=rank)
        differing = [one for one in rows if one.definition != newest.definition]
        return [one for one in differing if row in (one, newest)]

    def _redefine(self, name: str) -> list[Change]:
        """Finds the definition of an exchange again, and what counts of its bindings."""
        rows = [self._exchanges[name][life] for life in self._live(name)]
        found = max(rows, key=rank).definition if rows else None
        changes: list[Change] = []
        if found != (before := self._current.get(name)):
            if found is None or before is None or found.kind != before.kind:
                counting = self._counting.pop(name, {}).values()
                changes += [one._replace(bound=False) for one in counting]
            changes.append(ExchangeChange(name, found))
            if found is None:
                del self._current[name]
            else:
                self._current[name] = found
        for one in self._of_exchange.get(name, ()):
            changes += self._judge(one)
        return changes

    def _learn_binding(self, row: BindingRow) -> Learned:
        binding = row.binding
        is_over = self._has_ended(binding.exchange, binding.exchange_life)
        if is_over or binding.exchange == DEFAULT:
            return Learned([])
        self._use(binding.exchange, binding.exchange_life)
        if self._queues.get(binding.queue, {}).get(binding.queue_life) is False:
            return Learned([])
        key = identity(binding)
        before = self._rows.get(key)
        if before is not None and not holds(row, before):
            return Learned([], [row] if conflict(row, before) else [])
        self._rows[key] = row
        self._of_exchange.setdefault(key.exchange, {})[key] = None
        self._of_queue.setdefault(key.queue, {})[key] = None
        self.version += 1
        lost = [before] if before is not None and conflict(row, before) else []
        return Learned(list(self._judge(key)), lost)

    def _learn_queue(self, row: DeclaredQueue) -> list[Change]:
        lives = self._queues.setdefault(row.name, {})
        before = lives.get(row.life)
        if before is not None and (not before or not row.ended):
            return []
        lives[row.life] = not row.ended
        if row.local:
            self._local.add(BoundQueue(row.name, row.life))
        self.version += 1
        named = self._named.pop(row.name, None)
        live = [life for life, is_live in lives.items() if is_live and self._merges(row.name, life)]
        if live:
            self._named[row.name] = BoundQueue(row.name, min(live))
        changes: list[Change] = []
        if named != self._named.get(row.name):
            changes += [_default(named, bound=False)] if named else []
            changes += [_default(self._named[row.name])] if live else []
        for one in self._of_queue.get(row.name, ()):
            changes += self._judge(one)
        if row.ended:
            of_queue = self._of_queue.get(row.name, ())
            self._forget([one for one in of_queue if one.queue_life == row.life])
        return changes

    def _use(self, name: str, life: QueueDeclaration) -> None:
        if life != ALWAYS and not self._has_ended(name, life) and (name, life) not in self._used:
            self._used.add((name, life))
            self.version += 1

    def _judge(self, key: BindingIdentity) -> Iterator[BindingChange]:
        """Compares what counts of a binding now with what counted."""
        counting = self._counting.setdefault(key.exchange, {})
        before, found = counting.get(key), self._counted(key)
        if before == found:
            return
        if before is not None:
            del counting[key]
            yield before._replace(bound=False)
        if found is not None:
            counting[key] = found
            yield found

    def _counted(self, key: BindingIdentity) -> BindingChange | None:
        row = self._rows[key]
        exchange = self._current.get(key.exchange)
        if exchange is None or not row.bound or key.exchange_life not in self._live(key.exchange):
            return None
        conditions = conditions_of(row.binding.arguments)
        if (conditions is not None) is not (exchange.kind == "headers"):
            return None
        queue = row.binding.bound_queue
        is_live = self._queues.get(key.queue, {}).get(key.queue_life)
        if is_live is False:
            return None
        if is_live and self._merges(*queue):
            queue = self._named[key.queue]
        return BindingChange(key.exchange, key.key, conditions, queue)

    def _merges(self, name: str, life: QueueDeclaration) -> bool:
        """All lives of a queue of several instances are one queue."""
        return BoundQueue(name, life) not in self._local

    def _forget(self, keys: Sequence[BindingIdentity]) -> None:
        """Drops rows of a life that ended, which count no longer: no row can bring them back."""
        for key in keys:
            del self._rows[key]
            for index, name in ((self._of_exchange, key.exchange), (self._of_queue, key.queue)):
                del index[name][key]
                if not index[name]:
                    del index[name]
            if key.exchange in self._counting and not self._counting[key.exchange]:
                del self._counting[key.exchange]

    def _live(self, name: str) -> list[QueueDeclaration]:
        """The lives of an exchange that have not ended."""
        rows = self._exchanges.get(name, {})
        return [life for life, row in rows.items() if row.definition is not None]

    def _has_ended(self, name: str, life: QueueDeclaration) -> bool:
        row = self._exchanges.get(name, {}).get(life)
        return row is not None and row.definition is None

    # -- the rows of commands ---------------------------------------------------------------------

    def declare(self, exchange: Exchange, here: Origin, wall_ns: int) -> ExchangeRow | None:
        """The row that declares an exchange; None: it is there already.

        `auto_delete` of one that is there is not compared, as in AMQP 0-10.

        Raises: ClientError bad_field, bad_topic, reserved_name, or too_many; exchange_exists, if
        there is one of this name with another kind, alternate or `internal`.
        """
        known = self._current.get(exchange.name)
        if known is not None and exchange.name != DEFAULT:
            self._check_same(known, exchange)
            return None
        check_exchange(exchange)
        if len(self._current) >= EXCHANGES_MAX:
            reason = f"there are {EXCHANGES_MAX} exchanges, and cannot be more"
            raise ClientError("too_many", reason, "delete some first")
        rows = self._exchanges.get(exchange.name, {})
        latest = max((life.created_ns for life in rows), default=0)
        life = QueueDeclaration(max(wall_ns, latest + 1), *here)
        return ExchangeRow(exchange.name, life, self._next_version(exchange.name, here), exchange)

    def _check_same(self, known: Exchange, exchange: Exchange) -> None:
        for key in ("kind", "alternate", "internal"):
            there, asked = getattr(known, key), getattr(exchange, key)
            if there != asked:
                reason = f"there is an exchange {known.name[:64]!r} whose `{key}` is {there!r}"
                hint = f"declare it with that, not with {str(asked)[:64]!r}, or choose another name"
                raise ClientError("exchange_exists", reason, hint)

    def _next_version(self, name: str, here: Origin) -> Version:
        rows = self._exchanges.get(name, {}).values()
        return Version(1 + max((row.version.number for row in rows), default=0), *here)

    def delete(self, name: str, here: Origin) -> list[ExchangeRow]:
        """The rows that delete an exchange, with its bindings: all lives of it that are known here.

        Raises: ClientError reserved_name, unknown_exchange; exchange_in_use, if it is the alternate
        of another one.
        """
        self._check_known(name)
        if ALWAYS in self._exchanges[name]:
            reason = f"exchange {name!r} is the broker's: it is always there"
            raise ClientError("reserved_name", reason)
        for other in self._current.values():
            if other.alternate == name:
                reason = f"{name[:64]!r} is the alternate of exchange {other.name[:64]!r}"
                raise ClientError("exchange_in_use", reason, "delete that one first")
        version = self._next_version(name, here)
        return [ExchangeRow(name, life, version) for life in sorted(self._live(name))]

    def bind(
        self, exchange: str, queue: str, key: str, arguments: dict[str, Scalar], here: Origin,
        local: QueueDeclaration | None = None,
    ) -> BindingRow | None:  # fmt: skip
        """The row that binds a queue to an exchange; None: it is bound like that already.

        local: the life of a queue of this instance alone.
        Raises: ClientError bad_field, bad_filter, unknown_exchange, unknown_queue or too_many.
        """
        binding = self._binding(exchange, queue, key, arguments, local)
        before = self._rows.get(identity(binding))
        if before is not None and before.bound:
            return None
        most = HEADERS_BINDINGS_MAX if self._current[exchange].kind == "headers" else BINDINGS_MAX
        if len(self._counting.get(exchange, ())) >= most:
            reason = f"exchange {exchange[:64]!r} has {most} bindings, and cannot have more"
            raise ClientError("too_many", reason, "unbind some first, or use several exchanges")
        number = before.version.number + 1 if before is not None else 1
        return BindingRow(binding, Version(number, *here))

    def unbind(
        self, exchange: str, queue: str, key: str, arguments: dict[str, Scalar], here: Origin,
        local: QueueDeclaration | None = None,
    ) -> list[BindingRow]:  # fmt: skip
        """The rows that take a binding back, under each life of its exchange and of its queue.

        local: as in `bind`.
        Raises: ClientError unknown_binding, unknown_exchange, unknown_queue; bad_field.
        """
        asked = identity(self._binding(exchange, queue, key, arguments, local))
        merged = [life for life in self._queues[queue] if self._merges(queue, life)]
        same = [
            row
            for exchange_life in self._live(exchange)
            for queue_life in ([local] if local is not None else merged)
            if self._queues[queue].get(queue_life) and (row := self._rows.get(
                asked._replace(exchange_life=exchange_life, queue_life=queue_life)
            )) and row.bound
        ]  # fmt: skip
        if not same:
            reason = f"queue {queue[:64]!r} is not bound like that to exchange {exchange[:64]!r}"
            hint = "name key and arguments as they were bound"
            raise ClientError("unknown_binding", reason, hint)
        return [
            BindingRow(row.binding, Version(row.version.number + 1, *here), bound=False)
            for row in same
        ]

    def _binding(
        self, exchange: str, queue: str, key: str, arguments: dict[str, Scalar],
        local: QueueDeclaration | None,
    ) -> Binding:  # fmt: skip
        known = self._check_known(exchange)
        named = self._named.get(queue) if local is None else BoundQueue(queue, local)
        if named is None or not self._queues.get(queue, {}).get(named.life):
            raise ClientError("unknown_queue", f"there is no queue {queue[:64]!r} to bind")
        life = min(self._live(exchange))
        binding = Binding(exchange, life, queue, named.life, key, dict(arguments))
        return checked_binding(binding, known.kind)

    def _check_known(self, name: str) -> Exchange:
        known = self._current.get(name)
        if known is None:
            reason = f"there is no exchange {name[:64]!r}"
            raise ClientError("unknown_exchange", reason, _HINT_KNOWN)
        return known


def _default(queue: BoundQueue, *, bound: bool = True) -> BindingChange:
    """What the default exchange binds without being asked: each queue, by its name."""
    return BindingChange(DEFAULT, queue.name, None, queue, bound)
