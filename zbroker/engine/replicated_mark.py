"""How far enough synchronous destinations hold the log, for a process that waits for them. Pure.

The replication process says it for the positions of one journal. Until it has said so of the
journal that listens now, nothing is covered: positions of another one may be other messages. What
it said last holds while it is silent, since it is durable there. Ingest hears each mark; others do
while something in them waits for it, see `follow`, and else those of the beat.
"""

from __future__ import annotations

from zbroker.engine.effects import FollowMark
from zbroker.engine.news_need import NewsNeed
from zbroker.limits import U63_MAX
from zbroker.wire.replicas import Replicated


class ReplicatedMark:
    """on: there are synchronous destinations; else everything is covered.

    through: everything below it that somebody waits for is there. needed: how many destinations
    are waited for.
    """

    def __init__(self, *, on: bool) -> None:
        self.on = on
        self.needed = 0
        self.through = 0 if on else U63_MAX
        self._journal = 0
        self._said: Replicated | None = None  # the newest, maybe of a journal that is not known yet
        self._need = NewsNeed()

    def follow(self, now_ms: int, *, needed: bool) -> list[FollowMark]:
        """needed: something here waits for the mark."""
        changed = self.on and self._need.changed(now_ms, needed=needed)
        return [FollowMark(needed)] if changed else []

    def journal_begins(self, journal: int) -> None:
        """Another journal listens: its positions may be others."""
        if self.on and journal != self._journal:
            self._journal, self.through = journal, 0
            if self._said is not None:
                self.moved(self._said)

    def moved(self, said: Replicated) -> bool:
        """Takes note of how far the log is replicated; False if that changes nothing."""
        self._said = said
        if not self.on or said.journal != self._journal:
            return False
        self.needed = said.needed
        if said.through == self.through:
            return False
        self.through = said.through
        return True
