"""delivery's socket for what is not recorded: takes it from ingest, and grants what may come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import zmq

from zbroker import sockets
from zbroker.delivery.live import Taking
from zbroker.limits import BEAT_MS, LIVE_CREDIT_BYTES, MIB
from zbroker.wire import codec
from zbroker.wire.internal import Entry, Hello, LiveCredit

TURN_BYTES: Final = 4 * MIB  # of one turn, at least one message; the rest waits for the next
GRANT_BYTES: Final = LIVE_CREDIT_BYTES // 4  # taken since the last grant: then it is time for one

Context = zmq.Context[zmq.Socket[bytes]]


class Taken(NamedTuple):
    """Batches and their bodies."""

    entries: list[Entry]
    bodies: list[bytes]


class LiveDoor:
    """A ROUTER for ingest at `endpoint`, registered in the loop's poller."""

    def __init__(
        self, context: Context, endpoint: str, incarnation: int, poller: zmq.Poller
    ) -> None:
        self.taken = 0  # messages
        self._taking = Taking(incarnation)
        self._ungranted = 0
        self._beat_ms = 0
        self._router = sockets.inner_router(context)
        self._router.bind(endpoint)
        poller.register(self._router, zmq.POLLIN)

    def read(self) -> Iterator[Taken]:
        """What waits, up to a limit; each is granted anew once the loop is done with it."""
        size = 0
        while size < TURN_BYTES:
            received = sockets.receive_from(self._router, frames_max=0)
            if received is None:
                return
            rid, frames, _ = received
            message = codec.TO_LIVE.decode(frames[0].buffer)
            if isinstance(message, Hello):
                self._say(rid, self._taking.hello(rid, message))
                continue
            bodies = [frame.bytes for frame in frames[1:]]
            one = sum(map(len, bodies))
            if not self._taking.takes(rid, message.incarnation, one):
                self._say(rid, self._taking.ask_hello())
                continue
            size += one
            self._ungranted += one
            self.taken += sum(entry.count for entry in message.entries)
            yield Taken(message.entries, bodies)
            if self._ungranted >= GRANT_BYTES:
                self._grant()

    def tick(self, now_ms: int, *, wanted: bool) -> None:
        """Grants on each beat, for ingest takes silence for death, and when `wanted` changes."""
        if self._taking.want(now_ms, wanted=wanted) or now_ms >= self._beat_ms:
            self._beat_ms = now_ms + BEAT_MS
            self._grant()

    def _grant(self) -> None:
        self._ungranted = 0
        if self._taking.requester is not None:
            self._say(self._taking.requester, self._taking.grant())

    def _say(self, rid: bytes, grant: LiveCredit) -> None:
        sockets.send_to(self._router, rid, codec.encode(grant))  # a lost one is made up by a beat
