"""Exchanges that clients declare and delete, and queues that they bind. Pure.

Rights are checked before anything is looked at. Each command is answered once what it asks for
holds, see exchange_changes.py. Source: docs/reference/exchanges.md.
"""

from __future__ import annotations

from zbroker.errors import ClientError
from zbroker.exchanges import Exchange
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.exchange_changes import ExchangeChanges, NamedBinding, Plan
from zbroker.queues.exclusive_queues import ExclusiveQueues
from zbroker.wire import bodies
from zbroker.wire import queue_messages as q

_Command = q.DeclareExchange | q.DeleteExchange | q.BindQueue | q.UnbindQueue
_Binding = q.BindQueue | q.UnbindQueue


class ExchangeCommands:
    """Performs these commands. All of them raise ClientError."""

    def __init__(
        self, shared: QueuesContext, changes: ExchangeChanges, exclusive: ExclusiveQueues
    ) -> None:
        self._shared, self._changes, self._exclusive = shared, changes, exclusive

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
        wanted = Exchange(
            name, command.kind, command.alternate, command.auto_delete, command.internal
        )
        self._perform(connection, command, self._changes.declare(wanted))

    def _look(self, connection: QueuesConnection, command: q.DeclareExchange) -> None:
        name = command.exchange
        if not self._shared.may(connection, "publish", name):
            self._demand(connection, "configure", name)
        self._changes.look(name)
        self._answer(connection, command, changed=False)

    def delete(self, connection: QueuesConnection, command: q.DeleteExchange) -> None:
        """Answers once it is gone."""
        self._demand(connection, "configure", command.exchange)
        plan = self._changes.delete(command.exchange, if_unused=command.if_unused)
        self._perform(connection, command, plan)

    def bind(self, connection: QueuesConnection, command: q.BindQueue) -> None:
        """Answers once messages enter the queue."""
        self._demand(connection, "bind", command.queue)
        self._demand(connection, "subscribe", command.exchange)
        self._check_owner(connection, command)
        self._perform(connection, command, self._changes.bind(_wanted(command)))

    def unbind(self, connection: QueuesConnection, command: q.UnbindQueue) -> None:
        """Answers once it is taken back."""
        self._demand(connection, "bind", command.queue)
        self._check_owner(connection, command)
        self._perform(connection, command, self._changes.unbind(_wanted(command)))

    def _check_owner(self, connection: QueuesConnection, command: _Binding) -> None:
        one = self._shared.manager.running.get(command.queue)
        if one is not None:
            self._exclusive.check(connection, one, command)

    # -- rights and answers -------------------------------------------------------------------

    def _demand(self, connection: QueuesConnection, action: str, name: str) -> None:
        if not self._shared.may(connection, action, name):
            reason = f"{connection.token.principal!r} may not {action} {name!r}"
            raise ClientError("not_entitled", reason)

    def _perform(self, connection: QueuesConnection, command: _Command, plan: Plan) -> None:
        def done(error: ClientError | None) -> None:
            if error is None:
                self._answer(connection, command, changed=plan.changes)
            else:
                self._shared.refuse_late(connection, error, command.cid)

        self._changes.perform(plan, done)

    def _answer(self, connection: QueuesConnection, command: _Command, *, changed: bool) -> None:
        answer = q.ExchangeDone(command.exchange, changed, command.cid)
        self._shared.answer_late(connection, answer)


def _wanted(command: _Binding) -> NamedBinding:
    """Raises: ClientError bad_field."""
    arguments = bodies.checked_scalars(command.arguments, "arguments")
    return NamedBinding(command.exchange, command.queue, command.key, arguments)
