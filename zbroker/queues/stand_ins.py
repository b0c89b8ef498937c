"""For which instances this one acts, in one queue. Pure.

    takeover --until-back --a record--> each message of that instance that comes is taken over
        --its log comes here again, or a person says so: a record--> no more

The records are of this log alone. The newest of an instance counts, so it is needed; it is written
again before it holds much of the log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import msgpack
from pyroaring import BitMap64

from zbroker.log.records import StandIn
from zbroker.queues.work.sets import lowest, without

AGAIN: Final = 1_000_000  # so many positions after it, such a record is written again


class StandInRow(NamedTuple):
    """name: of the instance. at: where the record is."""

    name: str
    at: int


class StandIns:
    """Those of one queue. taking: messages that are being taken over. looked_to: messages before it
    were looked at. changing: instances for which a record is on its way."""

    def __init__(self) -> None:
        self.of: dict[int, StandInRow] = {}
        self.taking = BitMap64()
        self.looked_to = 0
        self.changing: set[int] = set()

    def apply(self, fact: StandIn, position: int) -> None:
        """A record of the log."""
        self.changing.discard(fact.instance)
        self.looked_to = 0
        if fact.on:
            self.of[fact.instance] = StandInRow(fact.name, position)
        else:
            self.of.pop(fact.instance, None)

    def fresh(self, foreign: BitMap64) -> BitMap64:
        """Messages of other instances that were not looked at, and are not being taken over."""
        self.taking &= foreign
        return without(lowest(foreign, len(foreign), at=self.looked_to), self.taking)

    def names(self) -> list[str]:
        """Those for which it acts, by name or id."""
        return sorted(row.name or f"{instance:016x}" for instance, row in self.of.items())

    @property
    def lowest(self) -> int | None:
        """The log is needed from there on."""
        return min((row.at for row in self.of.values()), default=None)

    def again(self, folded: int) -> list[StandIn]:
        """Records that are to be written again."""
        due = [
            (instance, row) for instance, row in self.of.items()
            if folded - row.at > AGAIN and instance not in self.changing
        ]  # fmt: skip
        self.changing.update(instance for instance, _ in due)
        return [StandIn(instance, row.name) for instance, row in due]

    def dump(self) -> bytes:
        """For `load`."""
        return msgpack.encode([(instance, *row) for instance, row in self.of.items()])

    def load(self, data: bytes) -> None:
        """What `dump` gave. Raises: ValueError."""
        rows = msgpack.decode(data, type=list[tuple[int, str, int]])
        self.of = {instance: StandInRow(name, at) for instance, name, at in rows}
