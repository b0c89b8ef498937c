"""Dead letters of transactions: what one rejects is read, for its unit. Pure.

    taken --read, slice by slice--> letters, and what is rejected
              |  \\--cannot be read--> it leaves its queue without a letter
              +--more than a unit may have--> refused: nothing of the transaction holds

A branch that is prepared has its messages read, too: if they were too much for one unit, it could
not be committed later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.errors import ClientError
from zbroker.limits import KIB, MIB
from zbroker.queues.commits import Body
from zbroker.queues.context import QueuesContext
from zbroker.queues.dead_letters import Letter, by_size, parts_of
from zbroker.queues.effects import Inspect, Inspected, InspectedMessage
from zbroker.queues.queue_state import Entry, QueueState
from zbroker.queues.work.values import Outcome
from zbroker.wire import codec
from zbroker.wire.units import UnitPart

#: of all letters of a transaction. A unit may have 4 MiB besides its largest part, which may be
#: what it shows; at a peer their headers count, too
LETTERS_MAX_BYTES: Final = 3 * MIB
HEADERS_BYTES: Final = 1 * KIB  # of a letter, besides those that it had and what was said of it
SLICE_BYTES: Final = 256 * KIB  # that are read in one turn

#: a queue, and what is decided of its messages
Taken = tuple[QueueState, list[Entry]]
#: called with the refusal, or with the decisions and the parts that are dead letters
Then = Callable[[ClientError | None, Sequence[Taken], Sequence[tuple[UnitPart, Body]]], None]


class ToRead(NamedTuple):
    """Messages that are rejected with a text."""

    one: QueueState
    text: str
    positions: BitMap64
    keep: bool  # for letters of this unit


class Reading(Struct):
    """One transaction. most: bytes that it may have; None: that was looked at before."""

    taken: Sequence[Taken]
    then: Then
    most: int | None
    left: deque[ToRead]
    size: int = 0
    letters: list[Letter] = field(default_factory=list)


class TransactionLetters:
    """Reads what transactions reject."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared

    def read(self, taken: Sequence[Taken], then: Then, *, limited: bool) -> None:
        """Calls `then`, at once if nothing is rejected. limited: refuses what is too much for one
        unit."""
        left = deque(
            ToRead(one, text, outcome.positions, outcome.fate == "gone")
            for one, entries in taken
            for outcome, _ in entries
            if (text := _text(outcome))
        )
        if not left:
            then(None, taken, [])
            return
        self._go_on(Reading(taken, then, LETTERS_MAX_BYTES if limited else None, left))

    def _go_on(self, reading: Reading) -> None:
        if not reading.left:
            self._shared.manager.exchanges.when_known(lambda: self._end(reading))
            return
        asked = reading.left.popleft()

        def read(done: Inspected) -> None:
            rest = asked.positions[asked.positions.rank(done.end - 1) :]
            if rest:
                reading.left.appendleft(asked._replace(positions=rest))
            self._learn(reading, asked, done.rows)

        self._shared.read(Inspect, read, asked.positions, SLICE_BYTES)

    def _learn(self, reading: Reading, asked: ToRead, rows: Sequence[InspectedMessage]) -> None:
        reading.size += sum(_size(row, asked.text) for row in rows)
        if reading.most is not None and reading.size > reading.most:
            text = f"the messages that a transaction rejects have at most {reading.most} bytes"
            error = ClientError("too_large", text, "reject some of them outside of a transaction")
            reading.then(error, reading.taken, [])
            return
        if asked.keep:
            reading.letters += [Letter(asked.one, "rejected", asked.text, row) for row in rows]
        self._go_on(reading)

    def _end(self, reading: Reading) -> None:
        running = self._shared.manager.running
        for one, _ in reading.taken:
            if running.get(one.name) is not one:
                error = ClientError("not_ready", f"queue {one.name!r} has changed; ask again")
                reading.then(error, reading.taken, [])
                return
        read: dict[str, BitMap64] = {}
        for letter in reading.letters:
            read.setdefault(letter.one.name, BitMap64()).add(letter.row.position)
        taken = [
            (one, [each for entry in entries for each in _divided(entry, read.get(one.name))])
            for one, entries in reading.taken
        ]
        exchanges = self._shared.manager.exchanges
        parts = [
            part
            for letters in by_size(reading.letters)
            for part in parts_of(letters, exchanges, self._shared.now)
        ]
        reading.then(None, taken, parts)


def _text(outcome: Outcome) -> str:
    """That it is rejected with; "": it is not, or nothing becomes of that."""
    return outcome.lock.reject if outcome.lock is not None else outcome.letter


def _size(row: InspectedMessage, text: str) -> int:
    headers = len(codec.encode(row.headers)) if row.headers else 0
    return len(row.data) + len(row.key or b"") + headers + len(text.encode()) + HEADERS_BYTES


def _divided(entry: Entry, read: BitMap64 | None) -> list[Entry]:
    """What could not be read has no letter."""
    outcome, ending = entry
    if not outcome.letter:
        return [entry]
    lost = outcome.positions - (read or BitMap64())
    if not lost:
        return [entry]
    unreadable = outcome._replace(positions=lost, why="unreadable", letter="")
    found = outcome.positions - lost
    if not found:
        return [(unreadable, ending)]
    return [(outcome._replace(positions=found), ending), (unreadable, None)]
