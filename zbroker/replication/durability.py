"""What an acknowledgement waits for: how far enough synchronous destinations hold the log. Pure.

    waited for --what was durable here downgrade_ms ago is not there--> downgraded
    downgraded --all that was durable here CAUGHT_UP_MS ago is there--> waited for
    any --an operator says so--> downgraded until a person upgrades it

`through` is a position: everything that a client waits for below it is durable at as many
synchronous destinations as the config asks for; if none is waited for, it is U63_MAX. A mark passes
what its destination does not want: where topics differ, all are waited for that are not downgraded.
A mark counts for the journal whose positions it is of, so all are lowered to what a new one has.
Source: requirement 002, "Synchronous", "downgrade"; the design of replication, rule 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from zbroker.engine.effects import Note
from zbroker.limits import BEAT_MS, U63_MAX
from zbroker.link_topics import EVERYTHING, LinkTopics

CAUGHT_UP_MS: Final = BEAT_MS


class DestinationRule(NamedTuple):
    """A destination in the config. downgrade_ms: 0 is never. key: its public key, in Z85. topics:
    that it gets, with its filter."""

    name: str
    sync: bool = False
    downgrade_ms: int = 0
    key: str = ""
    topics: LinkTopics = EVERYTHING


@dataclass(slots=True)
class _Synchronous:
    """target: where the log ended at `since_ms`, if the destination lacked something then.
    by_hand: it is downgraded, and only a person upgrades it."""

    rule: DestinationRule
    mark: int = 0
    downgraded: bool = False
    by_hand: bool = False
    since_ms: int | None = None
    target: int = 0


class Durability:
    """The marks of all destinations, and what follows from them: `through`, and how many an
    acknowledgement waits for, `needed`."""

    def __init__(
        self, rules: Iterable[DestinationRule], sync_needed: int = 0, min_sync: int = 0
    ) -> None:
        """sync_needed: destinations; 0: all of the synchronous ones."""
        self._sync = {rule.name: _Synchronous(rule) for rule in rules if rule.sync}
        self._needed = sync_needed or len(self._sync)
        self._differ = len({one.rule.topics for one in self._sync.values()}) > 1
        self._min = min_sync
        self._reckon()

    @property
    def asked(self) -> bool:
        """True if there is a synchronous destination."""
        return bool(self._sync)

    def needed_after(self, name: str = "", *, downgraded: bool = False) -> int:
        """How many, once the destination `name` is downgraded, or is not."""
        down = {each: one.downgraded for each, one in self._sync.items()}
        if name:
            down[name] = downgraded
        waited_for = len(down) - sum(down.values())
        return max(min(self._needed, waited_for), self._min)

    def _reckon(self) -> None:
        """A mark has moved, or what is waited for has changed."""
        needed = self.needed = self.needed_after()
        if not needed:
            self.through = U63_MAX
        elif self._differ:  # the config has no number then: each is waited for that is not down
            self.through = min(one.mark for one in self._sync.values() if not one.downgraded)
        else:
            marks = sorted((one.mark for one in self._sync.values()), reverse=True)
            self.through = marks[needed - 1]

    def is_sync(self, name: str) -> bool:
        """True of a synchronous destination."""
        return name in self._sync

    def downgraded(self, name: str) -> bool:
        """True if a synchronous destination is not waited for now."""
        return name in self._sync and self._sync[name].downgraded

    def by_hand(self, name: str) -> bool:
        """True if that was done by a person."""
        return name in self._sync and self._sync[name].by_hand

    def set_downgraded(self, name: str, *, on: bool) -> list[Note]:
        """A person downgrades a synchronous destination, until further notice, or upgrades it.

        No note if it is so already. One that lags is waited for from now on.
        """
        one = self._sync[name]
        before, one.by_hand = one.downgraded, on
        if before == on:
            return []
        one.since_ms = None
        return self._change(one, "downgraded" if on else "upgraded", "by hand")

    def moved(self, name: str, mark: int) -> None:
        """Everything below `mark` is durable at a destination."""
        if name in self._sync:
            self._sync[name].mark = mark
            self._reckon()

    def journal_begins(self, persisted: int) -> None:
        """Another journal serves; what a mark says above its end may be something else now."""
        for one in self._sync.values():
            one.mark = min(one.mark, persisted)
            one.since_ms = None
        self._reckon()

    def tick(self, now_ms: int, persisted: int) -> list[Note]:
        """Downgrades destinations that lag for too long, and upgrades those that have caught up."""
        return [
            note for one in self._sync.values() if one.rule.downgrade_ms and not one.by_hand
            for note in self._look(one, now_ms, persisted)
        ]  # fmt: skip

    def _look(self, one: _Synchronous, now_ms: int, persisted: int) -> list[Note]:
        since_ms = one.since_ms
        lagged_ms = None if since_ms is None else now_ms - since_ms
        if lagged_ms is None or one.mark >= one.target:
            one.since_ms = now_ms if one.mark < persisted else None
            one.target = persisted
            soon = lagged_ms is not None and lagged_ms <= CAUGHT_UP_MS
            if one.downgraded and (soon or one.since_ms is None):
                return self._change(one, "upgraded", "acknowledgements wait for it again")
        elif not one.downgraded and lagged_ms >= one.rule.downgrade_ms:
            means = (
                f"it has lagged for {lagged_ms} ms, and is not waited for until it has caught up"
            )
            return self._change(one, "downgraded", means)
        return []

    def _change(self, one: _Synchronous, what: str, means: str) -> list[Note]:
        one.downgraded = what == "downgraded"
        self._reckon()
        text = f"{one.rule.name} is {what}: {means}; acknowledgements wait for {self.needed} now"
        values = {"link": one.rule.name, "needed": self.needed}
        return [Note(f"replication.{what}", text, values=values)]

    def next_wake_ms(self) -> int | None:
        """When `tick` may have something to do."""
        times = [
            one.since_ms + one.rule.downgrade_ms for one in self._sync.values()
            if one.since_ms is not None and one.rule.downgrade_ms and not one.downgraded
        ]  # fmt: skip
        return min(times, default=None)
