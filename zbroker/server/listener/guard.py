"""Which connections of a listener are cut: pure, from what the kernel says of each.

    accepted --logged_on--> inside          waiting: a deadline, and a bound on what it says
        ^-------forget--------'             inside: a bound on what it said that was not read yet

A connection has no routing id before its first message, so it is known by its descriptor. Looking
at one costs a system call. So they are looked at in rounds, a few per turn, and only after the
threads of libzmq have worked: bytes that were not received take no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from zbroker.limits import KIB, MIB

LOGON_MS: Final = 10_000  # from the connection to the logon, or from one session to the next
SHAKING_MAX_BYTES: Final = 16 * KIB  # a handshake has less than 1 KiB; metadata may add to it
WAITING_MAX_BYTES: Final = 256 * KIB  # before the logon; a logon and what was sent along with it
#: of all that wait; every share is at least SHAKING_MAX_BYTES. Frames of two bytes take 64 each
WAITING_TOTAL_BYTES: Final = 8 * MIB
HEADER_SPARE_BYTES: Final = 7  # a frame's length may take 8 bytes where one would do
UNREAD_FRAMES_MAX: Final = 1 << 20  # of one that is logged on; as above, some 64 MiB
FRAMES_MIN: Final = 1_000  # read since the last look: what waits is taken to be like so many
ROUND_MAX: Final = 256  # connections of one turn; bounds how long clients wait for it
HEARTBEATS_BYTES_S: Final = 512  # PING and PONG are received but never read


class RoundPace(NamedTuple):
    """The time between rounds; bytes that arrive in between are not bounded.

    `work`: of libzmq's threads. In a millisecond of it they receive a few megabytes at most.
    """

    every_ms: int
    every_each_us: int  # more for each connection: rounds take a fifth of the time or so
    work_us: int
    work_each_us: int  # more for each connection: heartbeats are work, too


WAITING: Final = RoundPace(every_ms=20, every_each_us=20, work_us=1_000, work_each_us=0)
INSIDE: Final = RoundPace(every_ms=100, every_each_us=50, work_us=10_000, work_each_us=50)

Why = Literal["handshakes", "silent", "unread", "over_limit"]


class TcpCounters(NamedTuple):
    """What the kernel counted for one connection, in bytes of its stream."""

    received: int
    acked: int  # sent by us, and confirmed by the peer's kernel


class ConnectionLimits(NamedTuple):
    """The limits of one listener."""

    connections: int
    unread_bytes: int
    shaken_bytes: int  # a peer that has confirmed as many has our side of the handshake


class Cut(NamedTuple):
    """A connection that has to end, and why."""

    fd: int
    why: Why


class GuardedConnection(Struct, eq=False):
    """One connection as it was last looked at."""

    fd: int
    since_ms: int  # accepted, or logged off
    looked_ms: int  # when `unread` was counted
    rid: bytes = b""  # once it has said something
    base: int = 0  # received when it began to wait; -1 until that was looked at
    received: int = 0  # counted in `unread`
    read: int = 0  # not yet counted in `unread`
    frames: int = 0  # in `read`
    unread: int = 0


class ConnectionGuard:
    """All connections of one listener."""

    def __init__(self, bounds: ConnectionLimits) -> None:
        self._bounds = bounds
        self._drained = False
        self.by_rid: dict[bytes, GuardedConnection] = {}
        self._by_fd: dict[int, GuardedConnection] = {}
        self._waiting: dict[int, GuardedConnection] = {}  # the longest first
        self._inside: dict[int, GuardedConnection] = {}
        self._rounds = (
            _Round(self._waiting, self._judge_waiting, WAITING),
            _Round(self._inside, self._judge_inside, INSIDE),
        )

    def __len__(self) -> int:
        """How many connections there are."""
        return len(self._by_fd)

    # -- what happened ------------------------------------------------------------------------

    def accepted(self, fd: int, now_ms: int) -> list[Cut]:
        """A new connection. Over the limit the one that waits longest goes, maybe the new one.

        A real client logs on within milliseconds, so a crowd that only waits does not keep it out.
        """
        self.closed(fd)  # a descriptor that comes again: the connection before it has ended
        self._by_fd[fd] = self._waiting[fd] = GuardedConnection(fd, now_ms, now_ms)
        if len(self._by_fd) <= self._bounds.connections:
            return []
        return [self._cut(next(iter(self._waiting.values())), "over_limit")]

    def closed(self, fd: int) -> None:
        """A connection that has ended, or will not be looked at any more."""
        connection = self._by_fd.pop(fd, None)
        if connection is not None:
            self._waiting.pop(fd, None)
            self._inside.pop(fd, None)
            if self.by_rid.get(connection.rid) is connection:
                del self.by_rid[connection.rid]

    def meet(self, rid: bytes, fd: int, now_ms: int) -> GuardedConnection | None:
        """The connection of a peer that is not in `by_rid`; None if it has ended."""
        connection = self._by_fd.get(fd)
        if connection is None:
            return None
        if connection.rid:  # taken for its predecessor, of which messages were still waiting
            del self.by_rid[connection.rid]
            self.forget(connection, now_ms)
        connection.rid = rid
        self.by_rid[rid] = connection
        return connection

    def logged_on(self, connection: GuardedConnection) -> None:
        """It has a session now: no deadline any more."""
        if self._waiting.pop(connection.fd, None) is not None:
            self._inside[connection.fd] = connection

    def forget(self, connection: GuardedConnection, now_ms: int) -> None:
        """Its session has ended, if it had one; it may log on again as if it came now."""
        if self._inside.pop(connection.fd, None) is not None:
            connection.since_ms, connection.base = now_ms, -1
            self._waiting[connection.fd] = connection

    # -- looking ------------------------------------------------------------------------------

    def wake_ms(self) -> int | None:
        """When to check again; None without connections."""
        due = [each.due_ms for each in self._rounds if each.members]
        return min(due) if due else None

    def look(
        self, now_ms: int, worked_us: Callable[[], int], flow: Callable[[int], TcpCounters | None],
        *, drained: bool,
    ) -> list[Cut]:  # fmt: skip
        """The connections to cut now. Checks at most ROUND_MAX connections of each kind.

        worked_us: how long the threads that receive have worked since they began. flow: the counts
        of a descriptor; None if it is no longer a connection. drained: no message waits.
        """
        self._drained = drained
        cuts = self._late(now_ms)
        for each in self._rounds:
            for connection in each.some(now_ms, worked_us):
                counters = flow(connection.fd)
                why = each.judge(connection, counters, now_ms) if counters is not None else None
                if why is not None:
                    cuts.append(self._cut(connection, why))
        return cuts

    def _late(self, now_ms: int) -> list[Cut]:
        """Those that wait for too long, ROUND_MAX at most."""
        late: list[GuardedConnection] = []
        for connection in self._waiting.values():
            if now_ms - connection.since_ms < LOGON_MS or len(late) == ROUND_MAX:
                break
            late.append(connection)
        return [self._cut(connection, "silent") for connection in late]

    def _judge_waiting(
        self, connection: GuardedConnection, flow: TcpCounters, now_ms: int
    ) -> Why | None:
        if connection.base < 0:
            connection.base = flow.received
        said = flow.received - connection.base
        if not connection.rid and flow.acked < self._bounds.shaken_bytes:
            return "handshakes" if said > SHAKING_MAX_BYTES else None
        share = WAITING_TOTAL_BYTES // len(self._waiting)
        return "silent" if said > max(SHAKING_MAX_BYTES, min(WAITING_MAX_BYTES, share)) else None

    def _judge_inside(
        self, connection: GuardedConnection, flow: TcpCounters, now_ms: int
    ) -> Why | None:
        """Never below zero: a too high estimate for messages is not a credit for later."""
        came = flow.received - connection.received - connection.read
        if self._drained:  # and a too low one, of frames with longer headers, does not add up
            came -= connection.frames * HEADER_SPARE_BYTES
        heartbeats = HEARTBEATS_BYTES_S * (now_ms - connection.looked_ms) // 1_000
        connection.unread = max(0, connection.unread + came - heartbeats)
        most: float = self._bounds.unread_bytes
        if connection.frames >= FRAMES_MIN:
            most = min(most, UNREAD_FRAMES_MAX * connection.read / connection.frames)
        connection.received, connection.read, connection.frames = flow.received, 0, 0
        connection.looked_ms = now_ms
        return "unread" if connection.unread > most else None

    def _cut(self, connection: GuardedConnection, why: Why) -> Cut:
        self.closed(connection.fd)
        return Cut(connection.fd, why)

    def check(self) -> None:
        """Asserts what is always true."""
        assert not self._waiting.keys() & self._inside.keys()
        assert self._by_fd == {**self._waiting, **self._inside}
        assert len(self) <= self._bounds.connections
        assert all(each.fd == fd for fd, each in self._by_fd.items())
        since = [each.since_ms for each in self._waiting.values()]
        assert since == sorted(since), "the longest first"
        named = {each.rid: each for each in self._by_fd.values() if each.rid}
        assert self.by_rid == named


class _Round:
    """Goes through all members, a few at a time, then waits a while. due_ms: for the next ones."""

    def __init__(
        self,
        members: dict[int, GuardedConnection],
        judge: Callable[[GuardedConnection, TcpCounters, int], Why | None],
        pace: RoundPace,
    ) -> None:
        self.members = members
        self.judge = judge
        self._pace = pace
        self._left: list[GuardedConnection] = []
        self._begins_ms = self.due_ms = 0
        self._worked_us = 0

    def some(self, now_ms: int, worked_us: Callable[[], int]) -> list[GuardedConnection]:
        """The next members, ROUND_MAX at most."""
        if not self._left and self.members and now_ms >= self._begins_ms:
            self._begin(now_ms, worked_us())
        taken = self._left[-ROUND_MAX:]
        del self._left[-ROUND_MAX:]
        self.due_ms = 0 if self._left else self._begins_ms
        return [each for each in taken if self.members.get(each.fd) is each]

    def _begin(self, now_ms: int, worked_us: int) -> None:
        pace, count = self._pace, len(self.members)
        self._begins_ms = now_ms + max(pace.every_ms, count * pace.every_each_us // 1_000)
        if worked_us - self._worked_us >= pace.work_us + count * pace.work_each_us:
            self._worked_us = worked_us
            self._left = list(self.members.values())
