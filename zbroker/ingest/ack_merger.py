"""The acks that are due to one client at the end of a turn, merged. Pure.

    settled   1r 2r 3u 4u 5r 6u     acks   processed 4, persisted 5, processed 6

`persisted` always has the sequence of a recorded message. The topics that are not recorded are
named before an ack of what stands behind them, so that nobody takes them for recorded; so are the
sequences that a filter kept out of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from zbroker.engine.effects import Answer
from zbroker.ingest.clients import ClientConnection
from zbroker.limits import FILTERED_RUNS_MAX, UNRECORDED_NAMED_MAX
from zbroker.wire.messages import Ack


@dataclass(slots=True)
class UnrecordedNames:
    """Of unrecorded messages up to `seq`: topics never recorded, and runs of filtered sequences."""

    seq: int = 0
    topics: dict[str, None] = field(default_factory=dict)
    runs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, seq: int, topics: Iterable[str], runs: Iterable[tuple[int, int]]) -> None:
        """What stands behind it."""
        self.seq = seq
        self.topics.update(dict.fromkeys(topics))
        for first, last in runs:
            if self.runs and self.runs[-1][1] + 1 == first:
                self.runs[-1] = (self.runs[-1][0], last)
            else:
                self.runs.append((first, last))

    def acks(self) -> Iterator[Ack]:
        """As many as it takes to name all of it: one at least."""
        topics, runs = iter(self.topics), iter(self.runs)
        left = True
        while left:
            names = list(islice(topics, UNRECORDED_NAMED_MAX))
            some = list(islice(runs, FILTERED_RUNS_MAX))
            left = len(names) == UNRECORDED_NAMED_MAX or len(some) == FILTERED_RUNS_MAX
            filtered = struct.pack(f"<{2 * len(some)}Q", *chain(*some)) if some else None
            yield Ack("processed", seq=self.seq, unrecorded=names, filtered=filtered)


def runs_of(filtered: bytes | None) -> list[tuple[int, int]]:
    """The runs of sequences in an ack: first and last of each."""
    return [*struct.iter_unpack("<2Q", filtered)] if filtered else []


class DueAcks:
    """What one client is to hear."""

    __slots__ = ("_before", "_behind", "_duplicate", "_seq", "client")

    def __init__(self, client: ClientConnection) -> None:
        self.client = client
        self._seq = 0  # of the newest recorded message, 0: no `persisted` is due
        self._duplicate = 0
        self._before: UnrecordedNames | None = None  # unrecorded messages before `_seq`
        self._behind: UnrecordedNames | None = None

    def recorded(self, duplicate: int, *, asked: bool) -> None:
        """A recorded batch is settled; an ack that is due anyway covers it even if not asked."""
        if not asked and not self._seq:
            return
        self._seq = self.client.recorded
        self._duplicate += duplicate if asked else 0
        behind, self._behind = self._behind, None
        if self._before is None:
            self._before = behind
        elif behind is not None:
            self._before.add(behind.seq, behind.topics, behind.runs)

    def unrecorded(self, topics: Iterable[str], filtered: tuple[int, int] | None) -> None:
        """A batch that is not recorded is settled."""
        if self._behind is None:
            self._behind = UnrecordedNames()
        self._behind.add(self.client.acked, topics, [filtered] if filtered is not None else [])

    def sends(self, durability: str | None) -> list[Answer]:
        """All of it, in the order of the sequences."""
        acks: list[Ack] = []
        if self._before is not None:
            acks += self._before.acks()
        if self._seq:
            acks.append(
                Ack("persisted", seq=self._seq, durability=durability, duplicate=self._duplicate)
            )
        if self._behind is not None:
            acks += self._behind.acks()
        return [Answer(self.client.rid, ack) for ack in acks]
