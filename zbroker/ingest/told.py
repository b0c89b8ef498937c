"""The acks that are due to one client at the end of a turn, merged. Pure.

    settled   1r 2r 3u 4u 5r 6u     acks   processed 4, persisted 5, processed 6

`persisted` always has the sequence of a recorded message. The topics that are not recorded are
named before an ack of what stands behind them, so that nobody takes them for recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from zbroker.ingest.clients import Client
from zbroker.ingest.effects import Send
from zbroker.limits import UNRECORDED_NAMED_MAX
from zbroker.wire.messages import Ack


class Told:
    """What one client is to hear."""

    __slots__ = ("_before", "_before_seq", "_behind", "_behind_seq", "_duplicate", "_seq", "client")

    def __init__(self, client: Client) -> None:
        self.client = client
        self._seq = 0  # of the newest recorded message, 0: no `persisted` is due
        self._duplicate = 0
        self._before_seq = self._behind_seq = 0  # of unrecorded messages before `_seq` and behind
        self._before: dict[str, None] | None = None  # their topics
        self._behind: dict[str, None] | None = None

    def recorded(self, duplicate: int, *, asked: bool) -> None:
        """A recorded batch is settled; an ack that is due anyway covers it even if not asked."""
        if not asked and not self._seq:
            return
        self._seq = self.client.recorded
        self._duplicate += duplicate if asked else 0
        if self._behind is not None:
            if self._before is None:
                self._before = self._behind
            else:
                self._before.update(self._behind)
            self._before_seq, self._behind = self._behind_seq, None

    def unrecorded(self, topics: Iterable[str]) -> None:
        """A batch of topics that are not recorded is settled."""
        if self._behind is None:
            self._behind = {}
        self._behind.update(dict.fromkeys(topics))
        self._behind_seq = self.client.acked

    def sends(self, durability: str | None) -> list[Send]:
        """All of it, in the order of the sequences."""
        acks: list[Ack] = []
        if self._before is not None:
            acks += _named(self._before_seq, self._before)
        if self._seq:
            acks.append(
                Ack("persisted", seq=self._seq, durability=durability, duplicate=self._duplicate)
            )
        if self._behind is not None:
            acks += _named(self._behind_seq, self._behind)
        return [Send(self.client.rid, ack) for ack in acks]


def _named(seq: int, topics: Iterable[str]) -> Iterator[Ack]:
    """Acks of what is not recorded up to `seq`: as many as it takes to name the topics."""
    names = iter(topics)
    while part := list(islice(names, UNRECORDED_NAMED_MAX)):
        yield Ack("processed", seq=seq, unrecorded=part)
