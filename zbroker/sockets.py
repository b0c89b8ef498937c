"""ZeroMQ sockets with our settings, and the fast way to read and write commands on them.

No limit of ours relies on a high-water mark (a ROUTER drops silently at it): sends never block, and
ROUTER_MANDATORY makes a gone peer an error. Sources: docs/reference/wire.md, "Flow".
"""

from __future__ import annotations

import os
import socket as tcp
import struct
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import zmq

from zbroker.endpoints import is_ipv6
from zbroker.limits import FRAMES_MAX

LINGER_MS: Final = 500
HEARTBEAT_IVL_MS: Final = 2_000  # together eight seconds, for a client without an interval
HEARTBEAT_TIMEOUT_MS: Final = 6_000
#: of an interval that was asked for: a PING is sent, and unanswered long enough, within two of them
HEARTBEAT_IVL_PART: Final = 0.5
HEARTBEAT_TIMEOUT_PART: Final = 1.25
HANDSHAKE_IVL_MS: Final = 2_000  # a silent peer is not kept longer
RECONNECT_IPC_MS: Final = 5

MORE: Final = int(zmq.SNDMORE | zmq.NOBLOCK)  # `|` of two enum members costs more than the send
LAST: Final = int(zmq.NOBLOCK)
EVERY_BEAT: Final = b"DB"  # first bytes of watermarks: of the beat and for new subscribers,
EVERY_COMMIT: Final = b"DC"  # of a commit,
EVERY_WRITE: Final = b"WW"  # and of a group that is written and not durable yet
TOPIC_BYTES: Final = 2
COPY_MAX_BYTES: Final = 16_384  # below it copying a body is cheaper than sharing it

LAST_DATA_RECV: Final = struct.Struct("=I")  # milliseconds; of struct tcp_info, linux/tcp.h
LAST_DATA_RECV_AT: Final = 52
TCP_INFO_BYTES: Final = LAST_DATA_RECV_AT + LAST_DATA_RECV.size

ZAP_DOMAIN: Final = "zbroker"  # enforced: without an answer to it no client is admitted

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]
Frames = list[zmq.Frame]
Body = bytes | memoryview | zmq.Frame
#: without the Python layer of pyzmq: half the time of a send
send: Final[Callable[..., object]] = zmq.backend.Socket.send
EVENTS: Final = int(zmq.EVENTS)
READABLE: Final = int(zmq.POLLIN)


class Curve(NamedTuple):
    """A client's keys, and the broker's public one, in Z85."""

    public: bytes
    secret: bytes
    server: bytes

    def __repr__(self) -> str:
        return f"Curve(public={self.public!r}, server={self.server!r})"


class ServerCurve(NamedTuple):
    """The keys of an instance, in Z85."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"ServerCurve(public={self.public!r})"


def _common(socket: Socket, sndhwm: int, rcvhwm: int) -> None:
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, sndhwm)
    socket.setsockopt(zmq.RCVHWM, rcvhwm)


def public_router(
    context: Context, max_frame_bytes: int, sndhwm: int, curve: ServerCurve | None = None
) -> Socket:
    """A tcp ROUTER for clients, not bound yet. A frame over the limit closes its connection.

    Nothing but the guard of its listener bounds what waits unread: at a high-water mark libzmq
    stops reading, and a connection that breaks off then may end the process.
    curve: a client must show a key, and this context's ZAP handler decides whether it is admitted.
    """
    socket = context.socket(zmq.ROUTER)
    _common(socket, sndhwm, 0)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    ask_for_heartbeats(socket, None)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_IVL_MS)
    socket.setsockopt(zmq.BACKLOG, 1_024)
    if curve is not None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, curve.secret)
        socket.setsockopt_string(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    return socket


def know_ipv6(socket: Socket, endpoint: str) -> None:
    """Before it is bound or connected. Always on, libzmq would look for names in IPv6 only."""
    if is_ipv6(endpoint):
        socket.setsockopt(zmq.IPV6, 1)


def ask_for_heartbeats(socket: Socket, interval_s: float | None) -> None:
    """Has libzmq send PINGs, and close a connection on which nothing comes: as Disconnected.

    interval_s: noticed within two of them; None: within eight seconds. Its thread answers PINGs
    however busy Python is. A PING that waits unread in a full buffer is answered late, so a peer
    that may stop reading has to send something by itself. No TTL: any frame after a PING disarms
    it, so a peer that is stopped just then is not noticed.
    """
    ivl_ms, timeout_ms = HEARTBEAT_IVL_MS, HEARTBEAT_TIMEOUT_MS
    if interval_s is not None:
        ivl_ms = max(1, int(interval_s * 1_000 * HEARTBEAT_IVL_PART))
        timeout_ms = max(1, int(interval_s * 1_000 * HEARTBEAT_TIMEOUT_PART))
    socket.setsockopt(zmq.HEARTBEAT_IVL, ivl_ms)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, timeout_ms)


def inner_router(context: Context) -> Socket:
    """An ipc ROUTER between our processes; credit bounds what is queued."""
    socket = context.socket(zmq.ROUTER)
    _common(socket, 0, 0)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    return socket


def dealer(
    context: Context, endpoint: str, max_frame_bytes: int = -1, curve: Curve | None = None
) -> Socket:
    """A connected DEALER: to a listener of the broker (tcp), or between our processes (ipc)."""
    socket = context.socket(zmq.DEALER)
    _common(socket, 0, 0)
    know_ipv6(socket, endpoint)
    if endpoint.startswith("ipc:"):
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_IPC_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
    else:
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
        ask_for_heartbeats(socket, None)
        socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    if curve is not None:
        identify(socket, curve)
    socket.connect(endpoint)
    return socket


def identify(socket: Socket, curve: Curve) -> None:
    """Has a socket that is not connected yet show its key, and accept that broker only."""
    socket.setsockopt(zmq.CURVE_PUBLICKEY, curve.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, curve.secret)
    socket.setsockopt(zmq.CURVE_SERVERKEY, curve.server)


def watermarks_publisher(context: Context) -> Socket:
    """The journal's XPUB, which reports each subscription: it is answered at once."""
    socket = context.socket(zmq.XPUB)
    _common(socket, 1_000, 0)
    socket.setsockopt(zmq.XPUB_VERBOSE, 1)
    return socket


def watermarks_subscriber(
    context: Context, endpoint: str, *, every_commit: bool = False, every_write: bool = False
) -> Socket:
    """A SUB that keeps only the newest frame: of all, of commits and the beat, or of the beat.

    One subscription, before it connects: CONFLATE keeps only the newest of what it sends as well.
    """
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.CONFLATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_IPC_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
    durable = EVERY_COMMIT[:1] if every_commit else EVERY_BEAT
    socket.setsockopt(zmq.SUBSCRIBE, b"" if every_write else durable)
    socket.connect(endpoint)
    return socket


class Wires:
    """The TCP connections of the peers of a ROUTER, by routing id.

    libzmq does not tell when it was sent a PING; the kernel tells when it got bytes.
    left: peers whose connection has ended, in this order, until somebody takes them out.
    """

    def __init__(self) -> None:
        self.fds: dict[bytes, int] = {}
        self.left: dict[bytes, None] = {}
        self._rids: dict[int, bytes] = {}  # a descriptor has one peer at a time

    def add(self, rid: bytes, frame: zmq.Frame) -> int:
        """A peer that is not in `fds`, and the first frame that came from it. Returns: its fd."""
        fd = int(frame.get(zmq.SRCFD))
        self._forget(fd)  # which may be there: this may be the last word of one before it
        self._rids[fd], self.fds[rid] = rid, fd
        return fd

    def drop(self, fd: int) -> None:
        """The connection of this descriptor has ended: its peer may return under its old name."""
        rid = self._forget(fd)
        if rid is not None:
            self.left[rid] = None

    def _forget(self, fd: int) -> bytes | None:
        rid = self._rids.pop(fd, None)
        if rid is not None:
            del self.fds[rid]
        return rid

    def quiet_ms(self, rid: bytes) -> int | None:
        """How long ago the last byte came from this peer; None if its connection is gone."""
        fd = self.fds.get(rid)
        if fd is None:
            return None
        copy = copy_of(fd)
        if copy is None:
            return None
        with copy:
            try:
                info = copy.getsockopt(tcp.IPPROTO_TCP, tcp.TCP_INFO, TCP_INFO_BYTES)
            except OSError:
                return None  # the number belongs to something else by now
        return int(LAST_DATA_RECV.unpack_from(info, LAST_DATA_RECV_AT)[0])


def copy_of(fd: int) -> tcp.socket | None:
    """A socket of our own for what `fd` is; None if it is none any more."""
    try:
        number = os.dup(fd)
    except OSError:
        return None
    try:
        return tcp.socket(fileno=number)
    except OSError:
        os.close(number)
        return None


def receive_from(router: Socket, frames_max: int = FRAMES_MAX) -> tuple[bytes, Frames, bool] | None:
    """One command from a ROUTER: its sender, its frames, and whether there were too many.

    Returns: None when nothing waits. Frames over `frames_max` (0: no limit, for our own processes)
    are read and dropped, so that the next command begins where it should. (`recv_multipart` costs
    three times as much.)
    """
    try:
        rid: bytes = router.recv(LAST)
    except zmq.Again:
        return None
    frames: Frames = []
    over = False
    more = True
    while more:
        frame: zmq.Frame = router.recv(copy=False)
        more = frame.more
        if not frames_max or len(frames) < frames_max:
            frames.append(frame)
        else:
            over = True
    return rid, frames, over


def receive(dealer_socket: Socket) -> Frames | None:
    """All frames of one message from a DEALER, or None when nothing waits."""
    try:
        frame: zmq.Frame = dealer_socket.recv(LAST, copy=False)
    except zmq.Again:
        return None
    frames = [frame]
    while frame.more:
        frame = dealer_socket.recv(copy=False)
        frames.append(frame)
    return frames


def has_more(socket: Socket) -> bool:
    """Whether something waits: half the price of a read that finds nothing, which raises."""
    return bool(int(socket.getsockopt(EVENTS)) & READABLE)


def spin(poller: zmq.Poller, seconds: float) -> list[tuple[object, int]]:
    """What happens within `seconds`, without sleeping: waking a core that sleeps takes longer."""
    until = time.monotonic() + seconds
    while not (events := poller.poll(0)) and time.monotonic() < until:
        os.sched_yield()
    return events


def send_to(router: Socket, rid: bytes, header: bytes, body: Body | None = None) -> bool:
    """Sends one command to one peer of a ROUTER; False when it is gone or its queue is full."""
    try:
        deliver(router, rid, header, body)
    except zmq.ZMQError as error:
        if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
            raise
        return False
    return True


def deliver(router: Socket, rid: bytes, header: bytes, body: Body | None = None) -> None:
    """Like `send_to`. Raises: zmq.Again when the peer's queue is full, ZMQError when it is gone."""
    send(router, rid, MORE)
    if body is None:
        send(router, header, LAST)
    else:
        send(router, header, MORE)
        send(router, body, LAST, copy=len(body) < COPY_MAX_BYTES)
