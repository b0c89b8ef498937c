"""`exchanges` and `bindings`: what there is, asked for part by part over one connection.

After a lost connection the list is asked for from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Raw, msgpack
from msgspec.structs import replace

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.questions import NOT_READY, QuestionLink, ask
from zbroker.client.subscriber.options import TIMEOUT_S, queue_name
from zbroker.client.values import to_headers
from zbroker.errors import TEMPORARY
from zbroker.wire.exchange_lists import (
    BindingList,
    ExchangeList,
    ListBindings,
    ListExchanges,
)

if TYPE_CHECKING:
    from zbroker.wire.bodies import Scalar

_AGAIN: Final = TEMPORARY | NOT_READY


class ExchangeInfo(NamedTuple):
    """An exchange. kind: direct, topic, fanout or headers; the rest as it was declared."""

    name: str
    kind: str
    alternate: str
    auto_delete: bool
    internal: bool


class BindingInfo(NamedTuple):
    """A binding. arguments: of a headers exchange, always with `x-match`; else none."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Scalar]


class ExchangeListOptions(NamedTuple):
    """What `exchanges` is given."""

    command: ListExchanges
    timeout: float


class BindingListOptions(NamedTuple):
    """What `bindings` is given."""

    command: ListBindings
    timeout: float


def exchange_list_options(
    name: str | None = None, *, timeout: float = TIMEOUT_S
) -> ExchangeListOptions:
    """See `Client.exchanges`. Raises: ZBrokerError bad_field; TypeError."""
    return ExchangeListOptions(ListExchanges(exchange=_name(name)), timeout)


def binding_list_options(
    exchange: str | None = None, queue: str | None = None, *, key: str | None = None,
    arguments: Mapping[str, Scalar] | None = None, timeout: float = TIMEOUT_S,
) -> BindingListOptions:  # fmt: skip
    """See `Client.bindings`. Raises: ZBrokerError bad_field; TypeError."""
    wanted = None if arguments is None else packed(arguments)
    command = ListBindings(
        exchange=_name(exchange), queue=_name(queue), key=key, arguments=wanted
    )  # fmt: skip
    return BindingListOptions(command, timeout)


def _name(given: str | None) -> str:
    return "" if given is None else queue_name(given)


def packed(arguments: Mapping[str, Scalar] | None) -> dict[str, Raw]:
    """Arguments of a binding as they are sent. Raises: ZBrokerError bad_field; TypeError."""
    checked = to_headers(arguments) if arguments else {}
    return {name: Raw(msgpack.encode(value)) for name, value in checked.items()}


def list_exchanges(
    listeners: ListenerEndpoints, command: ListExchanges, timeout: float
) -> list[ExchangeInfo]:
    """Raises: ZBrokerError with the broker's code, or "timeout"."""

    def all_of_them(to: QuestionLink) -> list[ExchangeInfo]:
        found: list[ExchangeInfo] = []
        after: str | None = ""
        while after is not None:
            answer = to.ask(replace(command, after=after))
            assert isinstance(answer, ExchangeList)
            found += (
                ExchangeInfo(row.exchange, row.kind, row.alternate, row.auto_delete, row.internal)
                for row in answer.rows
            )
            after = answer.next
        return found

    return ask(listeners, timeout, f"exchanges({command.exchange!r})", all_of_them, _AGAIN)


def list_bindings(
    listeners: ListenerEndpoints, command: ListBindings, timeout: float
) -> list[BindingInfo]:
    """Raises: as `list_exchanges`."""

    def all_of_them(to: QuestionLink) -> list[BindingInfo]:
        found: list[BindingInfo] = []
        after: bytes | None = b""
        while after is not None:
            answer = to.ask(replace(command, after=after))
            assert isinstance(answer, BindingList)
            found += (
                BindingInfo(row.exchange, row.queue, row.key, row.arguments) for row in answer.rows
            )
            after = answer.next
        return found

    what = f"bindings({command.exchange!r}, {command.queue!r})"
    return ask(listeners, timeout, what, all_of_them, _AGAIN)
