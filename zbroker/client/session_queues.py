"""Queues and bindings that a session declares: an exclusive queue belongs to it. Pure.

The commands of a client (queue_commands.py, exchange_commands.py), which say of which session they
are, and in which epoch; so no other client uses its exclusive queues. `SessionQueues` is what
sessions with threads and in event loops share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zbroker.client import exchange_commands, queue_commands
from zbroker.client.options import method_takes
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import (
    BindQueue,
    DeclareQueue,
    DeleteQueue,
    PurgeQueue,
    UnbindQueue,
)

if TYPE_CHECKING:
    from zbroker.client.base_client import BaseClient
    from zbroker.client.session_link import SessionLink

_ALONE: Final = "an exclusive queue belongs to a session with a session_timeout"
_HINT: Final = 'client.session("name", session_timeout=60).declare_queue(..., exclusive=True)'

C = TypeVar("C", bound=DeclareQueue | DeleteQueue | PurgeQueue | BindQueue | UnbindQueue)
T = TypeVar("T")


class SessionQueues:
    """The methods of a session that are about queues."""

    _client: BaseClient[Any, Any, Any, Any]
    _link: SessionLink

    def _own(self, command: C) -> C:
        if self._link.timeout_ms:
            command.session, command.epoch = self._link.name, self._link.epoch
        return command

    @method_takes(queue_commands.declare_options)
    async def _declare_queue(
        self, options: Callable[[], queue_commands.DeclareOptions]
    ) -> queue_commands.QueueInfo:
        """As `Client.declare_queue`; `exclusive=True` makes a queue of this session.

        It needs a session_timeout: the queue is there as long as the session, also over lost
        connections and restarts, and no other client may use it.
        Raises: as there, and ZBrokerError resource_locked (it belongs to another session),
        session_fenced (this session is over).
        """
        command, timeout = options()
        if not self._link.timeout_ms:
            check_shared(command)
        return await self._aside(queue_commands.declare, self._own(command), timeout)

    @method_takes(queue_commands.delete_options)
    async def _delete_queue(self, options: Callable[[], queue_commands.DeleteOptions]) -> None:
        """As `Client.delete_queue`."""
        command, timeout = options()
        await self._aside(queue_commands.delete, self._own(command), timeout)

    @method_takes(queue_commands.purge_options)
    async def _purge_queue(self, options: Callable[[], queue_commands.PurgeOptions]) -> int:
        """As `Client.purge_queue`."""
        command, timeout = options()
        return await self._aside(queue_commands.purge, self._own(command), timeout)

    @method_takes(exchange_commands.bind_options)
    async def _bind(self, options: Callable[[], exchange_commands.ExchangeOptions]) -> bool:
        """As `Client.bind`."""
        return await self._binding(options())

    @method_takes(exchange_commands.unbind_options)
    async def _unbind(self, options: Callable[[], exchange_commands.ExchangeOptions]) -> bool:
        """As `Client.unbind`."""
        return await self._binding(options())

    async def _binding(self, options: exchange_commands.ExchangeOptions) -> bool:
        command, timeout = options
        assert isinstance(command, BindQueue | UnbindQueue)
        return await self._aside(exchange_commands.perform, self._own(command), timeout)

    async def _aside(self, function: Callable[..., T], *given: object) -> T:
        self._client._check_open()
        return await self._client._aside(function, self._client._queues, *given)


def check_shared(command: DeclareQueue) -> None:
    """Raises: ZBrokerError bad_field, for an exclusive queue: nothing of a client lasts as long as
    that has to."""
    if command.settings.get("exclusive"):
        raise ZBrokerError("bad_field", _ALONE, _HINT)
