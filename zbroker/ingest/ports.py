"""Sources and performers of the ingest process that it shares with no other: see server.ports."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import zmq

from zbroker import cpus, sockets
from zbroker.access import passwords
from zbroker.engine.contract import Ready
from zbroker.engine.effects import Reconnect, Say
from zbroker.ingest.clients import missing
from zbroker.ingest.contract import EndpointsRead, Granted, Verified, Verify
from zbroker.paths import Paths
from zbroker.server import ports
from zbroker.server.process import Process
from zbroker.wire import codec


class LivePort:
    """A DEALER for each worker, by the name of its link, once it was connected.

    A new one takes the place of one in which frames for a dead process may be queued.
    """

    drained = True  # all of it is read in each turn: grants are few
    next_wake_ms = None

    def __init__(
        self, context: ports.Context, paths: Paths, poller: zmq.Poller, links: Sequence[str]
    ) -> None:
        self._context, self._poller = context, poller
        self._links = {link: paths.ipc(link) for link in links}
        self._dealers: dict[str, zmq.Socket[bytes]] = {}

    def events(self, ready: Ready, limit: object) -> Iterable[Granted]:
        """All grants that wait."""
        return self._granted(ready) if self._dealers else ()

    def _granted(self, ready: Ready) -> Iterator[Granted]:
        for worker, link in enumerate(self._links):
            dealer = self._dealers.get(link)
            if dealer is None or dealer not in ready:
                continue
            while (frames := sockets.receive(dealer)) is not None:
                yield Granted(worker, codec.FROM_LIVE.decode(frames[0].buffer))

    def say(self, effect: Say) -> None:
        """Sends a message with its bodies."""
        ports.say(self._dealers[effect.link], effect)

    def reconnect(self, effect: Reconnect) -> None:
        """Replaces the socket; frames that are queued in the old one are dropped."""
        old = self._dealers.pop(effect.link, None)
        if old is not None:
            self._poller.unregister(old)
            old.close(linger=0)
        new = sockets.dealer(self._context, self._links[effect.link])
        self._poller.register(new, zmq.POLLIN)
        self._dealers[effect.link] = new


class PasswordPort:
    """One thread. A source of a turn: `fd` can be read when there are answers."""

    drained = True
    next_wake_ms = None

    def __init__(self, poller: zmq.Poller) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pool = ThreadPoolExecutor(1, "passwords", cpus.initializer())
        self._answers: deque[Verified] = deque()
        poller.register(self.fd, zmq.POLLIN)

    def verify(self, effect: Verify) -> None:
        """Begins to look; the answer comes later."""
        self._pool.submit(self._look, effect)

    def events(self, ready: Ready, limit: object) -> Iterable[Verified]:
        """The passwords that were checked since the last call."""
        if self.fd not in ready:
            return ()
        os.eventfd_read(self.fd)
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def _look(self, verify: Verify) -> None:
        good = False
        try:
            good = passwords.verify(verify.password, verify.hashed)
        finally:
            self._answers.append(Verified(verify.number, good))
            os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Waits for the one that is looked at."""
        self._pool.shutdown(cancel_futures=True)
        os.close(self.fd)


LOOK_MS: Final = 200  # how often it is looked at once all of them are known


class EndpointsFile:
    """A source of a turn: read again only when it changed.

    The supervisor keeps the endpoints of a process that is restarted, so all of them stay known.
    Until then it is read in each turn, before commands: a client that got the last endpoint may log
    on at once.
    """

    drained = True
    next_wake_ms = None  # only clients that log on wait for it

    def __init__(self, process: Process) -> None:
        self._process, self._path = process, process.paths.running
        self._stamp: int | None = None  # of the file, when it was read
        self._look_ms = self._every_ms = 0

    def events(self, ready: object, limit: object) -> Iterable[EndpointsRead]:
        """What the file says, if it says something new."""
        now_ms = self._process.clock.mono_ms()
        if now_ms < self._look_ms:
            return ()
        known = self._changed()
        if known is not None:
            left = missing(self._process.config, known) if self._process.supervised else []
            self._every_ms = 0 if left else LOOK_MS
        self._look_ms = now_ms + self._every_ms
        return () if known is None else (EndpointsRead(known, left),)

    def _changed(self) -> dict[str, str] | None:
        process, path = self._process, self._path
        try:
            stamp = path.stat().st_mtime_ns
            if stamp == self._stamp:
                return None
            known: dict[str, str] = msgspec.json.decode(path.read_bytes()).get("endpoints", {})
        except (OSError, msgspec.DecodeError):
            if self._stamp is not None:
                return None
            if not process.supervised:
                process.log.warning("%s cannot be read: logons name no other endpoints", path)
            self._stamp = 0
            return {}
        self._stamp = stamp
        return known
