"""Commands as values, for programs that make them somewhere else than they give them.

    order = zbroker.Command("publish", topic="orders", data=b"...")
    client.command(order).wait()
    client.command("subscribe", topic="orders", since="epoch")

A command does what the method of the same name does and gives what it gives: a message that is
published by a command is numbered, kept and sent again like any other one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.subscriber.options import Duration, seconds
from zbroker.errors import ZBrokerError

#: methods of both clients
NAMES: Final = (
    "publish", "publish_many", "flush", "subscribe", "pause", "resume", "ranges", "consume",
    "worker", "heartbeat",
)  # fmt: skip
HEARTBEAT_MAX_S: Final = 3_600


class Command:
    """What a client is to do: the name of a method, and what it is given, by name.

    A value: equal ones are the same, and none changes. `with_` makes another one.
    """

    __slots__ = ("name", "options")

    name: str
    options: Mapping[str, Any]

    def __init__(self, name: str, /, **options: Any) -> None:  # noqa: ANN401 - as the method takes
        """Raises: ZBrokerError bad_command."""
        if name not in NAMES:
            known = ", ".join(NAMES)
            raise ZBrokerError("bad_command", f"there is no command {name!r}", f"one of {known}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", MappingProxyType(options))

    def with_(self, **options: Any) -> Command:  # noqa: ANN401 - as above
        """The same with other options, or more of them."""
        return Command(self.name, **{**self.options, **options})

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"a command does not change; with_({name}=...) makes another one")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((self.name, *self.options))

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.name, dict(self.options))

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"Command({self.name!r}{options})"


def _made(name: str, options: dict[str, Any]) -> Command:
    return Command(name, **options)


class Commanding:
    """A part of both clients: commands, and heartbeats, which are one."""

    _doors: ListenerEndpoints

    def _check_open(self) -> None:
        """Raises: ZBrokerError, what ended this client."""
        raise NotImplementedError

    def command(self, command: Command | str, /, **options: Any) -> Any:  # noqa: ANN401 - see below
        """Does what a command says; `options` come on top. Gives what the method of its name gives.

        Raises: ZBrokerError bad_command, bad_field (options that the method does not have, or
        lacks), or what the method raises.
        """
        wanted = command if isinstance(command, Command) else Command(command)
        wanted = wanted.with_(**options)
        method = getattr(self, wanted.name)
        try:
            inspect.signature(method).bind(**wanted.options)
        except TypeError as error:
            raise ZBrokerError("bad_field", f"{wanted.name}: {error}") from None
        return method(**wanted.options)

    def heartbeat(self, interval: Duration | None) -> None:
        """Begins heartbeats in a session, or changes their interval; None: ends them.

        As `connect(heartbeat=...)`: after twice that time each side takes a silent other one for
        gone. Also for subscriptions and consumers; with a shorter interval they connect anew, and
        go on where they are. Raises: ZBrokerError bad_field, or what ended the client.
        """
        self._check_open()
        interval_s = None if interval is None else seconds("interval", interval)
        if interval_s is not None and interval_s > HEARTBEAT_MAX_S:
            raise ZBrokerError("bad_field", f"interval={interval!r} is more than an hour")
        self._doors.beat_each(interval_s)
