"""Which messages prepared branches of distributed transactions are to take. Pure."""

from __future__ import annotations

from msgspec import DecodeError, msgpack
from pyroaring import BitMap64

from zbroker.queues.work.sets import bytes_of, insert, remove

Branch = tuple[str, str]  # its principal, and the token that it staged under


class MessageLocks:
    """By branch the messages that it has locked; all of them are here."""

    def __init__(self) -> None:
        self._of: dict[Branch, BitMap64] = {}
        self.all = BitMap64()

    def __bool__(self) -> bool:
        return bool(self._of)

    def branches(self) -> list[Branch]:
        """Those that have some."""
        return list(self._of)

    def of(self, branch: Branch) -> BitMap64:
        """What a branch has locked."""
        return self._of.get(branch, BitMap64()).copy()

    def branch(self, position: int) -> Branch | None:
        """The branch that has this one."""
        return next((one for one, many in self._of.items() if position in many), None)

    def put(self, positions: BitMap64, branch: Branch) -> None:
        """They are locked; none of them was."""
        insert(self._of.setdefault(branch, BitMap64()), positions)
        insert(self.all, positions)

    def drop(self, positions: BitMap64) -> None:
        """They are gone, or come back."""
        if not self.all or self.all.isdisjoint(positions):
            return
        remove(self.all, positions)
        for branch, many in list(self._of.items()):
            remove(many, positions)
            if not many:
                del self._of[branch]

    def dump(self) -> bytes:
        """For the tables."""
        return msgpack.encode([(*one, bytes(many.serialize())) for one, many in self._of.items()])

    def load(self, data: bytes) -> None:
        """What `dump` gave. Raises: ValueError."""
        try:
            rows = msgpack.decode(data, type=list[tuple[str, str, bytes]])
        except DecodeError as error:
            raise ValueError(f"locks are not readable: {error}") from None
        for principal, token, many in rows:
            self.put(BitMap64.deserialize(many), (principal, token))

    def memory_bytes(self) -> int:
        """Roughly."""
        return bytes_of(self.all, *self._of.values())

    def check(self) -> None:
        """Asserts what is always true."""
        assert BitMap64.union(BitMap64(), *self._of.values()) == self.all
        assert sum(map(len, self._of.values())) == len(self.all)
