"""Who asked to keep a part of the log without reading it through the broker: exports, backups.

The journal keeps leases as long as it lives; this keeps them longer. They stand in
<data>/run/leases.json until they end, and each journal process is told all of them before it is
asked to remove anything. A lease that the journal does not accept any more is told in the log.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import msgspec
from msgspec import Struct

from zbroker.admin.journal_link import AdminJournalLink
from zbroker.clock import Clock
from zbroker.errors import ClientError
from zbroker.wire import internal as m


class HoldLease(Struct, frozen=True):
    """Until when (wall clock) who needs what."""

    until_ms: int
    holding: m.Holding


class HoldLeases:
    """Thread-safe."""

    def __init__(self, path: Path, clock: Clock, log: logging.Logger) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._told = 0  # the journal's incarnation that knows all of them
        self._leases = self._load()

    def _load(self) -> dict[str, HoldLease]:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=dict[str, HoldLease])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._log.warning("leases of an earlier run are lost: %s; ask for them again", error)
            return {}
        return found

    def hold(self, link: AdminJournalLink, holding: m.Holding, ttl_s: int) -> None:
        """Begins, renews or (ttl_s 0) ends one. Raises: ClientError."""
        with self._lock:
            done = link.ask(m.Done, m.Lease, holding=holding, ttl_ms=ttl_s * 1_000)
            if done.code:
                raise ClientError(done.code, done.reason)
            self._leases.pop(holding.who, None)
            if ttl_s:
                until_ms = self._now_ms() + ttl_s * 1_000
                self._leases[holding.who] = HoldLease(until_ms, holding)
            self._forget_ended()
            self._save()

    def secure(self, link: AdminJournalLink) -> None:
        """Sees to it that the journal that runs now knows all of them. Raises: ClientError."""
        with self._lock:
            welcome = link.welcome
            if welcome is None:
                raise ClientError("not_ready", "the journal is not there", "try again")
            self._forget_ended()
            if welcome.incarnation == self._told:
                return
            for who, lease in list(self._leases.items()):
                ttl_ms = lease.until_ms - self._now_ms()
                done = link.ask(m.Done, m.Lease, holding=lease.holding, ttl_ms=ttl_ms)
                if done.code:
                    self._log.error("the lease of %s is void: %s", who, done.reason)
                    del self._leases[who]
            if link.welcome is welcome:
                self._told = welcome.incarnation

    def _forget_ended(self) -> None:
        now_ms = self._now_ms()
        self._leases = {w: lease for w, lease in self._leases.items() if lease.until_ms > now_ms}

    def _now_ms(self) -> int:
        return self._clock.wall_ns() // 1_000_000

    def _save(self) -> None:
        """Losing it in a power cut costs what it did before there was a file: ask again."""
        temporary = self._path.with_name(self._path.name + ".new")
        try:
            temporary.write_bytes(msgspec.json.encode(self._leases))
            temporary.replace(self._path)
        except OSError as error:
            self._log.warning("leases cannot be kept over a restart: %s", error)
