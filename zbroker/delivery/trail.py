"""How far the program behind a subscription came: what it has given credit back for. Pure.

Credit goes back for what was handled, so what is still out is in the client's hands: on its way, in
its inbox, or being worked on. The trail says where in the log that begins.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

STEPS_MAX: Final = 64  # remembered; of more every second one is dropped


class Step(NamedTuple):
    """After a turn: the credit and the messages that were spent so far, and the position behind."""

    spent: int
    messages: int
    position: int


class Trail:
    """spent: bytes of credit that were used. returned: of those, what came back."""

    __slots__ = ("_handled", "_steps", "returned", "spent")

    def __init__(self) -> None:
        self.spent = self.returned = 0
        self._handled = Step(0, 0, 0)
        self._steps: deque[Step] = deque()

    def begin(self, position: int) -> None:
        """It is located there."""
        self._handled = Step(0, 0, position)

    def mark(self, messages: int, position: int) -> None:
        """A turn is over: so many messages were sent in all, up to `position`."""
        if len(self._steps) >= STEPS_MAX:
            self._steps = deque(list(self._steps)[1::2])
        self._steps.append(Step(self.spent, messages, position))

    def give_back(self, size: int) -> None:
        """So much credit came back."""
        self.returned = min(self.spent, self.returned + size)
        while self._steps and self._steps[0].spent <= self.returned:
            self._handled = self._steps.popleft()

    def handled(self, position: int) -> int:
        """Up to where all was handled, if it was sent up to `position`."""
        return min(self._handled.position, position) if self._steps else position

    def in_hand(self, messages: int) -> int:
        """Of so many messages sent, how many are not handled as far as is known."""
        return messages - self._handled.messages if self._steps else 0
