"""The public listener of a process: its socket, its keys, and the access rules as they are now.

The rules (`security.access`) are read again when the file changes; a client that is no longer
permitted is disconnected within a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import zmq

from zbroker import sockets
from zbroker.access.file import AccessFile
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.effects import Answer, LoggedOff, LoggedOn, Send
from zbroker.engine.events import Full, Gone, Unauthenticated
from zbroker.limits import KIB
from zbroker.server.listener.listener import Listener
from zbroker.server.process import Process, Stats
from zbroker.server.security import server_curve
from zbroker.wire import codec

UNREAD_SLACK_BYTES: Final = 64 * KIB


def access_file(process: Process) -> AccessFile:
    """The rules of this instance. Raises: ConfigError, if there should be some and are none."""
    path = process.config.security.access
    return AccessFile(Path(path) if path else None, process.clock, process.log)


class PublicListener:
    """Connections that come and go, and what they are sent. Raises: ConfigError.

    A source of a turn; CommandsPort reads what clients send, RulesPort the access rules.
    """

    drained = True

    def __init__(
        self, process: Process, poller: zmq.Poller, *, frame_bytes: int, sndhwm: int
    ) -> None:
        self._clock, self.rules = process.clock, access_file(process)
        self._secure = process.config.security.on
        limits = process.config.limits
        self.connections = Listener(
            process.context, process.listen, frame_bytes=frame_bytes, sndhwm=sndhwm,
            unread_bytes=limits.window_bytes + frame_bytes + UNREAD_SLACK_BYTES,
            connections=limits.connections, curve=server_curve(process.config),
            allowed=lambda key: bool(self.rules.access.principals_of(key)),
            clock=process.clock, log=process.log,
        )  # fmt: skip
        process.before_end.append(self.connections.release)
        self.connections.register(poller)
        self.next_wake_ms = self.connections.wake_ms
        self._heap = process.heap

    def events(self, ready: Ready, limit: Limit) -> list[Unauthenticated]:
        """Connections that were refused because no principal has their key."""
        now_ms, connections = self._clock.mono_ms(), self.connections
        connections.turn(ready, now_ms)
        self._heap.connections(connections.ended, now_ms)
        return [Unauthenticated(key, host) for key, host in connections.strangers()]

    def send(self, effect: Send) -> Gone | None:
        """One message to one peer."""
        return None if self.sent(effect) else Gone(effect.rid)

    def sent(self, send: Send) -> bool:
        """Sends it. False if the peer is not connected any more."""
        return sockets.send_to(self.connections.router, send.rid, send.header, send.body)

    def answer(self, effect: Answer) -> Gone | Full | None:
        """One message to one peer, unless its queue is full."""
        try:
            sockets.deliver(self.connections.router, effect.rid, codec.encode(effect.message))
        except zmq.Again:
            return Full(effect.rid, effect)
        except zmq.ZMQError:
            return Gone(effect.rid)
        return None

    def logged_on(self, effect: LoggedOn) -> None:
        """This connection stays open."""
        self.connections.logged_on(effect.rid)

    def logged_off(self, effect: LoggedOff) -> None:
        """This one is cut if no client logs on with it."""
        self.connections.forget(effect.rid)

    def stats(self) -> Stats:
        """The connections, and which rules are used."""
        stats: Stats = dict(self.connections.counts)
        if self._secure:
            stats["access_version"], stats["access_problem"] = (
                self.rules.version,
                self.rules.problem,
            )
        return stats
