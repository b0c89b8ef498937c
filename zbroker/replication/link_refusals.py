"""Refusals of the replication listener, until the admin has asked for them. Pure.

A source that is refused tries again by itself, after 16 s at most, until its config or the rules
here have changed. So the same refusal of the same one is a line of the audit log once in AGAIN_MS.
"""

from __future__ import annotations

from typing import Final

from zbroker.ids import Origin
from zbroker.wire.surveys import AskRefusals, Peers, RefusalLog, RefusalRows, stranger

AGAIN_MS: Final = 600_000
KNOWN_MAX: Final = 1_000  # refusals that are known to be said; beyond it the oldest is said again
NAME_MAX: Final = 200  # characters of a source's name


class LinkRefusals:
    """Those of one process. peers: addresses of connections."""

    def __init__(self, incarnation: int, peers: Peers) -> None:
        self._log, self._peers = RefusalLog(incarnation), peers
        self._until_ms: dict[tuple[str, str, str, str], int] = {}

    def hello(self, rid: bytes, who: str, name: str, code: str, now_ms: int) -> None:
        """The Hello of a source with this name is refused, whatever the reason is."""
        self._add(rid, who, f"link_hello {name[:NAME_MAX]}", code, now_ms)

    def ended(self, rid: bytes, who: str, name: str, code: str, now_ms: int) -> None:
        """A link ends for want of rights."""
        self._add(rid, who, f"stay connected {name[:NAME_MAX]}", code, now_ms)

    def records(self, rid: bytes, who: str, origin: Origin, code: str, now_ms: int) -> None:
        """A record of this origin is beyond what its source may bring."""
        self._add(rid, who, f"send_units of {origin.instance:016x}", code, now_ms)

    def connection(self, key: str, host: str, now_ms: int) -> None:
        """A connection was refused before it said anything."""
        self._add(b"", stranger(key), "connect", "auth_failed", now_ms, host)

    def _add(
        self, rid: bytes, who: str, what: str, code: str, now_ms: int, host: str = ""
    ) -> None:  # fmt: skip
        said = who, what, code, host
        if now_ms < self._until_ms.get(said, 0):
            return
        self._until_ms.pop(said, None)  # it becomes the newest one
        self._until_ms[said] = now_ms + AGAIN_MS
        if len(self._until_ms) > KNOWN_MAX:
            del self._until_ms[next(iter(self._until_ms))]
        self._log.add(rid, who, what, code, host)

    def report(self, ask: AskRefusals) -> RefusalRows:
        """Those that the admin has not got yet."""
        return self._log.report(ask, self._peers)
