"""Which entries a vector needs no more: those of generations that have ended. Pure.

A closed generation has no more messages than it had. A vector that has an entry at or beyond the
record that closed it covers all of it, on every instance (zbroker.journal.closed_generations puts
the entry back when a reader comes with that vector; it says here which may be left out). A
subscription that runs on passes that record in the log; from then on it names the record, and the
generation no more. So its vector has an entry for each open generation, and not for each start
that an instance ever had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zbroker.ids import Origin, Vector, raise_to
from zbroker.wire.replicas import ClosedEnd


class ClosedEnds:
    """Those of the log below position `through`, where the records are that closed them."""

    def __init__(self, rows: Iterable[ClosedEnd] = (), through: int = 0) -> None:
        self.through = through
        self._rows = {Origin(row.instance, row.generation): row for row in rows}

    def without(self, vector: Mapping[Origin, int], position: int) -> Vector:
        """What covers the same as `vector`, for a reader that has passed all before `position`.

        Before `through` only what the vector implies is left out: it names the closing record, or
        more. An entry beyond an end stays, until all of it was taken again under other names.
        """
        left, passed_all = dict(vector), position >= self.through
        # a generation is closed in a later one, which may be closed, too
        for origin in sorted(self._rows.keys() & left.keys()):
            while (row := self._rows.get(origin)) is not None and origin in left:
                if (by := _record(row, left[origin])) is None:
                    break
                if not passed_all and not self._implies(left, row.instance, by):
                    break
                del left[origin]
                if passed_all:
                    origin = Origin(row.instance, by[0])
                    raise_to(left, {origin: by[1]})
        return left

    def _implies(self, vector: Vector, instance: int, by: tuple[int, int] | None) -> bool:
        """Whether a vector has passed such a record, maybe as one of a generation that is closed,
        too."""
        while by is not None:
            later = Origin(instance, by[0])
            if vector.get(later, 0) >= by[1]:
                return True
            row = self._rows.get(later)
            by = None if row is None else _record(row, by[1])
        return False


def _record(row: ClosedEnd, passed: int) -> tuple[int, int] | None:
    """Generation and position of the record which says that there is no more than `passed`."""
    if passed <= row.end:
        return row.by_generation, row.by_position
    if row.again_position and passed <= row.reach:
        return row.again_generation, row.again_position
    return None
