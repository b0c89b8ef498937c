"""What exchanges and bindings a client may see, at the queues listener.

    list_exchanges{exchange, after}              ->
                                                 <-  exchange_list{rows, next}
    list_bindings{exchange, queue, key, after}   ->
                                                 <-  binding_list{rows, next}

An answer has a part of a list, which is in one order: `next` says where it goes on, and is given as
`after`. Rows that are made or deleted meanwhile may be missing, each other one is there once. Rows
that the principal has no right to see are left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Raw, Struct

from zbroker.limits import KIB
from zbroker.wire.messages import Cid, ClientCommand, Secret, ServerAnswer

LISTED_MAX: Final = 1_000  # rows of one answer
LISTED_MAX_BYTES: Final = 256 * KIB  # about, of their names, keys and arguments
ARGUMENTS_MAX: Final = 101  # of a binding, with x-match
AFTER_MAX_BYTES: Final = 32 * KIB  # names, a key, and arguments of 16 KiB

NameOrAll = Annotated[str, Meta(max_length=255)]
Arguments = Annotated[dict[Secret, Raw], Meta(max_length=ARGUMENTS_MAX)]
Listed = Annotated[int, Meta(ge=1, le=LISTED_MAX)]


class ListExchanges(ClientCommand, tag="list_exchanges"):
    """-> queues. Which exchanges are there? Answered by ExchangeList.

    exchange: only the one of this name; "" is all. after: the name after which to begin; limit:
    rows at most.
    """

    cid: Cid = None
    exchange: NameOrAll = ""
    after: NameOrAll = ""
    limit: Listed = LISTED_MAX


class ListBindings(ClientCommand, tag="list_bindings"):
    """-> queues. Which queues are bound to which exchanges? Answered by BindingList.

    exchange, queue: only of these names; "" is all. key: only with this one; arguments: only with
    these, and no others; None: whatever they are. after: `next` of the answer before.
    """

    cid: Cid = None
    exchange: NameOrAll = ""
    queue: NameOrAll = ""
    key: NameOrAll | None = None
    arguments: Arguments | None = None
    after: Annotated[bytes, Meta(max_length=AFTER_MAX_BYTES)] = b""
    limit: Listed = LISTED_MAX


class ListedExchange(Struct):
    """An exchange, with what it was declared with."""

    exchange: str
    kind: str
    alternate: str
    auto_delete: bool
    internal: bool


class ListedBinding(Struct):
    """A binding. arguments: of a headers exchange, with `x-match`; a Scalar each."""

    exchange: str
    queue: str
    key: str
    arguments: dict[str, Any]


class ExchangeList(ServerAnswer, tag="exchange_list"):
    """queues -> client. By name. next: what to give as `after` for more; None: there is no more."""

    rows: list[ListedExchange]
    cid: Cid = None
    next: str | None = None


class BindingList(ServerAnswer, tag="binding_list"):
    """queues -> client. By exchange, queue, key and arguments. next: likewise."""

    rows: list[ListedBinding]
    cid: Cid = None
    next: bytes | None = None
