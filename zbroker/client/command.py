"""Commands of a client as values.

    order = zbroker.Command("publish", topic="orders", data=b"...")
    client.command(order).wait()
    client.command("subscribe", topic="orders", since="epoch")

A command does what the method of the same name does and gives what it gives: a message that is
published by a command is numbered, kept and sent again like any other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from zbroker.errors import ZBrokerError

#: methods of both clients
NAMES: Final = (
    "publish", "publish_many", "flush", "subscribe", "pause", "resume", "ranges", "consume",
    "worker", "declare_queue", "delete_queue", "purge_queue", "browse", "declare_exchange",
    "delete_exchange", "bind", "unbind", "session", "heartbeat",
)  # fmt: skip


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
