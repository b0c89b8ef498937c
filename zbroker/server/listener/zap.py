"""Answers libzmq's question whether a key may come in (ZAP, RFC 27), in the loop of the process.

A handler of its own: that of pyzmq is a thread, and reads keys once. Each handshake has one
question under way, so what waits here is bounded by the connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import zmq
from zmq.utils import z85

from zbroker import sockets
from zbroker.clock import Clock
from zbroker.errors import ConfigError
from zbroker.sockets import ZAP_DOMAIN

ENDPOINT: Final = "inproc://zeromq.zap.01"
TURN_MAX: Final = 64  # questions of one turn: an answer costs 10 us, and libzmq 200 us before it
KEY_BYTES: Final = 32
REFUSED_KEPT: Final = 64

_VERSION: Final = b"1.0"
_PARTS: Final = 7  # version, request, domain, address, identity, mechanism, key

Allowed = Callable[[str], bool]


class ZapHandler:
    """The handler of one context, bound before the listener, or the first clients are refused."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], allowed: Allowed) -> None:
        self._allowed = allowed
        self.guest = ""  # a key that may come in besides
        self.malformed = 0
        self.refused: deque[tuple[str, str]] = deque(maxlen=REFUSED_KEPT)  # key, address
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ENDPOINT)

    def turn(self) -> None:
        """Answers what waits, TURN_MAX at most."""
        for _ in range(TURN_MAX):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            reply = answer(frames, self._may_enter)
            self.malformed += reply is None or reply[3] == b"500"
            if reply is not None and reply[3] == b"400":
                self.refused.append((z85.encode(frames[8]).decode(), _text(frames[5])))
            if reply is not None:
                self.socket.send_multipart([frames[0], *reply], zmq.NOBLOCK)

    def _may_enter(self, key: str) -> bool:
        return (key == self.guest != "") or self._allowed(key)


def answer(frames: Sequence[bytes], allowed: Allowed) -> list[bytes] | None:
    """The reply to a question with its sender in front; None if it cannot even be answered.

    200 with the key as User-Id; 400 to a key that is not allowed; 500 to a malformed question.
    """
    if len(frames) < 4 or frames[1] != b"":
        return None
    request = frames[3]
    if frames[2] != _VERSION or len(frames) != 2 + _PARTS:
        return _reply(request, b"500", b"not a question of ZAP 1.0")
    domain, mechanism, key = frames[4], frames[7], frames[8]
    if domain != ZAP_DOMAIN.encode() or mechanism != b"CURVE" or len(key) != KEY_BYTES:
        return _reply(request, b"500", b"not a CURVE key for this domain")
    name = z85.encode(key).decode("ascii")
    if not allowed(name):
        return _reply(request, b"400", b"this key is not known here")
    return _reply(request, b"200", b"", name.encode("ascii"))


def _text(address: bytes) -> str:
    return address[:64].decode("ascii", "replace")


def _reply(request: bytes, status: bytes, text: bytes, user: bytes = b"") -> list[bytes]:
    return [b"", _VERSION, request, status, text, user, b""]


SELF_TEST_MS: Final = 5_000
SELF_TEST_POLL_MS: Final = 20

_IN: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_OUT: Final = int(
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)


class SelfTestCase(NamedTuple):
    """A client that connects, and whether it has to be let in."""

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

    turn: has the listener work for so many milliseconds at most. Raises: ConfigError, unless each
    is treated as it has to be within SELF_TEST_MS.
    """
    knocks = [_Knock(context, endpoint, case) for case in cases]
    try:
        end_ms = clock.mono_ms() + SELF_TEST_MS
        while any(each.entered is None for each in knocks) and clock.mono_ms() < end_ms:
            turn(SELF_TEST_POLL_MS)
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
            f"this instance does not serve: {self._case.who} {found} in the self-test",
            "security cannot be relied on here; try again, and report it if it stays",
        )

    def close(self) -> None:
        self._socket.disable_monitor()
        self._events.close(0)
        self._socket.close(0)
