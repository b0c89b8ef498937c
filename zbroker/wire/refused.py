"""What a room with a door refused for want of rights: kept until the admin has asked. Pure.

A flood pushes the oldest out; the ones that were never reported are counted.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from zbroker.wire.surveys import AskRefusals, Peers, RefusalRow, RefusalRows

#: codes that are about who somebody is and what he may do
CODES: Final = frozenset({"auth_failed", "not_entitled"})
KEPT: Final = 256
KEY_CHARS: Final = 8  # of a key, which is public: enough to find it


class _Refused(NamedTuple):
    rid: bytes
    who: str
    what: str
    code: str
    origin: str


class RefusalLog:
    """The newest of one process, by numbers that begin after its incarnation.

    So a number of another process is none of these.
    """

    def __init__(self, incarnation: int = 0) -> None:
        self._rows: deque[_Refused] = deque(maxlen=KEPT)
        self._begin = self._last = incarnation

    def add(self, rid: bytes, who: str, what: str, code: str, origin: str = "") -> None:
        """Somebody may not do `what`. origin: where he is, if `rid` does not say it."""
        self._last += 1
        self._rows.append(_Refused(rid, who, what, code, origin))

    def told(self, ask: AskRefusals, peers: Peers) -> RefusalRows:
        """Those after number `after`; all of them, if that is of another process."""
        after = ask.after if self._begin <= ask.after <= self._last else self._begin
        new = list(self._rows)[-(self._last - after) :] if self._last > after else []
        rows = [
            RefusalRow(one.who, one.origin or peers(one.rid)[0], one.what, one.code) for one in new
        ]
        return RefusalRows(ask.cid, self._last, rows, self._last - after - len(rows))


def told_as(command: object) -> str:
    """A command for people: its name, and whom or what it is about; never what it carries."""
    about = getattr(command, "client", None) or getattr(command, "topic", None)
    topics = getattr(command, "topics", None)
    name = getattr(getattr(command, "__struct_config__", None), "tag", None) or "command"
    return " ".join([name, *([str(about)] if about else (topics or [])[:3])])


def stranger(key: str) -> str:
    """The principal of a client that has only shown a key; "" without one."""
    return f"key {key[:KEY_CHARS]}..." if key else ""
