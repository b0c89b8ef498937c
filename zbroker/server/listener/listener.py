"""A public listener in the loop of its process: the ROUTER, who may come in, what is cut.

The process calls `turn` once per turn. It asks libzmq's monitor which connections came and went,
and the kernel what each has received; see guard.py for the bounds. A listener at which nothing
happens costs two look-ups per turn.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

import zmq

from zbroker import sockets
from zbroker.clock import Clock
from zbroker.limits import FRAMES_MAX
from zbroker.server.listener import kernel, zap
from zbroker.server.listener.gate import AdmissionGate, can_gate
from zbroker.server.listener.guard import ConnectionGuard, ConnectionLimits, Cut, GuardedConnection
from zbroker.server.listener.zap import ZapHandler

EVENTS_MAX: Final = 256  # of one turn; a flood of connections waits in the monitor
SEE_OFF_MS: Final = 200
NEVER: Final = 1 << 62
LETTING_MS: Final = (
    1  # then it checks again whether all are in: a client that gave up is not reported
)
TELL_MS: Final = 10_000  # a flood is one line of the log per so long
#: what a ZMTP 3.1 frame has besides its content, if that is short, and longer; and a CURVE one
SHORT_BYTES: Final = 2
LONG_BYTES: Final = 9
SHORT_MAX_BYTES: Final = 255
CURVE_BYTES: Final = 33
#: Bytes that a peer confirms only if it has the ROUTER's part of the handshake, which is 108 and
#: 301. Before it a greeting of 64 is sent; with CURVE a WELCOME of 170 and maybe an ERROR of 12.
SHAKEN_BYTES: Final = 90
CURVE_SHAKEN_BYTES: Final = 270

_FAILED: Final = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_REFUSED: Final = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_ACCEPTED: Final = int(zmq.EVENT_ACCEPTED)
_ENDED: Final = int(zmq.EVENT_DISCONNECTED)

Context = zmq.Context[zmq.Socket[bytes]]


class Listener:
    """One ROUTER for clients.

    frame_bytes: a larger frame closes its connection. unread_bytes: of one client that is logged
    on, received and not read. connections: of all. allowed: whether a key may come in.
    Raises: zmq.ZMQError, if it cannot be bound.
    """

    def __init__(  # noqa: PLR0913
        self,
        context: Context,
        listen: str,
        *,
        frame_bytes: int,
        sndhwm: int,
        unread_bytes: int,
        connections: int,
        curve: sockets.ServerCurve | None,
        allowed: Callable[[str], bool],
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._context, self._curve = context, curve
        self._clock, self._log = clock, log
        self.wires = sockets.Wires()
        self._flows = kernel.Flows()
        self._descriptors = limits = kernel.descriptors(connections)
        shaken = SHAKEN_BYTES if curve is None else CURVE_SHAKEN_BYTES
        self._guard = ConnectionGuard(ConnectionLimits(limits.connections, unread_bytes, shaken))
        self._box_bytes = 0 if curve is None else CURVE_BYTES
        self._zap = ZapHandler(context, allowed) if curve is not None else None
        self.router = sockets.public_router(context, frame_bytes, sndhwm, curve)
        sockets.know_ipv6(self.router, listen)
        self._monitor = _monitor(context, self.router)
        self._pollers: list[zmq.Poller] = []
        self._watched: list[int] = []
        self._letting_ms: int | None = None
        self._changed = False  # connections came or went since the gate was looked at
        self._taken: set[int] = set()  # descriptors of connections, also of those that were cut
        gated = limits.step and can_gate(listen)
        self._gate = AdmissionGate(listen, limits.step) if gated else None
        if self._gate is None:
            self.router.bind(listen)
        else:
            self._gate.bind(self.router, self._monitor)
            self._mind(self._gate, 0)
        self.endpoint = self.router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._port = int(self.endpoint.rpartition(":")[2])
        self.ended = 0  # connections, since the start
        self._counts: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()
        self._news = False  # something was counted and not reported
        self._tell_ms = 0
        self._host = ""  # of the connection that was cut last

    @property
    def counts(self) -> dict[str, int]:
        """For statistics: connections now; the others since the start."""
        names = ("refused_keys", "cut_handshakes", "cut_silent", "cut_unread", "cut_over_limit")
        malformed = {"zap_malformed": self._zap.malformed} if self._zap is not None else {}
        counted = {name: self._counts[name] for name in names}
        return {"connections": len(self._guard), **counted, **malformed}

    # -- in the loop of the process -----------------------------------------------------------

    def register(self, poller: zmq.Poller) -> None:
        """Adds what wakes `turn`; the process registers the ROUTER itself, when it reads."""
        poller.register(self._monitor, zmq.POLLIN)
        if self._gate is not None:
            self._pollers.append(poller)
            for fd in self._watched:
                poller.register(fd, zmq.POLLIN)
        if self._zap is not None:
            poller.register(self._zap.socket, zmq.POLLIN)

    def turn(self, events: Mapping[object, int], now_ms: int) -> None:
        """Answers ZAP, follows what comes and goes, cuts what has to be: bounded work."""
        if self._zap is not None and self._zap.socket in events:
            self._zap.turn()
        if self._monitor in events:
            self._follow(now_ms)
        if self._gate is not None and (
            self._changed or not self._watched or not events.keys().isdisjoint(self._watched)
        ):
            self._mind(self._gate, now_ms)
        self._changed = False
        wake_ms = self._guard.wake_ms()
        if wake_ms is not None and now_ms >= wake_ms:
            drained = not sockets.has_more(self.router)
            self._cut(self._guard.look(now_ms, kernel.worked_us, self._flows.of, drained=drained))
        if self._news and now_ms >= self._tell_ms:
            self._tell(now_ms)

    def strangers(self) -> list[tuple[str, str]]:
        """Key and address of those that were not let in since the last call, the newest."""
        refused = self._zap.refused if self._zap is not None else None
        return [refused.popleft() for _ in range(len(refused))] if refused else []

    def wake_ms(self) -> int | None:
        """When the next turn is due; None: when something happens."""
        if self._letting_ms is not None:
            return self._letting_ms  # the monitor wakes the loop before, as a rule
        return self._guard.wake_ms()

    def release(self) -> None:
        """Has to be called before the context of a listener ends."""
        if self._gate is not None:
            self._watch([])
            self._gate.release()
            self._gate = None

    def close(self) -> None:
        """Closes its sockets."""
        self.release()
        self.router.disable_monitor()
        self._monitor.close(0)
        self.router.close(sockets.LINGER_MS)
        if self._zap is not None:
            self._zap.socket.close(0)

    def _mind(self, gate: AdmissionGate, now_ms: int) -> None:
        """Opens and shuts the gate; where it is shut, lets others in by steps.

        While they may not come in, or libzmq is at it, those that wait do not wake the loop: it
        would take the processor from libzmq. The monitor reports the awaited events.
        """
        taken, limits = len(self._taken), self._descriptors
        has_place = taken <= limits.connections
        if gate.is_letting and not gate.has_some():
            gate.hold()
        if not gate.is_letting:
            if gate.is_open != (taken < limits.freely):
                (gate.shut if gate.is_open else gate.open)()
            if has_place and gate.has_some() and not self._monitor.poll(0):
                gate.let()
        self._letting_ms = now_ms + LETTING_MS if gate.is_letting else None
        self._watch(gate.fds if has_place and not gate.is_letting else [])

    def _watch(self, fds: list[int]) -> None:
        """Has those that wait there wake the loop."""
        if fds != self._watched:
            for poller in self._pollers:
                for fd in {*fds, *self._watched}:
                    poller.register(fd, zmq.POLLIN if fd in fds else 0)
            self._watched = fds

    def _follow(self, now_ms: int) -> bool:
        """What the monitor tells, EVENTS_MAX at most. Returns: whether that was all."""
        for _ in range(EVENTS_MAX):
            try:
                event_frame = self._monitor.recv(zmq.NOBLOCK)
            except zmq.Again:
                return True
            self._monitor.recv()  # our own address
            self._changed = True
            event, value = int.from_bytes(event_frame[:2], sys.byteorder), event_frame[2:6]
            if event & (_ACCEPTED | _ENDED):
                self._connection(event, int.from_bytes(value, sys.byteorder), now_ms)
            else:
                self._count("refused_keys" if event & _REFUSED else "cut_handshakes")
        return False

    def _connection(self, event: int, fd: int, now_ms: int) -> None:
        self.wires.drop(fd)
        if event & _ACCEPTED:
            self._taken.add(fd)
            self._cut(self._guard.accepted(fd, now_ms))
        else:
            self.ended += 1
            self._taken.discard(fd)
            self._guard.closed(fd)

    def _cut(self, cuts: list[Cut]) -> None:
        for fd, why in cuts:
            host = kernel.cut(fd, self._port)
            if host is not None:
                self._host = host
                if why != "handshakes":  # the monitor tells that it failed, and that is counted
                    self._count(f"cut_{why}")

    def _count(self, name: str) -> None:
        self._counts[name] += 1
        self._news = True

    def _tell(self, now_ms: int) -> None:
        new = self._counts - self._reported
        self._reported, self._tell_ms = self._counts.copy(), now_ms + TELL_MS
        self._news = False
        # a port scan, or a check whether the port is open, is not a problem
        level = logging.INFO if set(new) <= {"cut_handshakes"} else logging.WARNING
        what = ", ".join(f"{name} {count}" for name, count in sorted(new.items()))
        self._log.log(
            level,
            "connections were refused or cut: %s; the last one cut came from %s. Acknowledged "
            "messages are kept; other clients are not affected. Reported every %s s at most",
            what, self._host or "-", TELL_MS // 1_000,
        )  # fmt: skip

    # -- what the process knows of its peers --------------------------------------------------

    def receive(
        self, frames_max: int = FRAMES_MAX
    ) -> tuple[bytes, sockets.Frames, bool, str, int] | None:
        """The next command: its sender, its frames, whether there were too many, key and bytes.

        The key is in Z85, "" without CURVE. Returns: None when nothing waits.
        """
        received = sockets.receive_from(self.router, frames_max)
        if received is None:
            return None
        rid, frames, over = received
        if rid not in self.wires.fds:
            self._meet(rid, frames[0])
        size = sum(map(len, frames))
        connection = self._of(rid)
        if connection is not None:
            connection.read += size + self._overhead(frames, size)
            connection.frames += len(frames)
        key = "" if self._curve is None else str(frames[0].get("User-Id"))
        return rid, frames, over, key, size

    def _overhead(self, frames: sockets.Frames, size: int) -> int:
        """The bytes that came besides their contents, `size`. Too many would hide what is not
        read."""
        box, count = self._box_bytes, len(frames)
        if size + box <= SHORT_MAX_BYTES:
            return count * (box + SHORT_BYTES)  # all are short, as most are
        short = sum(len(frame) + box <= SHORT_MAX_BYTES for frame in frames)
        return count * (box + LONG_BYTES) - short * (LONG_BYTES - SHORT_BYTES)

    @property
    def left(self) -> int:
        """How many peers have left and were not taken. All that they have sent can be read now."""
        return len(self.wires.left)

    def take_left(self, count: int) -> list[bytes]:
        """So many of them, those first that left first."""
        taken = [*islice(self.wires.left, count)]
        for rid in taken:
            del self.wires.left[rid]
        return taken

    def _meet(self, rid: bytes, frame: zmq.Frame) -> None:
        """Its first message. A busy turn may read that before the monitor tells that it came:
        taken for a newcomer afterwards, it would be cut, whether it has a session or not."""
        while not self._follow(self._clock.mono_ms()):
            pass
        if rid in self.wires.left:
            return  # another one may have its descriptor by now
        fd = self.wires.add(rid, frame)
        if fd not in self._taken:  # it has left again
            self.wires.drop(fd)

    def logged_on(self, rid: bytes) -> None:
        """This peer has a session: it may stay, and say more."""
        connection = self._of(rid)
        if connection is not None:
            self._guard.logged_on(connection)

    def forget(self, rid: bytes) -> None:
        """Its session has ended; without another one it is cut like everybody else."""
        connection = self._of(rid)
        if connection is not None:
            self._guard.forget(connection, self._clock.mono_ms())

    def peer(self, rid: bytes) -> tuple[str, int | None]:
        """Its address as `host:port`, and since when (monotonic ms); "" and None if it is gone."""
        connection = self._of(rid)
        if connection is None:
            return "", None
        return kernel.address(connection.fd, self._port), connection.since_ms

    def _of(self, rid: bytes) -> GuardedConnection | None:
        known = self._guard.by_rid.get(rid)
        if known is not None:
            return known
        fd = self.wires.fds.get(rid)
        return None if fd is None else self._guard.meet(rid, fd, self._clock.mono_ms())

    # -- before it serves ---------------------------------------------------------------------

    def self_test(self) -> None:
        """With CURVE only a known key may come in: tries it. Raises: ConfigError."""
        if self._curve is None or self._zap is None:
            return
        server = self._curve.public
        stranger, guest = (sockets.Curve(*zmq.curve_keypair(), server) for _ in range(2))
        cases = [
            zap.SelfTestCase("a key that is not in the access file", stranger, enters=False),
            zap.SelfTestCase("a client without a key", None, enters=False),
            zap.SelfTestCase("a key that is known", guest, enters=True),
        ]
        poller = zmq.Poller()
        self.register(poller)
        self._zap.guest = guest.public.decode()
        self._tell_ms = NEVER
        try:
            zap.prove(
                self._context, reachable(self.endpoint), cases,
                lambda wait_ms: self.turn(dict(poller.poll(wait_ms)), self._clock.mono_ms()),
                self._clock,
            )  # fmt: skip
        finally:
            self._zap.guest = ""
        self._see_off(poller)
        self.strangers()
        self._tell_ms = 0
        self._counts.clear()
        self._reported.clear()
        self._news = False

    def _see_off(self, poller: zmq.Poller) -> None:
        """Waits until the clients of the self-test are gone: they are not reported."""
        end_ms = self._clock.mono_ms() + SEE_OFF_MS
        while len(self._guard) and self._clock.mono_ms() < end_ms:
            self.turn(dict(poller.poll(SEE_OFF_MS // 10)), self._clock.mono_ms())


def reachable(endpoint: str) -> str:
    """Where a listener can be reached from its own machine."""
    return endpoint.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _monitor(context: Context, router: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """Tells what comes and goes. Without a mark: at one libzmq's thread would wait for us."""
    name = f"inproc://monitor-{id(router)}"
    router.monitor(name, _ACCEPTED | _ENDED | _FAILED | _REFUSED)
    socket = context.socket(zmq.PAIR)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.connect(name)
    return socket
