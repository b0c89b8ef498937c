"""Exchanges that clients declare and delete, and queues that they bind. Pure.

    declare, bind ...  --nothing to change--------------------------------+
                       --rows committed--landed--> safe at destinations --+--> ingest routes by it
                                                                                --> answered

So whatever is published after the answer, at this instance, goes where it says. Repeating a command
is harmless. Rights are checked before anything is looked at. Source: docs/reference/exchanges.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from zbroker.errors import ClientError
from zbroker.exchanges import Exchange
from zbroker.exchanges.exchange_rows import Row, record_of
from zbroker.exchanges.exchange_table import ExchangeTable
from zbroker.log.format import KIND_EXCHANGE
from zbroker.log.queue_records import QueueDeclaration
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.queue_state import QueueState
from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire import queue_messages as q

BINDINGS_MAX: Final = 20_000  # of all exchanges: each start of ingest gets all of them at once
UNDER_WAY_MAX: Final = 1_000  # changes that have not landed

_Command = q.DeclareExchange | q.DeleteExchange | q.BindQueue | q.UnbindQueue
_Binding = q.BindQueue | q.UnbindQueue
_Key = tuple[str, ...]


class ExchangeCommands:
    """Performs these commands. All of them raise ClientError."""

    def __init__(self, shared: QueuesContext, recording: Recording) -> None:
        self._shared, self._recording = shared, recording
        self._known = shared.manager.exchanges
        self._known.changed = self._delete_unused
        self._changing: set[_Key] = set()  # what rows on their way are about

    @property
    def _table(self) -> ExchangeTable:
        return self._known.table

    # -- exchanges ----------------------------------------------------------------------------

    def declare(self, connection: QueuesConnection, command: q.DeclareExchange) -> None:
        """Answers once there is such an exchange."""
        name = command.exchange
        if command.passive:
            self._look(connection, command)
            return
        self._demand(connection, "configure", name)
        if command.alternate:  # it gets messages of this one
            self._demand(connection, "subscribe", name)
            self._demand(connection, "publish", command.alternate)
        self._check_known()
        self._check_idle((name,))
        wanted = Exchange(
            name, command.kind, command.alternate, command.auto_delete, command.internal
        )
        row = self._table.declare(wanted, self._shared.manager.origin, self._shared.now.wall_ns)
        if row is None:
            self._commit(connection, command, (name,), [])
            return
        if self._recording.kind(name) is not True:
            reason = f"the topic {name[:64]!r} is not recorded, or not all of it"
            hint = "an exchange is a topic: name it in a [[record]] table without a filter"
            raise ClientError("topic_not_recorded", reason, hint)
        self._commit(connection, command, (name,), [row])

    def _look(self, connection: QueuesConnection, command: q.DeclareExchange) -> None:
        name = command.exchange
        if not self._may(connection, "publish", name):
            self._demand(connection, "configure", name)
        self._check_known()
        if self._table.exchange(name) is None:
            raise ClientError("unknown_exchange", f"there is no exchange {name[:64]!r}")
        self._answer(connection, command, changed=False)

    def delete(self, connection: QueuesConnection, command: q.DeleteExchange) -> None:
        """Answers once it is gone."""
        name = command.exchange
        self._demand(connection, "configure", name)
        self._check_known()
        self._check_idle((name,))
        rows = self._table.delete(name, self._shared.manager.origin)
        count = len(self._table.bindings(name))
        if command.if_unused and count:
            raise ClientError("exchange_in_use", f"exchange {name[:64]!r} has {count} bindings")
        self._commit(connection, command, (name,), rows)

    def _delete_unused(self) -> None:
        """Those that go with their last binding."""
        manager = self._shared.manager
        if manager.here is None:
            return
        for name in self._table.unused(manager.here.instance):
            if (name,) not in self._changing:
                self._write((name,), self._table.delete(name, manager.here), lambda *_: None)

    # -- bindings -----------------------------------------------------------------------------

    def bind(self, connection: QueuesConnection, command: q.BindQueue) -> None:
        """Answers once messages enter the queue."""
        self._demand(connection, "bind", command.queue)
        self._demand(connection, "subscribe", command.exchange)
        self._check_known()
        one = self._bound(command)
        if self._table.binding_count >= BINDINGS_MAX:
            reason = f"there are {BINDINGS_MAX} bindings, with those that were taken back"
            raise ClientError("too_many", reason, "delete queues or exchanges that have many")
        row = self._table.bind(
            command.exchange, command.queue, command.key, _arguments(command),
            self._shared.manager.origin, self._local_life(one),
        )  # fmt: skip
        self._commit(connection, command, self._key(command), [] if row is None else [row])

    def unbind(self, connection: QueuesConnection, command: q.UnbindQueue) -> None:
        """Answers once it is taken back."""
        self._demand(connection, "bind", command.queue)
        self._check_known()
        one = self._bound(command)
        rows = self._table.unbind(
            command.exchange, command.queue, command.key, _arguments(command),
            self._shared.manager.origin, self._local_life(one),
        )  # fmt: skip
        self._commit(connection, command, self._key(command), rows)

    def _key(self, command: _Binding) -> _Key:
        """What the rows of a binding are about; while its exchange changes, too, they wait."""
        self._check_idle((command.exchange,))
        key = (command.exchange, command.queue, command.key)
        self._check_idle(key)
        return key

    def _bound(self, command: _Binding) -> QueueState:
        """The queue of a binding."""
        one = self._shared.running(command.queue)
        if not one.definition.config.bound:
            reason = f"queue {command.queue[:64]!r} has a topic: it is not fed by bindings"
            hint = "declare another one with bound = true, and bind that"
            raise ClientError("bad_queue", reason, hint)
        return one

    def _local_life(self, one: QueueState) -> QueueDeclaration | None:
        if one.replicated is not None:
            return None
        [(_, life)] = one.definition.names
        return QueueDeclaration(*life)

    # -- rows on their way --------------------------------------------------------------------

    def _check_known(self) -> None:
        if not (self._shared.manager.known and self._known.follower.known):
            raise ClientError("not_ready", "the exchanges are being read")

    def _check_idle(self, key: _Key) -> None:
        """Rows are made of what is known: the next ones about the same thing wait."""
        if key in self._changing:
            raise ClientError("not_ready", f"{' '.join(key)!r} is being changed; try again")
        if len(self._changing) >= UNDER_WAY_MAX:
            raise ClientError("not_ready", "too many changes are under way; try again")

    def _commit(
        self, connection: QueuesConnection, command: _Command, key: _Key, rows: Sequence[Row]
    ) -> None:
        """Answers when these rows hold, and publishes go by them; at once if there is nothing to
        write and they do."""
        changed = bool(rows)

        def safe(position: int) -> None:
            self._known.when_routed(
                position + 1, lambda: self._answer(connection, command, changed=changed)
            )

        def landed(code: str, reason: str, position: int) -> None:
            if code:
                self._refuse(connection, command, ClientError(code, reason))
            else:
                self._shared.promises.at(position, lambda: safe(position))

        if changed:
            self._write(key, rows, landed)
        else:  # another command may have made it so a moment ago
            landed("", "", self._known.position - 1)

    def _write(self, key: _Key, rows: Sequence[Row], done: Callable[[str, str, int], None]) -> None:
        def landed(code: str, reason: str, position: int) -> None:
            self._changing.discard(key)
            done(code, reason, position)

        self._changing.add(key)
        landing = self._known.landing(rows, landed)
        self._shared.manager.commits.add_record(KIND_EXCHANGE, record_of(rows), landing)

    # -- rights and answers -------------------------------------------------------------------

    def _demand(self, connection: QueuesConnection, action: str, name: str) -> None:
        if not self._may(connection, action, name):
            reason = f"{connection.token.principal!r} may not {action} {name!r}"
            raise ClientError("not_entitled", reason)

    def _may(self, connection: QueuesConnection, action: str, name: str) -> bool:
        access = self._shared.connections.access
        return access.permit(connection.token.principal, action).verdict(name) == "all"

    def _answer(self, connection: QueuesConnection, command: _Command, *, changed: bool) -> None:
        if self._shared.connections.get(connection.rid) is connection:
            answer = q.ExchangeDone(command.exchange, changed, command.cid)
            self._shared.send(connection.rid, answer)

    def _refuse(self, connection: QueuesConnection, command: _Command, error: ClientError) -> None:
        if self._shared.connections.get(connection.rid) is connection:
            self._shared.refuse(connection.rid, error, command.cid)


def _arguments(command: _Binding) -> dict[str, bodies.Scalar]:
    """Raises: ClientError bad_field."""
    if not all(map(bodies.is_scalar, command.arguments.values())):
        raise ClientError("bad_field", f"key `arguments`: {bodies.NO_SCALARS}")
    return {name: bodies.scalar(raw) for name, raw in command.arguments.items()}
