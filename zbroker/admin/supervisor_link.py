"""The admin's questions to the supervisor: how every process is."""

from __future__ import annotations

import threading
from typing import Final

import zmq

from zbroker import sockets
from zbroker.clock import Clock
from zbroker.wire import codec
from zbroker.wire import internal as m

STATUS_MAX_MS: Final = 2_000  # the supervisor answers in one turn


class SupervisorLink:
    """Asks the supervisor, one request at a time, from any thread."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, clock: Clock
    ) -> None:
        self._lock = threading.Lock()
        self._dealer = sockets.dealer(context, endpoint)
        self._clock = clock
        self._cid = 0

    def status(self) -> m.Status | None:
        """What it knows, or None when it does not answer in time."""
        with self._lock:
            if self._dealer.closed:
                return None
            self._cid += 1
            self._dealer.send(codec.encode(m.AskStatus(self._cid)))
            deadline_ms = self._clock.mono_ms() + STATUS_MAX_MS
            while (left_ms := deadline_ms - self._clock.mono_ms()) > 0:
                if not self._dealer.poll(left_ms):
                    return None
                frames = sockets.receive(self._dealer)
                answer = codec.FROM_SUPERVISOR.decode(frames[0].buffer) if frames else None
                if isinstance(answer, m.Status) and answer.cid == self._cid:
                    return answer
            return None

    def close(self) -> None:
        """Waits for a request that is under way."""
        with self._lock:
            self._dealer.close(linger=0)
