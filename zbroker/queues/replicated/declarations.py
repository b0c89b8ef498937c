"""Definitions of replicated queues, as all instances come to see them. Pure.

Two instances that cannot reach each other may both define a queue: two lives of one name. When they
meet they become one queue, the same everywhere and in whatever order the records came:

    the queue    is the lowest life that has not ended; the others are aliases: facts of both count
    definition   the highest version of all these lives
    begins       of each origin the lower position: both have the messages of either
    a deletion   ends the life that it names; an alias of an ended life goes on
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from zbroker.ids import Origin, Vector
from zbroker.log.queue_records import (
    QueueDeclaration,
    ReplicatedDefinition,
    VectorEntry,
    Version,
    newer,
)
from zbroker.topics import TopicType


class QueueView(NamedTuple):
    """A queue as it is now. lives: all that have not ended; the lowest is `life`. ended: those that
    have."""

    name: str
    life: QueueDeclaration
    lives: frozenset[QueueDeclaration]
    definition: dict[str, Any]
    source: str
    types: list[TopicType] | None
    begins: Vector
    ended: frozenset[QueueDeclaration] = frozenset()

    @property
    def declaration(self) -> int:
        """A number for records of this log alone: see `declarations`."""
        return self.life.created_ns

    @property
    def declarations(self) -> frozenset[int]:
        """Those of all its lives."""
        return frozenset(life.created_ns for life in self.lives)


class ReplicatedDefinitions:
    """All that is known, by name."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[QueueDeclaration, ReplicatedDefinition]] = {}

    def learn(self, record: ReplicatedDefinition) -> bool:
        """False: nothing changes."""
        rows = self._rows.setdefault(record.name, {})
        before = rows.get(record.life)
        if before is not None and not newer(record, before):
            return False
        rows[record.life] = record
        return True

    def view(self, name: str) -> QueueView | None:
        """The queue with this name; None: there is none, or not any more."""
        known = self._rows.get(name, {})
        rows = [row for row in known.values() if row.definition is not None]
        if not rows:
            return None
        newest = max(rows, key=lambda row: row.version)
        assert newest.definition is not None
        lives = frozenset(row.life for row in rows)
        return QueueView(
            name, min(lives), lives, newest.definition, newest.source, newest.types,
            _lower(row.begins for row in rows), frozenset(known) - lives,
        )  # fmt: skip

    def next_version(self, name: str, here: Origin) -> Version:
        """The version of the next record about this name."""
        rows = self._rows.get(name, {}).values()
        return Version(1 + max((row.version.number for row in rows), default=0), *here)

    def next_life(self, name: str, here: Origin, wall_ns: int) -> QueueDeclaration:
        """The life of a queue that is made now."""
        lives = self._rows.get(name, {})
        latest = max((life.created_ns for life in lives), default=0)
        return QueueDeclaration(max(wall_ns, latest + 1), *here)

    def altered(
        self, name: str, definition: dict[str, Any], source: str, here: Origin
    ) -> ReplicatedDefinition:
        """The record that gives a queue another definition."""
        view = self.view(name)
        assert view is not None
        return ReplicatedDefinition(
            name, view.life, self.next_version(name, here), source,
            entries(self._rows[name][view.life].begins), definition, types=view.types,
        )  # fmt: skip

    def ended(self, name: str, source: str, here: Origin) -> list[ReplicatedDefinition]:
        """The records that delete a queue: all lives of it that are known here."""
        view, version = self.view(name), self.next_version(name, here)
        lives = sorted(view.lives) if view is not None else []
        return [ReplicatedDefinition(name, life, version, source) for life in lives]

    def sources(self) -> Iterator[tuple[str, str]]:
        """Each name, also of a queue that was deleted, with the source of its newest record."""
        for name, rows in self._rows.items():
            yield name, max(rows.values(), key=lambda row: row.version).source

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def entries(begins: Iterable[VectorEntry]) -> list[VectorEntry]:
    """A vector as a record has it, sorted."""
    return sorted(begins)


def _lower(many: Iterable[list[VectorEntry]]) -> Vector:
    """What all of these vectors cover."""
    vectors = [
        {Origin(one.instance, one.generation): one.position for one in each} for each in many
    ]
    common = set.intersection(*(set(vector) for vector in vectors))
    return {origin: min(vector[origin] for vector in vectors) for origin in common}
