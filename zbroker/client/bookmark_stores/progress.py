"""How far a named subscription is processed, and what of it is not handed out again. Pure.

    received --discard--> processed

Per origin the state is `top` and the positions in `open`: everything up to `top` is processed but
for those. The subscription resumes at the oldest of them; messages that come again and are not one
of them are left out. Messages above everything that is processed need no mention, so a reader that
works in order has a state of one number.

Positions mean something only where they are durable and each message has its own. So with live
delivery and under conflation the state is the newest durable vector that came before the oldest
batch of which something is left to do, and nothing is left out after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from pyroaring import BitMap64

from zbroker.client.message import Message
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin

OPEN_MAX: Final = 1_000_000  # messages handed out and not discarded: a reader forgot to
OPEN_STORED_MAX: Final = 1_000  # per origin; messages that were discarded above them come again

Vector = dict[Origin, int]


class Reached(NamedTuple):
    """Everything of one origin up to `top` is processed, but for `open`, rising and below it."""

    top: int
    open: tuple[int, ...] = ()


State = dict[Origin, Reached]


def resume_point(state: State) -> Vector:
    """The vector after which everything follows that is not processed."""
    return {
        origin: reached.open[0] - 1 if reached.open else reached.top
        for origin, reached in state.items()
    }


class _OriginProgress:
    """One origin. `top`: everything up to it came in. `done`: the highest that is processed."""

    def __init__(self, stored: Reached) -> None:
        self.top = self.done = self._stored_top = stored.top
        self._awaited = BitMap64(stored.open)  # since before; they come again, if they still match
        self._open = BitMap64()  # handed out

    def fresh(self, messages: list[Message]) -> list[Message]:
        """Those that were not processed before the restart."""
        first, last = messages[0].position, messages[-1].position
        if first <= self._stored_top:
            top, awaited = self._stored_top, self._awaited
            messages = [m for m in messages if m.position > top or m.position in awaited]
        self.advance(last)
        return messages

    def add(self, messages: list[Message]) -> None:
        first, last = messages[0].position, messages[-1].position
        if last - first + 1 == len(messages):
            self._open.add_range(first, last + 1)
        else:
            self._open.update([message.position for message in messages])

    def advance(self, position: int) -> None:
        """Up to there everything came in; awaited messages that did not come never will."""
        self.top = max(self.top, position)
        if self._awaited:
            self._awaited.remove_range(0, position + 1)

    def discard(self, position: int) -> bool:
        if position not in self._open:
            return False
        self._open.discard(position)
        self.done = max(self.done, position)
        return True

    def discard_range(self, first: int, last: int) -> int:
        """Discards a part of a batch. Returns: how many of these were open."""
        count = self._open.range_cardinality(first, last + 1)
        self._open.remove_range(first, last + 1)
        self.done = max(self.done, last)
        return int(count)

    def reached(self) -> Reached:
        listed: list[int] = []
        for position in chain(self._open, self._awaited):  # rising: awaited ones are still to come
            if position > self.done or len(listed) == OPEN_STORED_MAX:
                return Reached(position - 1, tuple(listed))
            listed.append(position)
        return Reached(self.top, tuple(listed))


class ByPosition:
    """Progress where each message has a durable position of its own.

    receive: a batch is handed out; gives those of its messages that are not processed yet. discard:
    a message is processed; False if it was already, or is not of this subscription. discard_part:
    the same for some of a list that `receive` gave; those before them are processed. advance:
    everything up to a vector was received, and is durable. state: the state to store; empty as
    long as nothing is known.
    """

    def __init__(self, stored: State) -> None:
        self._lines = {origin: _OriginProgress(reached) for origin, reached in stored.items()}
        self._open = 0

    def receive(self, messages: list[Message]) -> list[Message]:
        """Raises: ZBrokerError too_many."""
        origin, first = messages[0].origin, messages[0].position
        line = self._lines.get(origin)
        if line is None:
            line = self._lines[origin] = _OriginProgress(Reached(first - 1))
        fresh = line.fresh(messages)
        if fresh:
            line.add(fresh)
            self._open = _checked(self._open + len(fresh))
        return fresh

    def discard(self, message: Message) -> bool:
        line = self._lines.get(message.origin)
        if line is None or not line.discard(message.position):
            return False
        self._open -= 1
        return True

    def discard_part(self, messages: list[Message], begin: int, end: int) -> None:
        first, last = messages[begin], messages[end - 1]
        self._open -= self._lines[last.origin].discard_range(first.position, last.position)

    def advance(self, vector: Mapping[Origin, int]) -> None:
        for origin, position in vector.items():
            if origin not in self._lines:
                self._lines[origin] = _OriginProgress(Reached(position))
            self._lines[origin].advance(position)

    def state(self) -> State:
        return {origin: line.reached() for origin, line in self._lines.items()}


@dataclass(slots=True)
class _Mark:
    """A batch of which `left` messages are open, and the durable vector that came before it."""

    durable: Vector
    left: int


class ByMark:
    """Progress by durable vectors and whole batches; else as ByPosition."""

    def __init__(self, stored: State) -> None:
        self._durable = resume_point(stored)
        self._marks: dict[int, _Mark] = {}  # of batches that are open, in order
        self._of: dict[Message, int] = {}  # open messages, by identity
        self._number = 0

    def receive(self, messages: list[Message]) -> list[Message]:
        self._number += 1
        self._marks[self._number] = _Mark(self._durable, len(messages))
        self._of.update(dict.fromkeys(messages, self._number))
        _checked(len(self._of))
        return messages

    def discard(self, message: Message) -> bool:
        number = self._of.pop(message, None)
        if number is None:
            return False
        mark = self._marks[number]
        mark.left -= 1
        if not mark.left:
            del self._marks[number]
        return True

    def discard_part(self, messages: list[Message], begin: int, end: int) -> None:
        for message in messages[begin:end]:
            self.discard(message)

    def advance(self, vector: Mapping[Origin, int]) -> None:
        higher = {o: p for o, p in vector.items() if p > self._durable.get(o, -1)}
        if higher:
            self._durable = {**self._durable, **higher}

    def state(self) -> State:
        oldest = next(iter(self._marks.values()), None)
        point = self._durable if oldest is None else oldest.durable
        return {origin: Reached(position) for origin, position in point.items()}


def _checked(count: int) -> int:
    if count > OPEN_MAX:
        raise ZBrokerError(
            "too_many",
            f"{count} messages were handed out and not discarded, {OPEN_MAX} at most",
            "call discard() for each message that is processed",
        )
    return count
