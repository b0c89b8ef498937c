"""When a state snapshot is written, part by part, and from when on it counts. Pure.

One that is larger than all that was written since the last one waits: where segments are small and
the table is large, snapshots would otherwise cause roll-overs, which cause snapshots, for ever.
On a nearly full disk only the first part of one is written, and small ones: removing segments,
which makes room again, needs them. The rest waits until publishers are accepted again.
"""

from __future__ import annotations

from typing import Final

from zbroker.journal import snapshot
from zbroker.journal.group_builder import GroupBuilder
from zbroker.limits import KIB, STATE_BODY_BYTES
from zbroker.log.format import KIND_STATE

STATE_PART_BYTES: Final = STATE_BODY_BYTES + 64 * KIB  # with names and headers around it


class Stating:
    """Of one journal; the parts go into the groups of `to`.

    idle --want--> wanted --due--> being cut, part by part --synced--> idle
    """

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._cutter: snapshot.Cutter | None = None
        self._wanted = False
        self._first_serial = 0
        self._end = 0  # behind its last part, once that is placed
        self._last_bytes = 0  # of the one before
        self.other_bytes = 0  # written since

    @property
    def active(self) -> bool:
        """One is wanted or begun."""
        return self._wanted or self._cutter is not None

    def want(self) -> None:
        """One shall be written; if one is being written, another one behind it."""
        self._wanted = True

    @property
    def due(self) -> bool:
        """A part is to be written now. On a nearly full disk a large one waits, too."""
        if self._end or self._to.fenced or not self._to.state_fits:
            return False
        if self._cutter is None:
            return self._wanted and self.other_bytes >= self._last_bytes
        return self._to.accepting or self._cutter.bytes < STATE_BODY_BYTES

    @property
    def reserved(self) -> int:
        """Bytes of a nearly full disk that are left for its next part, if that has room at all."""
        return STATE_PART_BYTES if self.active and self._to.state_fits else 0

    def place(self) -> int:
        """Puts the next part into the group; its size."""
        if self._cutter is None:
            self._wanted, self._first_serial, self.other_bytes = False, 0, 0
            folds = snapshot.folds(self._to.sessions)
            self._cutter = snapshot.Cutter(folds, self._to.next_position)
        body = self._cutter.cut()
        self._to.control(KIND_STATE, body)
        if self._cutter.done:
            self._end = self._to.next_position
        return len(body)

    def written(self, position: int, serial: int) -> None:
        """Everything below `position` is written, the last of it into segment `serial`."""
        if self._cutter is not None and not self._first_serial and self._cutter.through < position:
            self._first_serial = serial

    def synced(self, position: int) -> int:
        """The serial in which it begins if it has become complete and durable, else 0."""
        if not self._end or self._end > position or self._cutter is None:
            return 0
        self._last_bytes = self._cutter.bytes
        self._cutter, self._end = None, 0
        return self._first_serial
