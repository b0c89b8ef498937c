"""Names that messages had in a generation of their instance that has ended since. Pure.

A generation is closed where its own instance has its end; what another host has of it beyond that
end may be taken again (zbroker.journal.forked_records), under names of the newest generation. The
column of such a batch says which names its messages had: a reader that saw them under these is not
sent them again, on any instance.

    column 9   instance u64, generation u32, sequence u64, position u64: the message with this
               sequence had this position there, the others in the batch those beside it

The same batch with a part cut off has the same column. A record without messages (noop) has it,
too: for messages that are here already, and for records that are none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log.format import Batch

COLUMN_FORMER: Final = 9
_FORMER: Final = struct.Struct("<QIQQ")


class FormerName(NamedTuple):
    """The message with this sequence had `position` at `origin`."""

    origin: Origin
    sequence: int
    position: int

    def of(self, sequence: int) -> int:
        """The position that a message of the same batch had."""
        return self.position + sequence - self.sequence

    def covered(self, position: int) -> int:
        """The sequence of the message that had this position."""
        return self.sequence + position - self.position

    def column(self) -> tuple[int, bytes]:
        """As it is in a batch."""
        return COLUMN_FORMER, _FORMER.pack(*self.origin, self.sequence, self.position)


def former_names(extra: Iterable[tuple[int, bytes]]) -> Iterator[FormerName]:
    """Those of a batch with these further columns; of most there is none."""
    for tag, data in extra:
        if tag == COLUMN_FORMER and len(data) == _FORMER.size:
            instance, generation, sequence, position = _FORMER.unpack(data)
            yield FormerName(Origin(instance, generation), sequence, position)


def former_ends(batch: Batch) -> Iterator[tuple[Origin, int]]:
    """Per origin the position that the last message of a batch had there."""
    last = batch.sequence + batch.taken - 1
    for name in former_names(batch.extra):
        yield name.origin, name.of(last)


def wrong(extra: Iterable[tuple[int, bytes]], origin: Origin, first: int, last: int) -> str:
    """Why a record of `origin` with these sequences may not have these columns; "" if it may."""
    for tag, data in extra:
        if tag == COLUMN_FORMER and len(data) != _FORMER.size:
            return f"column {COLUMN_FORMER} of a record has {_FORMER.size} bytes"
    for name in former_names(extra):
        older = (origin.instance, 0) <= name.origin < origin
        if not older or name.of(first) <= 0 or name.of(last) > U63_MAX:
            return "a former name of a message is one of an older generation of its instance"
    return ""
