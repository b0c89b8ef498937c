"""Names of queues that the broker chooses, for clients that leave them empty. Pure.

    gen-3y7k0q...    "gen-" and 26 characters of base 32, never the same twice

No client or operator makes a queue of such a name, so it means one queue for ever. A deleted one
can be forgotten, then: no record in the log is about another queue of its name.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from typing import Final

PREFIX: Final = "gen-"
_CHOSEN: Final = re.compile(r"gen-[a-z2-7]{26}")
_BYTES: Final = 16  # 26 characters


class ChosenNames:
    """incarnation: of the process, a random number of which no two are the same."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation, self._last = incarnation, 0

    def next(self) -> str:
        """One that no queue has or had."""
        self._last += 1
        text = f"{self._incarnation}/{self._last}".encode()
        digest = hashlib.blake2b(text, digest_size=_BYTES).digest()
        return PREFIX + b32encode(digest).decode().rstrip("=").lower()


def is_chosen(name: str) -> bool:
    """Whether only the broker makes a queue of this name."""
    return _CHOSEN.fullmatch(name) is not None
