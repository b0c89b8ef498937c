"""Heartbeats: how each side of a connection notices that the other one is gone. Pure.

A client that asked for an interval, at its logon or by a heartbeat that names one, gets two beats
per interval and must be heard within two intervals, by any byte. It takes a broker for gone that
was not heard for two intervals.

    heard --two intervals without a byte, while the observer was running-----> silent
      ^------------------- anything arrives, or the observer slept ---------------+

| what happens | noticed by |
|---|---|
| link cut, or process stopped | client: its PINGs are unanswered (sockets.ask_for_heartbeats) |
|   | broker: not one byte arrives, not even PINGs (ListenerHeartbeats) |
| the broker's loop hangs, its sockets live | client: no beat arrives (Silence) |
| only the way to the broker is cut | broker: silence; notified, the client reconnects |
| a connection ends, its process was killed | broker: at once (server.ports.CommandsPort) |
| a handler is long, a program computes | not an alarm: libzmq sends PINGs without Python |
| this process was stopped, or lags | not an alarm: silence counts only while it listens |
| a beat comes late or is lost | not an alarm: there are four of them in two intervals |

The reaction is always the same. The client makes a new connection and resumes where it was. The
broker forgets the connection: its session is closed, its name is free; if the client is heard
again, it gets `not_logged_on`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from zbroker.limits import HEARTBEAT_MS

BEATS_PER_INTERVAL: Final = 2
SILENT_INTERVALS: Final = 2
EARLY_PART: Final = 8  # beats due within this part of the interval are sent together: few wakes

QuietMs = Callable[[bytes], int | None]


class Silence:
    """Measures how long a client's broker was silent. Without an interval it is never too long."""

    __slots__ = ("_heard_ms", "_interval_ms", "_looked_ms", "fresh")

    def __init__(self, interval_s: float | None) -> None:
        self._interval_ms = None if interval_s is None else max(1, int(interval_s * 1_000))
        self._heard_ms = self._looked_ms = 0
        self.fresh = True  # something came since the last check; set by the reader

    def look(self, now_ms: int) -> bool:
        """True if the broker is silent. To be called when nothing waits to be read."""
        if self._interval_ms is None:
            return False
        # bytes of the time that it was away may not be here yet
        away = now_ms - self._looked_ms >= self._interval_ms
        if self.fresh or away:
            self._heard_ms = now_ms
        self.fresh, self._looked_ms = False, now_ms
        return now_ms - self._heard_ms >= SILENT_INTERVALS * self._interval_ms

    @property
    def wake_ms(self) -> int | None:
        """When to look again at the latest: often enough not to seem away."""
        if self._interval_ms is None:
            return None
        silent_ms = self._heard_ms + SILENT_INTERVALS * self._interval_ms
        return min(silent_ms, self._looked_ms + max(1, self._interval_ms // BEATS_PER_INTERVAL))


class Pulse:
    """The heartbeat of one client. interval_ms: None without a request: silence never ends it."""

    __slots__ = ("beat_ms", "heard_ms", "interval_ms")

    def __init__(self, interval_s: float | None, now_ms: int) -> None:
        self.change(interval_s, now_ms)

    def change(self, interval_s: float | None, now_ms: int) -> None:
        """Counts from now on, by this interval."""
        self.interval_ms = None if interval_s is None else max(1, int(interval_s * 1_000))
        self.heard_ms = now_ms
        self.beat_ms = now_ms + self.every_ms

    @property
    def every_ms(self) -> int:
        """How often it is sent a heartbeat, at the least."""
        if self.interval_ms is None:
            return HEARTBEAT_MS
        return max(1, self.interval_ms // BEATS_PER_INTERVAL)

    @property
    def early_ms(self) -> int:
        """How much earlier than it is due something is done, if others are there to be done."""
        return self.every_ms // EARLY_PART

    def silent_ms(self, since_ms: int) -> int | None:
        """When its silence is long enough, if it counts from `since_ms` at the earliest."""
        if self.interval_ms is None:
            return None
        return max(self.heard_ms, since_ms) + SILENT_INTERVALS * self.interval_ms


class ListenerHeartbeats:
    """The heartbeats of all clients of a listener: which are due, which clients are silent."""

    def __init__(self, quiet_ms: QuietMs | None = None) -> None:
        """quiet_ms: how long ago a peer's connection brought the last byte, None: not known.

        It is asked about silent clients: the PINGs of libzmq are not messages, but they are bytes.
        """
        self._quiet_ms: QuietMs = quiet_ms if quiet_ms is not None else lambda _rid: None
        self._looked_ms = 0
        self._since_ms = 0  # silence counts from here: then all that had arrived was read
        self._least_ms: int | None = None  # shortest interval of the clients
        self.due_ms: int | None = None  # when `tick` has something to do

    def begin(self, interval_s: float | None, now_ms: int) -> Pulse:
        """A client that logged on."""
        pulse = Pulse(interval_s, now_ms)
        self._plan(pulse)
        return pulse

    def heard(self, pulse: Pulse, now_ms: int, interval_s: float | None = None) -> None:
        """A client said something. interval_s: another interval from now on; 0: none."""
        pulse.heard_ms = now_ms
        if interval_s is not None:
            pulse.change(interval_s or None, now_ms)
            self._plan(pulse)

    def tick(
        self, now_ms: int, clients: Iterable[tuple[bytes, Pulse]], *, drained: bool
    ) -> tuple[list[bytes], list[bytes]]:
        """The silent clients, and those due for a heartbeat now. To be called in each turn.

        drained: this turn read all that waited at the listener.
        """
        away = self._least_ms is not None and now_ms - self._looked_ms >= self._least_ms
        if away or not drained:
            self._since_ms = now_ms
        self._looked_ms = now_ms
        if self.due_ms is None or now_ms < self.due_ms:
            return [], []
        silent: list[bytes] = []
        beats: list[bytes] = []
        self.due_ms = self._least_ms = None
        for rid, pulse in clients:
            if self._silent(rid, pulse, now_ms):
                silent.append(rid)
                continue
            if now_ms >= pulse.beat_ms - pulse.early_ms:
                pulse.beat_ms = now_ms + pulse.every_ms
                beats.append(rid)
            self._plan(pulse)
        return silent, beats

    def _silent(self, rid: bytes, pulse: Pulse, now_ms: int) -> bool:
        silent_ms = pulse.silent_ms(self._since_ms)
        if silent_ms is None or now_ms < silent_ms - pulse.early_ms:
            return False
        quiet_ms = self._quiet_ms(rid)
        if quiet_ms is not None and now_ms - quiet_ms > pulse.heard_ms:
            pulse.heard_ms = now_ms - quiet_ms
            silent_ms = pulse.silent_ms(self._since_ms) or silent_ms
        return now_ms >= silent_ms

    def _plan(self, pulse: Pulse) -> None:
        """An earlier plan may be too early, never too late: that costs one more check."""
        silent_ms = pulse.silent_ms(self._since_ms)
        due_ms = pulse.beat_ms if silent_ms is None else min(pulse.beat_ms, silent_ms)
        self.due_ms = due_ms if self.due_ms is None else min(self.due_ms, due_ms)
        if pulse.interval_ms is not None:
            least_ms = self._least_ms
            self._least_ms = min(pulse.interval_ms, least_ms or pulse.interval_ms)
