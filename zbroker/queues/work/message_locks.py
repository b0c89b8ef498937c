"""Which messages prepared branches of distributed transactions are to take, and how. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Struct, msgpack
from pyroaring import BitMap64

from zbroker.queues.work.sets import bytes_of, insert, remove
from zbroker.queues.work.values import Branch, Lock

OVER_MAX: Final = 1_000  # decided branches that are remembered: few have locks still to come


class _Row(Struct, array_like=True):
    """Messages of one lock in the tables; an earlier release wrote no `reject`."""

    principal: str
    token: str
    positions: bytes
    reject: str = ""


class MessageLocks:
    """By lock the messages that it has; all of them are here. coming: locks are on their way to
    the log. Records of instances come in any order: a branch may be over before its locks are read,
    where A rolls back by force what B has prepared; and a message may be in locks of several, where
    one of them is over, or two instances had it at the same time."""

    def __init__(self) -> None:
        self._of: dict[Lock, BitMap64] = {}
        self._over: dict[Branch, None] = {}  # in the order of their decisions
        self.all, self.coming = BitMap64(), BitMap64()

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, branch: Branch) -> dict[str, BitMap64]:
        """What a branch has locked, by the text that it is to be rejected with; "": it is to be
        acknowledged."""
        return {lock.reject: many.copy() for lock, many in self._of.items() if lock[0] == branch}

    def all_of(self, branch: Branch) -> BitMap64:
        """All of that."""
        return BitMap64.union(BitMap64(), *self.of(branch).values())

    def branch(self, position: int) -> Branch | None:
        """A branch that has this one."""
        return next((lock.branch for lock, many in self._of.items() if position in many), None)

    def end(self, branch: Branch) -> None:
        """It was decided: locks of it that are read from now on do not count."""
        self._over[branch] = None
        while len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]

    def forget(self, branch: Branch) -> None:
        """No lock of it is still to come."""
        self._over.pop(branch, None)

    def is_over(self, branch: Branch) -> bool:
        """Whether its locks do not count any more."""
        return branch in self._over

    def still_to_unlock(self) -> list[Branch]:
        """Branches that are over, and have messages locked all the same."""
        return [branch for branch in self._over if self.all_of(branch)]

    def put(self, positions: BitMap64, lock: Lock) -> None:
        """They are locked."""
        insert(self._of.setdefault(lock, BitMap64()), positions)
        insert(self.all, positions)

    def take(self, branch: Branch) -> BitMap64:
        """It has none any more. Returns: those that no other branch has, either."""
        found = self.all_of(branch)
        self._of = {lock: many for lock, many in self._of.items() if lock.branch != branch}
        for many in self._of.values():
            remove(found, many)
        remove(self.all, found)
        return found

    def drop(self, positions: BitMap64) -> None:
        """They are gone, or come back."""
        remove(self.coming, positions)
        if not self.all or self.all.isdisjoint(positions):
            return
        remove(self.all, positions)
        for lock, many in list(self._of.items()):
            remove(many, positions)
            if not many:
                del self._of[lock]

    def dump(self) -> bytes:
        """For the tables."""
        rows = [
            _Row(*lock.branch, bytes(many.serialize()), lock.reject)
            for lock, many in self._of.items()
        ]
        return msgpack.encode(rows)

    def load(self, data: bytes) -> None:
        """What `dump` gave. Raises: ValueError."""
        try:
            rows = msgpack.decode(data, type=list[_Row])
        except DecodeError as error:
            raise ValueError(f"locks are not readable: {error}") from None
        for row in rows:
            lock = Lock((row.principal, row.token), row.reject)
            self.put(BitMap64.deserialize(row.positions), lock)

    def dump_over(self) -> bytes:
        """The branches that are over; b"" if there are none."""
        return msgpack.encode([*self._over]) if self._over else b""

    def load_over(self, data: bytes) -> None:
        """What `dump_over` gave. Raises: ValueError."""
        try:
            self._over = dict.fromkeys(msgpack.decode(data, type=list[Branch]))
        except DecodeError as error:
            raise ValueError(f"branches are not readable: {error}") from None

    def memory_bytes(self) -> int:
        """Roughly."""
        return bytes_of(self.all, self.coming, *self._of.values())

    def check(self) -> None:
        """Asserts what is always true."""
        assert BitMap64.union(BitMap64(), *self._of.values()) == self.all
        assert all(self._of.values())
