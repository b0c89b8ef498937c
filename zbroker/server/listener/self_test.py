"""Tries to break into a door before it serves: libzmq lets everybody in if it is set up wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import zmq

from zbroker import sockets
from zbroker.clock import Clock
from zbroker.errors import ConfigError

TRIAL_MS: Final = 5_000
POLL_MS: Final = 20

_IN: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_OUT: Final = int(
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)


class SelfTestCase(NamedTuple):
    """Somebody who knocks, and whether the door has to open."""

    who: str
    curve: sockets.Curve | None
    enters: bool


def prove(
    context: zmq.Context[zmq.Socket[bytes]],
    endpoint: str,
    cases: list[SelfTestCase],
    turn: Callable[[int], None],
    clock: Clock,
) -> None:
    """Makes sure that only the right clients are admitted.

    turn: has the door do its work for so many milliseconds at most. Raises: ConfigError, if not
    everybody is treated as it has to be within TRIAL_MS.
    """
    knocks = [_Knock(context, endpoint, case) for case in cases]
    try:
        end_ms = clock.mono_ms() + TRIAL_MS
        while any(each.entered is None for each in knocks) and clock.mono_ms() < end_ms:
            turn(POLL_MS)
            for each in knocks:
                each.listen()
        for each in knocks:
            each.judge()
    finally:
        for each in knocks:
            each.close()


class _Knock:
    """One case under way; `entered` is None until the handshake has ended."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, case: SelfTestCase
    ) -> None:
        self._case = case
        self.entered: bool | None = None
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)  # one try
        sockets.know_ipv6(self._socket, endpoint)
        if case.curve is not None:
            sockets.identify(self._socket, case.curve)
        self._events = self._socket.get_monitor_socket(_IN | _OUT)
        self._socket.connect(endpoint)

    def listen(self) -> None:
        """Takes the first event that says how it ended."""
        while self.entered is None and self._events.poll(0):
            event = int.from_bytes(self._events.recv_multipart()[0][:2], "little")
            self.entered = bool(event & _IN)

    def judge(self) -> None:
        """Raises: ConfigError."""
        if self.entered is self._case.enters:
            return
        found = {True: "came in", False: "was refused", None: "got no answer"}[self.entered]
        raise ConfigError(
            "bad_config",
            f"this instance does not serve: {self._case.who} {found} when the door was tried",
            "security cannot be relied on here; try again, and report it if it stays",
        )

    def close(self) -> None:
        self._socket.disable_monitor()
        self._events.close(0)
        self._socket.close(0)
