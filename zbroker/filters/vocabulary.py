"""Which functions a filter may call, by where it is used.

    FIXED      the same for the same message everywhere and for ever: filters of queues, records,
               rights, destinations, which several processes and instances apply to one log, at
               different times
    BUILT_IN   all that the language has: filters of subscriptions, which are asked once

An instance adds functions of its own (`own.py`), its name and group; a subscription who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from zbroker.filters.functions import CHANGING, FUNCTIONS, Function

#: Functions without arguments whose value is known before any message is.
CONSTANTS: Final = ("INSTANCE_NAME", "GROUP_NAME", "CLIENT_NAME", "USER")

_MUST_BE_FIXED: Final = (
    "it must mean the same everywhere and at any time: a filter of a queue, a record, a right or a "
    "destination"
)


class Unknown(Exception):
    """A name that cannot be called here; says why."""


class Vocabulary(Struct, frozen=True):
    """own: functions that this instance has besides. constants: values of those in CONSTANTS."""

    own: Mapping[str, Function] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    fixed: bool = False

    def function(self, name: str) -> Function | str:
        """What `name`, in upper case, calls; or its value. Raises: Unknown."""
        found = FUNCTIONS.get(name)
        if found is not None:
            return found
        changing = CHANGING.get(name) or self.own.get(name)
        known = changing is not None or name in CONSTANTS
        what = f"{name} cannot be called here" if known else f"there is no function {name[:32]}"
        if self.fixed:
            raise Unknown(f"{what}; {_MUST_BE_FIXED}")
        if not known:
            raise Unknown(what)
        if changing is not None:
            return changing
        if name not in self.constants:
            raise Unknown(f"{name} has no value here")
        return self.constants[name]

    def asked_by(self, text: str) -> tuple[tuple[str, str], ...]:
        """What a text may mean another thing by than for others: the constants it may name."""
        upper = text.upper()
        return tuple(item for item in sorted(self.constants.items()) if item[0] in upper)

    def of_client(self, client: str, user: str) -> Vocabulary:
        """The same with a name and a user of a client."""
        return replace(self, constants={**self.constants, "CLIENT_NAME": client, "USER": user})


BUILT_IN: Final = Vocabulary()
FIXED: Final = Vocabulary(fixed=True)
