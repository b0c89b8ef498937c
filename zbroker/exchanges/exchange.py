"""What an exchange and a binding are, which there cannot be, and what a routing key is. Pure.

    exchange   a recorded topic whose messages go to the queues that are bound to it
    binding    from an exchange to a queue: the messages whose key or headers it asks for

    kind       a message goes to the queues of
    direct     the bindings with its routing key
    topic      the bindings whose pattern its routing key matches (topic_trie.py)
    fanout     all bindings
    headers    the bindings whose arguments its headers match

The AMQP texts and brokers differ in these points; here they are as in RabbitMQ, so that its clients
find what they know:

- a binding is known by its arguments, too: the same key with other arguments is another binding
  (AMQP 0-10 takes it for the first one, and silently ignores what it asks for)
- `x-match` may be missing, and means `all` then; without other arguments `all` matches every
  message, `any` none
- arguments whose names begin with `x-` are compared under `all-with-x` and `any-with-x` only;
  `x-match` never is
- numbers are compared by value, whatever their type; a bool is not a number; text and bytes are
  equal if their bytes are; an argument without a value (null) asks that there is such a header,
  also one that is null
- the alternate exchange need not exist when it is named
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from zbroker.errors import ClientError
from zbroker.exchanges.topic_trie import hashes_of
from zbroker.ids import check_topic
from zbroker.limits import EXTRA_MAX_BYTES, ROUTING_KEY_MAX_BYTES
from zbroker.log.queue_records import QueueDeclaration
from zbroker.wire.bodies import Scalar, are_scalars

KINDS: Final = ("direct", "topic", "fanout", "headers")
DEFAULT: Final = ""  # the default exchange: its routing keys are names of queues
MATCH: Final = "x-match"
MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")

ARGUMENTS_MAX: Final = 100  # of a binding; each one is a step for each message that has it
HASHES_MAX: Final = 8  # of a pattern: each `#` stays active for every word after it

_NOT_COMPARED: Final = "x-"
_RESERVED: Final = ("$", "amq.")


class Exchange(Struct, frozen=True, omit_defaults=True):
    """A definition. alternate: the exchange that gets what no binding of this one asks for, over
    one hop; "": there is none. auto_delete: it goes with its last binding, once it had one.
    internal: clients do not publish to it; it is the alternate of others.
    """

    name: str
    kind: str
    alternate: str = ""
    auto_delete: bool = False
    internal: bool = False


class BoundQueue(NamedTuple):
    """A queue that messages are routed to. The life alone does not name it: two queues that are
    made in one moment have the same one."""

    name: str
    life: QueueDeclaration


class Binding(Struct, frozen=True, omit_defaults=True):
    """A binding. The lives say which exchange and queue of these names: it goes with either.

    key: what messages it asks for; of a headers exchange a part of its name only. arguments: of a
    headers exchange, always with `x-match`; else none.
    """

    exchange: str
    exchange_life: QueueDeclaration
    queue: str
    queue_life: QueueDeclaration
    key: str = ""
    arguments: dict[str, Any] = {}  # a Scalar each: msgspec knows no union of these

    @property
    def bound_queue(self) -> BoundQueue:
        """The queue that it names."""
        return BoundQueue(self.queue, self.queue_life)


#: A value as it is compared: equal ones are equal here, and only these.
Comparable = str | bytes | int | float | tuple[bool] | None


class Conditions(NamedTuple):
    """What the arguments of a binding ask of headers. all: all of these, else any of them.

    of: name and value; None: it is there, whatever its value.
    """

    all: bool
    of: frozenset[tuple[str, Comparable]]


PREDECLARED: Final = (
    Exchange(DEFAULT, "direct"),
    Exchange("amq.direct", "direct"),
    Exchange("amq.fanout", "fanout"),
    Exchange("amq.match", "headers"),
    Exchange("amq.topic", "topic"),
)


def check_exchange(exchange: Exchange) -> None:
    """Raises: ClientError bad_field, bad_topic or reserved_name, unless a client may declare it."""
    name = exchange.name
    if name == DEFAULT:
        raise _bad("`name` is empty", "the default exchange is always there: choose a name")
    check_topic(name)
    if name.startswith(_RESERVED):
        reason = f"{name[:64]!r} begins with '$' or 'amq.': such names are the broker's"
        raise ClientError("reserved_name", reason)
    if exchange.kind not in KINDS:
        reason = f"`kind` of exchange {name[:64]!r} is {exchange.kind[:32]!r}"
        raise _bad(reason, f"there are {', '.join(KINDS)}")
    if exchange.alternate:
        check_topic(exchange.alternate)
    if exchange.alternate == name:
        reason = f"`alternate` of exchange {name[:64]!r} is that exchange itself"
        raise _bad(reason, "name another one, or leave it out")


def checked_binding(binding: Binding, kind: str) -> Binding:
    """The binding of an exchange of this kind as it is kept: of a headers exchange with `x-match`.

    Raises: ClientError bad_field; bad_filter for a pattern that costs too much.
    """
    if binding.exchange == DEFAULT:
        reason = "nothing can be bound to the default exchange"
        raise _bad(reason, "each queue gets the messages whose key is its name")
    _check_key(binding.key)
    if kind == "topic" and (hashes := hashes_of(binding.key.encode())) > HASHES_MAX:
        reason = f"the pattern {binding.key[:64]!r} has {hashes} '#', at most {HASHES_MAX}"
        raise ClientError("bad_filter", reason)
    if kind != "headers":
        if binding.arguments:
            reason = f"a binding of a {kind} exchange has no `arguments`"
            raise _bad(reason, "leave them out, or bind to an exchange of kind headers")
        return binding
    arguments = {MATCH: "all", **binding.arguments}
    _check_arguments(arguments)
    return Binding(
        binding.exchange, binding.exchange_life, binding.queue, binding.queue_life,
        binding.key, arguments,
    )  # fmt: skip


def _check_key(key: str) -> None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise _bad("`key` is not UTF-8", "a routing key is text") from None
    if size > ROUTING_KEY_MAX_BYTES:
        raise _bad(f"`key` has {size} bytes, at most {ROUTING_KEY_MAX_BYTES}", "bind a shorter one")


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    match = arguments[MATCH]
    if match not in MATCHES:
        reason = f"`{MATCH}` is {str(match)[:32]!r}"
        raise _bad(reason, f"there are {', '.join(MATCHES)}")
    if len(arguments) > ARGUMENTS_MAX:
        reason = f"a binding has {len(arguments)} `arguments`, at most {ARGUMENTS_MAX}"
        raise _bad(reason, "make several bindings")
    if not are_scalars(arguments.values()):
        raise _bad("`arguments` have a value that no header has", "text, number, bool, bytes, null")
    if any(value != value for value in arguments.values()):  # a NaN
        raise _bad("`arguments` have a NaN, which equals nothing", "leave it out")
    try:
        size = sum(len(_bytes(item)) for pair in arguments.items() for item in pair)
    except UnicodeEncodeError:
        raise _bad("`arguments` have a text that is not UTF-8", "write it as bytes") from None
    if size > EXTRA_MAX_BYTES:
        reason = f"`arguments` have {size} bytes, at most {EXTRA_MAX_BYTES}"
        raise _bad(reason, "headers of a message have no more either")


def _bytes(item: Scalar) -> bytes:
    if isinstance(item, bytes):
        return item
    return item.encode() if isinstance(item, str) else bytes(8)


def conditions_of(arguments: Mapping[str, Scalar]) -> Conditions | None:
    """What the arguments of a binding ask for; None: it was not made for a headers exchange."""
    match = arguments.get(MATCH)
    if match not in MATCHES:
        return None
    with_x = match in ("all-with-x", "any-with-x")
    asked = frozenset(
        (name, comparable(value))
        for name, value in arguments.items()
        if name != MATCH and (with_x or not name.startswith(_NOT_COMPARED))
    )
    return Conditions(match in ("all", "all-with-x"), asked)


def comparable(value: Scalar) -> Comparable:
    """`value` so that `==` and a dict compare it as headers are compared."""
    kind = value.__class__
    if kind is bool:
        return (bool(value),)  # True == 1 in Python
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def is_key(key: bytes) -> bool:
    """True for text of at most 255 bytes. A message with another routing key is unroutable."""
    if len(key) > ROUTING_KEY_MAX_BYTES:
        return False
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bad(reason: str, hint: str) -> ClientError:
    return ClientError("bad_field", reason, hint)
