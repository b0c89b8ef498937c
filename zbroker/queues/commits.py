"""Units on their way into the log: sent, landed, or to be sent again. Pure.

    waiting --sent--> under way --receipt--> landed
       ^                 |  |
       |    refused for now  journal restarted --read up to its end--> landed, or waiting again

Every unit has a number, which is in one of its records. A journal that restarts, or no longer knows
this process, may hold some of what was under way: the log is read from where the first of these can
be to the end that its Welcome reported, and what was found there has landed. So a unit lands once,
whatever dies, as long as this process lives; when it dies, too, what was not answered was not
promised.

Units land in the order in which they were added, those with dead letters apart from the others: the
journal refuses whatever of its sort was sent after a unit that it refused for now, until a Commit
confirms all of these refusals; they are sent again together. A letter that a full disk has no space
for may not hold back the acknowledgements and purges that free some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from zbroker.checksums import crc32c
from zbroker.limits import MIB
from zbroker.log.records import encode
from zbroker.wire.internal import JournalReceipt
from zbroker.wire.units import FOR_NOW, CommitUnits, UnitPart

UNDER_WAY_MAX_BYTES: Final = 8 * MIB
UNDER_WAY_MAX: Final = 256
RETRY_MS: Final = 250  # after a refusal that time can mend

#: called when a unit is over: "" or the code of its refusal, the reason, the position of its last
#: part
Done = Callable[[str, str, int], None]
Body = bytes | memoryview


class PendingUnit(Struct):
    """Parts that land together, with their bodies. number: one of the records says it.

    after: it was sent when the log was durable up to there, so it is not before that.
    """

    parts: list[UnitPart]
    bodies: list[Body]
    done: Done
    number: int
    ordinal: int = 0
    after: int = 0
    size: int = 0  # of the bodies

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.bodies))


def control(kind: int, body: bytes) -> UnitPart:
    """The part that is a control record with this body."""
    return UnitPart(kind, crc32c(body))


class Numbered(Protocol):
    """A control record that says which unit it is of."""

    by: int
    unit: int


class Commits:
    """Units of one process. last_position: the highest at which one of them landed.
    confirmed: the ordinal up to which receipts were seen."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.last_position = 0
        self._journal = 0
        self._last_number = self._last_ordinal = self.confirmed = 0
        self._waiting: deque[PendingUnit] = deque()
        self._refused: deque[PendingUnit] = deque()  # for now, as are those sent after them
        self._under_way: deque[PendingUnit] = deque()
        self._under_way_bytes = 0
        self._doubtful: deque[PendingUnit] = deque()  # sent to a journal that is not there any more
        self._read_to = 0
        self._numbers: set[int] = set()  # of units that have not landed
        self._found: dict[int, int] = {}  # of those, what was seen in the log, and where
        self._not_before_ms = 0

    def number(self) -> int:
        """The number of the next unit."""
        self._last_number += 1
        return self._last_number

    def add(self, unit: PendingUnit) -> None:
        """It is sent as soon as there is space, in order."""
        self._waiting.append(unit)
        self._numbers.add(unit.number)

    def add_record(self, kind: int, record: Numbered, done: Done) -> None:
        """A unit that is this control record alone."""
        self.add_records([(kind, record)], done)

    def add_records(self, records: Sequence[tuple[int, Numbered]], done: Done) -> None:
        """A unit of these control records."""
        number = self.number()
        for _, record in records:
            record.by, record.unit = self.incarnation, number
        self.add_made([(kind, encode(record)) for kind, record in records], done, number)

    def add_made(self, made: Sequence[tuple[int, bytes]], done: Done, number: int) -> None:
        """A unit of control records, by kind and body; one of them says its number."""
        parts = [control(kind, body) for kind, body in made]
        self.add(PendingUnit(parts, [body for _, body in made], done, number))

    @property
    def open(self) -> int:
        """Units that have not landed."""
        refused = len(self._refused)
        return len(self._waiting) + refused + len(self._under_way) + len(self._doubtful)

    @property
    def doubtful_from(self) -> int | None:
        """No unit that may have landed is before this position; None: what landed is known."""
        return min((unit.after for unit in self._doubtful), default=None)

    @property
    def full(self) -> bool:
        """True if more waits than may be under way: what can wait, should."""
        return len(self._waiting) > UNDER_WAY_MAX

    # -- the journal --------------------------------------------------------------------------

    def welcomed(self, journal: int, written: int) -> None:
        """A journal, or the same one again; what it took of ours so far is before `written`."""
        if journal == self._journal:
            return
        self._journal = journal
        self._doubtful.extend(self._refused)  # before what was sent after them, as they were added
        self._doubtful.extend(self._under_way)
        self._refused.clear()
        self._under_way.clear()
        self._under_way_bytes = self._last_ordinal = self.confirmed = self._not_before_ms = 0
        self._read_to = written

    def lost(self) -> None:
        """The journal is gone; nothing is sent before the next one welcomes us."""
        self._journal = 0

    def found(self, incarnation: int, number: int, position: int) -> None:
        """A record with this number is in the log, at `position`."""
        if incarnation == self.incarnation and number in self._numbers:
            self._found[number] = position

    def read(self, position: int) -> bool:
        """The log was read up to `position`. True if that is far enough to know what landed."""
        if position < self._read_to:
            return False
        doubtful, self._doubtful = self._doubtful, deque()
        again = [one for one in doubtful if one.number not in self._found]
        for unit in doubtful:
            if unit.number in self._found:
                self._landed(unit, self._found[unit.number])
        self._waiting.extendleft(reversed(again))
        return True

    def take(self, now_ms: int, persisted: int) -> tuple[CommitUnits, list[Body]] | None:
        """What may be sent now, with the bodies of all parts. persisted: end of what is durable."""
        if not self._journal or self._doubtful or now_ms < self._not_before_ms:
            return None
        if self._refused and self._under_way:
            return None  # some of these are being refused as well, and come again with them
        self._waiting.extendleft(reversed(self._refused))
        self._refused.clear()
        self._not_before_ms = 0
        units: list[PendingUnit] = []
        while self._waiting and self._may_send(units):
            unit = self._waiting.popleft()
            self._last_ordinal += 1
            unit.ordinal, unit.after = self._last_ordinal, persisted
            self._under_way.append(unit)
            self._under_way_bytes += unit.size
            units.append(unit)
        if not units:
            return None
        commit = CommitUnits(
            self._journal, units[0].ordinal, self.confirmed, [unit.parts for unit in units]
        )
        return commit, [body for unit in units for body in unit.bodies]

    @property
    def due(self) -> bool:
        """True if `take` has something, but for what was refused: see wake_ms."""
        may = self._journal and not self._doubtful and not self._refused
        return bool(may and self._waiting and self._may_send([]))

    def _may_send(self, units: list[PendingUnit]) -> bool:
        if not self._under_way:
            return True
        return self._under_way_bytes < UNDER_WAY_MAX_BYTES and len(self._under_way) < UNDER_WAY_MAX

    def receipts(self, receipt: JournalReceipt, now_ms: int) -> None:
        """What the journal made of units; calls `done` of those that landed or never will.

        Where one is missing in between, a receipt was lost: it comes again.
        """
        if receipt.incarnation != self._journal:
            return
        for item in receipt.items:
            if not self._under_way or self._under_way[0].ordinal != item.ordinal:
                continue
            unit = self._under_way.popleft()
            self.confirmed = item.ordinal
            self._under_way_bytes -= unit.size
            if not item.code:
                self._landed(unit, item.position)
            elif item.code in FOR_NOW:
                self._refused.append(unit)
                self._not_before_ms = now_ms + RETRY_MS
            else:
                self._numbers.discard(unit.number)
                unit.done(item.code, item.reason, 0)

    def _landed(self, unit: PendingUnit, position: int) -> None:
        self.last_position = max(self.last_position, position)
        self._numbers.discard(unit.number)
        self._found.pop(unit.number, None)
        unit.done("", "", position)

    def wake_ms(self) -> int | None:
        """When what was refused for now may be sent again."""
        return self._not_before_ms if self._refused and not self._under_way else None
