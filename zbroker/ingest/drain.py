"""A planned hand-over: publishers leave this instance once others hold what it acknowledged. Pure.

    off --hold--> held --leave--> left          off: cancelled, or this process is another one
         held --HOLD_MAX_MS without `leave`--> off

While it is held no client is read, so nothing new is acknowledged, and destinations catch up: a
client that logs on there afterwards finds everything. Then sessions end, and logons are refused:
clients go on with their next URL, and send again all that was not acknowledged.
"""

from __future__ import annotations

from typing import Final

from zbroker.errors import ClientError

HOLD_MAX_MS: Final = 60_000  # then publishers go on here: the admin that asked for it is gone


class Drain:
    """state: see above. held: no client is read."""

    def __init__(self) -> None:
        self.state = "off"
        self._until_ms: int | None = None

    @property
    def held(self) -> bool:
        """True while no client is read."""
        return self.state == "held"

    def step(self, what: str, now_ms: int) -> bool:
        """`hold`, `leave` or `off`; False if that does not follow."""
        if what == "leave" and self.state == "off":
            return False
        self.state = {"hold": "held", "leave": "left"}.get(what, "off")
        self._until_ms = now_ms + HOLD_MAX_MS if self.held else None
        return True

    def tick(self, now_ms: int) -> None:
        """Gives up a hold that lasts too long."""
        if self._until_ms is not None and now_ms >= self._until_ms:
            self.step("off", now_ms)

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._until_ms

    def check(self) -> None:
        """Raises: ClientError not_ready, if no client may log on."""
        if self.state == "left":
            reason = "this instance is drained: its publishers go on at another one"
            raise ClientError("not_ready", reason, "connect with the URLs of all instances")
