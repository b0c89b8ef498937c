"""Keeps a running instance from removing what is being read: a hold that is renewed while in use.

It ends with the block, or by itself when this process dies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from zbroker.clock import Clock, SystemClock
from zbroker.control.target import Admin
from zbroker.errors import ZBrokerError

TTL_S: Final = 300  # longer than one sync of a segment takes on a slow disk
RENEW_MS: Final = 60_000

Renew = Callable[[], None]


@contextmanager
def hold(
    admin: Admin | None, what: str, position: int, clock: Clock | None = None
) -> Iterator[Renew]:
    """Holds the log from `position` on; what it gives is to be called often.

    Without an instance there is nothing to hold. Raises: ZBrokerError.
    """
    if admin is None:
        yield lambda: None
        return
    held = _Hold(admin, what, position, clock or SystemClock())
    held.renew()
    try:
        yield held
    finally:
        with suppress(ZBrokerError):  # the instance ended, or it ends by itself
            held.tell(0)


class _Hold:
    def __init__(self, admin: Admin, what: str, position: int, clock: Clock) -> None:
        self._admin = admin
        self._what = what
        self._position = position
        self._clock = clock
        self._until_ms = 0

    def __call__(self) -> None:
        if self._clock.mono_ms() >= self._until_ms:
            self.renew()

    def renew(self) -> None:
        self.tell(TTL_S)
        self._until_ms = self._clock.mono_ms() + RENEW_MS

    def tell(self, ttl_s: int) -> None:
        who = f"{self._what.partition(' ')[0]}-{os.getpid()}"
        body = {"who": who, "what": self._what, "position": self._position, "ttl_s": ttl_s}
        self._admin.tell("/journal/hold", body)
