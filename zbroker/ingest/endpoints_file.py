"""The endpoints of the other listeners, as the supervisor wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from zbroker.ingest.events import EndpointsRead
from zbroker.ingest.logon_endpoints import missing
from zbroker.server.process import Process

LOOK_MS: Final = 200  # how often it is looked at once all of them are known


class EndpointsFile:
    """A source of a turn: read again only when it changed.

    The supervisor keeps the endpoints of a process that is restarted, so all of them stay known.
    Until then it is looked at in each turn, before commands: who was told of the last endpoint may
    log on at once.
    """

    drained = True
    next_wake_ms = None  # nobody waits for it but who logs on

    def __init__(self, process: Process) -> None:
        self._process, self._path = process, process.paths.running
        self._stamp: int | None = None  # of the file, when it was read
        self._look_ms = self._every_ms = 0

    def events(self, ready: object, limit: object) -> Iterable[EndpointsRead]:
        """What the file says, if it says something new."""
        now_ms = self._process.clock.mono_ms()
        if now_ms < self._look_ms:
            return ()
        known = self._changed()
        if known is not None:
            left = missing(self._process.config, known) if self._process.supervised else []
            self._every_ms = 0 if left else LOOK_MS
        self._look_ms = now_ms + self._every_ms
        return () if known is None else (EndpointsRead(known, left),)

    def _changed(self) -> dict[str, str] | None:
        process, path = self._process, self._path
        try:
            stamp = path.stat().st_mtime_ns
            if stamp == self._stamp:
                return None
            known: dict[str, str] = msgspec.json.decode(path.read_bytes()).get("endpoints", {})
        except (OSError, msgspec.DecodeError):
            if self._stamp is not None:
                return None
            if not process.supervised:
                process.log.warning("%s cannot be read: logons name no other endpoints", path)
            self._stamp = 0
            return {}
        self._stamp = stamp
        return known
