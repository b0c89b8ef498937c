"""Lists of exchanges and bindings, for clients and for operators. Pure.

A client sees the exchanges to which its principal may publish or subscribe, or which it may
configure; and the bindings of queues that it may bind, and of exchanges that it may configure.
Those of local queues of other instances are for operators only: a queue of that name here is
another one.

Rows are in one order. An answer is a part of a list, made of what is known when it is asked for. It
sorts the bindings of those exchanges that it has, once as long as they stay the same: the process
has all queues to serve.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import DecodeError, msgpack

from zbroker.errors import ClientError
from zbroker.exchanges import Binding, Exchange
from zbroker.exchanges.exchange import MATCH, PREDECLARED, Comparable, comparable
from zbroker.exchanges.exchange_table import ExchangeTable
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.exchange_changes import ExchangeChanges
from zbroker.wire import bodies
from zbroker.wire import exchange_lists as w
from zbroker.wire import exchange_surveys as x

KEPT_MIN: Final = 500  # bindings of an exchange; sorting fewer takes no longer than their answer
SEES_EXCHANGE: Final = ("configure", "publish", "subscribe")
_PREDECLARED: Final = frozenset(one.name for one in PREDECLARED)
_encode: Final = msgpack.Encoder(order="deterministic").encode


class Place(NamedTuple):
    """Where a binding is in the list. arguments: encoded, the same bytes for equal ones. instance:
    of a local queue; 0: of several instances."""

    exchange: str
    queue: str
    key: str
    arguments: bytes
    instance: int


_BEGIN: Final = Place("", "", "", b"", 0)
_PLACES: Final = msgpack.Decoder(Place)
_Arguments = frozenset[tuple[str, Comparable]]


class ExchangeLists:
    """Answers commands and questions; all of them raise ClientError."""

    def __init__(self, shared: QueuesContext, changes: ExchangeChanges) -> None:
        self._shared, self._changes = shared, changes
        self._kept = Places(self._table, "", ())

    @property
    def _table(self) -> ExchangeTable:
        return self._shared.manager.exchanges.table

    # -- clients ------------------------------------------------------------------------------

    def exchanges(self, connection: QueuesConnection, command: w.ListExchanges) -> None:
        """Answers at once."""
        self._changes.check_known()
        sees = self._permit(connection, *SEES_EXCHANGE)
        rows, limit = [], command.limit
        for one in self._named(command.exchange):
            if one.name <= command.after or not sees(one.name):
                continue
            rows.append(w.ListedExchange(
                one.name, one.kind, one.alternate, one.auto_delete, one.internal
            ))  # fmt: skip
            if len(rows) > limit:
                break
        more = rows[limit - 1].exchange if len(rows) > limit else None
        self._shared.send(connection.rid, w.ExchangeList(rows[:limit], command.cid, more))

    def bindings(self, connection: QueuesConnection, command: w.ListBindings) -> None:
        """Answers at once."""
        self._changes.check_known()
        wanted = _wanted(command)
        owns = self._permit(connection, "configure")
        binds = self._permit(connection, "bind")

        def shows(place: Place, arguments: dict[str, Any]) -> bool:
            if not self._is_here(place) or not (owns(place.exchange) or binds(place.queue)):
                return False
            if wanted is None:
                return True
            return _compared(arguments) == self._of_kind(place.exchange, wanted)

        after, most = _place(command.after), command.limit + 1
        found = self._found(command.exchange, command.queue, command.key, after, most, shows)
        rows: list[w.ListedBinding] = []
        size, more = 0, None
        for place, arguments in found:
            if len(rows) == command.limit or size > w.LISTED_MAX_BYTES:
                more = msgpack.encode(after)
                break
            exchange, queue, key, packed, _ = after = place
            rows.append(w.ListedBinding(exchange, queue, key, arguments))
            size += len(exchange) + len(queue) + len(key) + len(packed)
        self._shared.send(connection.rid, w.BindingList(rows, command.cid, more))

    def _permit(self, connection: QueuesConnection, *actions: str) -> Callable[[str], bool]:
        """Whether one of these actions on a name is permitted."""
        may = self._shared.may
        return cache(lambda name: any(may(connection, action, name) for action in actions))

    def _of_kind(self, exchange: str, wanted: _Arguments) -> _Arguments:
        """Arguments as a binding of this exchange has them."""
        one = self._table.exchange(exchange)
        if one is None or one.kind != "headers" or any(name == MATCH for name, _ in wanted):
            return wanted
        return wanted | {(MATCH, "all")}

    # -- operators ----------------------------------------------------------------------------

    def survey_exchanges(self, _rid: bytes, ask: x.AskExchangeRows) -> x.ExchangesSurveyed:
        """Those that there are."""
        self._changes.check_known()
        return x.ExchangesSurveyed(ask.cid, rows=[
            x.SurveyedExchange(
                one.name, one.kind, one.alternate, one.auto_delete, one.internal,
                one.name in _PREDECLARED, self._table.binding_count_of(one.name),
            )
            for one in self._named(ask.exchange)
        ])  # fmt: skip

    def survey_bindings(self, _rid: bytes, ask: x.AskBindingRows) -> x.BindingsSurveyed:
        """All of them, those of local queues of other instances, too."""
        self._changes.check_known()
        found = self._found(ask.exchange, ask.queue, None, _BEGIN, ask.limit, lambda *_: True)
        rows = [
            x.SurveyedBinding(
                place.exchange, place.queue, place.key, arguments, place.instance,
                self._is_here(place),
            )
            for place, arguments in found
        ]  # fmt: skip
        left = 0
        if len(rows) == ask.limit:
            names = self._named(ask.exchange)
            left = sum(len(self._table.bindings(one.name, ask.queue)) for one in names) - len(rows)
        return x.BindingsSurveyed(ask.cid, rows=rows, left_out=left)

    # -- both ---------------------------------------------------------------------------------

    def _named(self, exchange: str) -> list[Exchange]:
        """The exchange of this name, or all of them, by name."""
        if not exchange:
            return self._table.exchanges()
        one = self._table.exchange(exchange)
        return [] if one is None else [one]

    def _found(
        self, exchange: str, queue: str, key: str | None, after: Place, most: int,
        shows: Callable[[Place, dict[str, Any]], bool],
    ) -> list[tuple[Place, dict[str, Any]]]:  # fmt: skip
        """The first of the bindings after a place that are shown, with their arguments; each once:
        several lives may have the same one."""
        found: list[tuple[Place, dict[str, Any]]] = []
        for one in self._named(exchange):
            if one.name < after.exchange:
                continue
            places = self._places(one.name, queue, key)
            order = places.order
            for place in order[bisect_right(order, after) :]:
                if shows(place, arguments := places.arguments[place]):
                    found.append((place, arguments))
                    if len(found) == most:
                        return found
        return found

    def _places(self, exchange: str, queue: str, key: str | None) -> Places:
        """The bindings of an exchange. Those of the last large one are kept: the next part of its
        list goes on with them."""
        table = self._table
        if queue or key is not None:
            return Places(table, exchange, table.bindings(exchange, queue, key))
        if self._kept.holds(table, exchange):
            return self._kept
        places = Places(table, exchange, table.bindings(exchange))
        if len(places.order) >= KEPT_MIN:
            self._kept = places
        return places

    def _is_here(self, place: Place) -> bool:
        return place.instance in (0, self._shared.manager.origin.instance)


class Places:
    """Bindings of an exchange in their order, as of a version of the table."""

    def __init__(self, table: ExchangeTable, exchange: str, bindings: Sequence[Binding]) -> None:
        self._table, self._version, self._exchange = table, table.version, exchange
        self.arguments: dict[Place, dict[str, Any]] = {}
        for one in bindings:
            packed = _encode(one.arguments) if one.arguments else b""
            instance = one.queue_life.instance if table.is_local(one.bound_queue) else 0
            self.arguments[Place(exchange, one.queue, one.key, packed, instance)] = one.arguments
        self.order = sorted(self.arguments)

    def holds(self, table: ExchangeTable, exchange: str) -> bool:
        """Nothing has changed since."""
        made = self._table is table and self._version == table.version
        return made and self._exchange == exchange


def _wanted(command: w.ListBindings) -> _Arguments | None:
    """Raises: ClientError bad_field."""
    if command.arguments is None:
        return None
    return _compared(bodies.checked_scalars(command.arguments, "arguments"))


def _compared(arguments: dict[str, bodies.Scalar]) -> _Arguments:
    return frozenset((name, comparable(value)) for name, value in arguments.items())


def _place(after: bytes) -> Place:
    """Raises: ClientError bad_field."""
    if not after:
        return _BEGIN
    try:
        return _PLACES.decode(after)
    except (DecodeError, UnicodeDecodeError):
        reason = "key `after`: it is not the `next` of an answer"
        raise ClientError("bad_field", reason) from None
