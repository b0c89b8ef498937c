"""What a queue has been through: a file beside the directories of the instances that have it.

The rounds of a seed are a part of its life. With ZB_PLACE the next seed goes on with the same
instances, in the same directories, and is judged with everything that was before. A part that did
not end well leaves no end in the file, and no other one follows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from zbroker.log.format import KIND_OWNERSHIP
from zbroker.log.queue_records import AnyQueueFact, Moved, OutcomesRecord
from zbroker.log.reader import Gap, Log

FILE: Final = "life.json"
_READ_BYTES: Final = 4 << 20


class QueueLife(msgspec.Struct):
    """Over all parts. published: how many messages each publisher had acknowledged. counts: what
    happened, by name.
    """

    scope: str
    owner: str = ""
    begun: int = 0
    ended: int = 0
    published: dict[str, int] = {}
    counts: dict[str, int] = {}

    @property
    def messages(self) -> int:
        return sum(self.published.values())

    def named(self) -> set[str]:
        """All messages that publishers know to be durable."""
        return {f"{name}:{n}" for name, count in self.published.items() for n in range(count)}

    def begin_part(self, place: Path) -> None:
        """Asserts that the part before has ended."""
        assert self.begun == self.ended, (
            f"part {self.begun} of {place} did not end well: look at its story, and begin elsewhere"
        )
        self.begun += 1
        self.save(place)

    def add(self, published: Mapping[str, int], counts: Mapping[str, int]) -> None:
        """What happened in this part."""
        self.published |= published
        self.counts = dict(Counter(self.counts) + Counter(counts))

    def end_part(self, place: Path) -> None:
        """Nothing was wrong: another part may follow."""
        self.ended = self.begun
        self.save(place)

    def save(self, place: Path) -> None:
        (place / FILE).write_bytes(msgspec.json.encode(self))


def load(place: Path) -> QueueLife | None:
    """None: it begins with this part."""
    path = place / FILE
    return msgspec.json.decode(path.read_bytes(), type=QueueLife) if path.exists() else None


def moves_of(journal: Path, end: int) -> Iterator[Moved]:
    """Each change of owners in the files of a log, below position `end`."""
    log = Log(journal)
    cursor = log.seek(1)
    while cursor.position < end:
        batches, cursor = log.read(cursor, end, _READ_BYTES)
        for batch in batches:
            assert not isinstance(batch, Gap), batch
            if batch.kind == KIND_OWNERSHIP:
                record = msgspec.msgpack.decode(batch.body, type=OutcomesRecord)
                facts = [msgspec.msgpack.decode(one, type=AnyQueueFact) for one in record.facts]
                yield from (fact for fact in facts if isinstance(fact, Moved))
    log.close()
