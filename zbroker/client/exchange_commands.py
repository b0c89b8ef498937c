"""`declare_exchange`, `delete_exchange`, `bind`, `unbind`: each a question of its own.

All of them are repeated after a lost connection: they say what there is to be. A delete and an
unbind that find nothing any more were done by the try that was not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.exchange_lists import (
    BindingInfo,
    BindingListOptions,
    ExchangeInfo,
    ExchangeListOptions,
    binding_list_options,
    exchange_list_options,
    list_bindings,
    list_exchanges,
    packed,
)
from zbroker.client.options import method_takes
from zbroker.client.questions import NOT_READY, LostError, QuestionLink, ask
from zbroker.client.subscriber.options import TIMEOUT_S, queue_name
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.wire.queue_messages import (
    BindQueue,
    DeclareExchange,
    DeleteExchange,
    ExchangeDone,
    UnbindQueue,
)

if TYPE_CHECKING:
    from zbroker.wire.bodies import Scalar

_AGAIN: Final = TEMPORARY | NOT_READY
_HINT: Final = "it may have been done: ask again"
_GONE: Final = {
    DeleteExchange: frozenset({"unknown_exchange"}),
    UnbindQueue: frozenset({"unknown_exchange", "unknown_binding", "unknown_queue"}),
}

Command = DeclareExchange | DeleteExchange | BindQueue | UnbindQueue
T = TypeVar("T")


class ExchangeOptions(NamedTuple):
    """What one of the methods is given."""

    command: Command
    timeout: float


def declare_options(  # noqa: PLR0913 - every option by its name
    name: str, kind: str = "direct", *, alternate: str = "", auto_delete: bool = False,
    internal: bool = False, passive: bool = False, timeout: float = TIMEOUT_S,
) -> ExchangeOptions:  # fmt: skip
    """See `Client.declare_exchange`. Raises: ZBrokerError bad_field; TypeError."""
    command = DeclareExchange(
        queue_name(name), kind=kind, alternate=alternate, auto_delete=bool(auto_delete),
        internal=bool(internal), passive=bool(passive),
    )  # fmt: skip
    return ExchangeOptions(command, timeout)


def delete_options(
    name: str, *, if_unused: bool = False, timeout: float = TIMEOUT_S
) -> ExchangeOptions:
    """See `Client.delete_exchange`. Raises: ZBrokerError bad_field; TypeError."""
    return ExchangeOptions(DeleteExchange(queue_name(name), if_unused=bool(if_unused)), timeout)


def bind_options(
    queue: str, exchange: str, key: str = "",
    arguments: Mapping[str, Scalar] | None = None, *, timeout: float = TIMEOUT_S,
) -> ExchangeOptions:  # fmt: skip
    """See `Client.bind`. Raises: ZBrokerError bad_field; TypeError."""
    names = queue_name(queue), queue_name(exchange)
    return ExchangeOptions(BindQueue(*names, key=key, arguments=packed(arguments)), timeout)


def unbind_options(
    queue: str, exchange: str, key: str = "",
    arguments: Mapping[str, Scalar] | None = None, *, timeout: float = TIMEOUT_S,
) -> ExchangeOptions:  # fmt: skip
    """See `Client.unbind`. Raises: ZBrokerError bad_field; TypeError."""
    names = queue_name(queue), queue_name(exchange)
    return ExchangeOptions(UnbindQueue(*names, key=key, arguments=packed(arguments)), timeout)


def perform(listeners: ListenerEndpoints, command: Command, timeout: float) -> bool:
    """True: this call changed something; false: it was so, or an earlier try of it did.

    Raises: ZBrokerError with the broker's code, or "timeout".
    """
    lost = False

    def do_it(to: QuestionLink) -> bool:
        nonlocal lost
        try:
            answer = to.ask(command)
        except LostError:
            lost = True
            raise
        except ZBrokerError as error:
            if lost and error.code in _GONE.get(type(command), ()):
                return False
            raise
        assert isinstance(answer, ExchangeDone)
        return answer.changed

    what = f"{type(command).__struct_config__.tag}({command.exchange!r})"
    return ask(listeners, timeout, what, do_it, _AGAIN, _HINT)


class ExchangeMethods:
    """The methods of a client that are about exchanges."""

    _queues: ListenerEndpoints

    def _check_open(self) -> None:
        raise NotImplementedError

    async def _aside(self, function: Callable[..., T], *given: object) -> T:
        raise NotImplementedError

    async def _exchange(self, options: ExchangeOptions) -> bool:
        return await self._aside(perform, self._queues, *options)

    @method_takes(exchange_list_options)
    async def _exchanges(self, options: Callable[[], ExchangeListOptions]) -> list[ExchangeInfo]:
        """The exchanges that the principal may publish or subscribe to, or configure, by name.

        name: only this one: an empty list if it is not there, or not to be seen. Any instance says
        what it knows; one that was declared at another instance is known a moment later. In an
        event loop another thread asks.
        Raises: ZBrokerError bad_field, not_ready, "timeout".
        """
        self._check_open()
        return await self._aside(list_exchanges, self._queues, *options())

    @method_takes(binding_list_options)
    async def _bindings(self, options: Callable[[], BindingListOptions]) -> list[BindingInfo]:
        """The bindings of queues that the principal may bind, and of exchanges that it may
        configure, by exchange, queue and key.

        exchange, queue: only of these. key: only with this key; arguments: only with these and no
        others, where `x-match` is "all" if it is left out. Local queues of other instances are not
        listed. Else as `exchanges`.
        """
        self._check_open()
        return await self._aside(list_bindings, self._queues, *options())

    @method_takes(declare_options)
    async def _declare_exchange(self, options: Callable[[], ExchangeOptions]) -> bool:
        """Makes an exchange, durably, unless it is there; true if this call made it.

        An exchange is a recorded topic of this name: messages that are published to it, as
        `publish(name, data, key=b"order.paid")`, go to the queues that are bound to it. kind:
        "direct", "topic", "fanout" or "headers". alternate: the exchange that gets the messages
        that no binding of this one asks for. auto_delete: it goes with its last binding. internal:
        no client publishes to it. passive: only looks whether there is one. timeout: seconds; a
        lost connection is waited for until then. In an event loop another thread asks.
        Raises: ZBrokerError exchange_exists (of another kind or with another alternate),
        unknown_exchange (passive), topic_not_recorded, not_entitled, reserved_name, bad_topic,
        too_many, bad_field, "timeout".
        """
        self._check_open()
        return await self._exchange(options())

    @method_takes(delete_options)
    async def _delete_exchange(self, options: Callable[[], ExchangeOptions]) -> bool:
        """Deletes an exchange with its bindings, durably; messages that are in queues stay there.

        if_unused: only if nothing is bound to it. False: an earlier try that was not answered did
        it. In an event loop another thread asks.
        Raises: ZBrokerError unknown_exchange, exchange_in_use, reserved_name, not_entitled,
        "timeout".
        """
        self._check_open()
        return await self._exchange(options())

    @method_takes(bind_options)
    async def _bind(self, options: Callable[[], ExchangeOptions]) -> bool:
        """Binds a queue to an exchange: messages that are published from now on enter it.

        That is durable when this returns, and holds for all that is published afterwards to the
        instance that was asked. The queue was declared with `bound=True`. key: of the messages, for
        a topic exchange a pattern ("order.*.paid", "#"). arguments: of a headers exchange, headers
        and "x-match". True if it was not bound like that before. In an event loop another thread
        asks.
        Raises: ZBrokerError unknown_queue, unknown_exchange, bad_queue (the queue has a topic),
        not_entitled, bad_filter, too_many, bad_field, "timeout".
        """
        self._check_open()
        return await self._exchange(options())

    @method_takes(unbind_options)
    async def _unbind(self, options: Callable[[], ExchangeOptions]) -> bool:
        """Takes a binding back, with this key and these arguments; messages in the queue stay.

        False: an earlier try that was not answered did it. In an event loop another thread asks.
        Raises: ZBrokerError unknown_binding, unknown_queue, unknown_exchange, not_entitled,
        "timeout".
        """
        self._check_open()
        return await self._exchange(options())
