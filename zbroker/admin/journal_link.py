"""The admin's socket to the journal: any thread asks, the loop's sends and hands out answers.

    down --Welcome--> up --the connection ended, or no answer in time--> down (new socket, Hello)

A socket to a journal that died is thrown away: ZeroMQ would hand what is queued in it to the next
journal. Its end is seen by the socket's monitor; subscribing to the watermarks would wake this
process at every commit. A question without an answer then fails with not_ready, and the caller
decides whether to ask again: a Remove or Retire that was done is found done.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import zmq
from msgspec import Struct

from zbroker import durable_files, sockets
from zbroker.clock import Clock
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.journal_session import WELCOME_WAIT_MS, WELCOME_WAITS
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import internal as m

ASK_WAIT_S: Final = 3.0  # the journal answers in one turn, after a sync that may be slow

Context = zmq.Context[zmq.Socket[bytes]]
Answer = m.Holders | m.Removal | m.Done
A = TypeVar("A", m.Holders, m.Removal, m.Done)


class _Ask(NamedTuple):
    """A question: its incarnation and number are filled in when it is sent."""

    kind: Any
    fields: dict[str, Any]
    future: Future[Answer]


class AdminJournalLink:
    """A source of the admin's turn, without events: any thread calls `send` and `ask`."""

    drained = True

    def __init__(
        self, context: Context, endpoint: str, incarnation: int, poller: zmq.Poller, clock: Clock
    ) -> None:
        self._context = context
        self._endpoint = endpoint
        self._mine = incarnation
        self._poller, self._clock = poller, clock
        self._lock = threading.Lock()
        self._unsent: deque[_Ask] = deque()
        self._asked: dict[int, Future[Answer]] = {}
        self._cids = itertools.count(1)
        self._closed = False
        self._waits = 1  # as in JournalSession
        self.welcome: m.Welcome | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        poller.register(self._wake, zmq.POLLIN)
        self._open()

    # -- from any thread ----------------------------------------------------------------------

    def send(self, kind: type[m.InternalMessage], **fields: object) -> Future[Answer]:
        """Asks; `fields` are those of the message besides cid and incarnation."""
        future: Future[Answer] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(_not_ready("the admin is stopping"))
                return future
            self._unsent.append(_Ask(kind, fields, future))
            os.eventfd_write(self._wake, 1)
        return future

    def ask(
        self,
        answer: type[A],
        kind: type[m.InternalMessage],
        wait_s: float = ASK_WAIT_S,
        **fields: object,
    ) -> A:
        """Asks and waits. Raises: ClientError not_ready."""
        future = self.send(kind, **fields)
        try:
            found = future.result(wait_s)
        except TimeoutError:
            self._give_up(future)
            raise _not_ready(f"the journal did not answer in {wait_s:g} s") from None
        assert isinstance(found, answer)
        return found

    def _give_up(self, future: Future[Answer]) -> None:
        future.cancel()
        with self._lock:
            self._unsent = deque(ask for ask in self._unsent if ask.future is not future)

    # -- the loop's thread --------------------------------------------------------------------

    def events(self, ready: Ready, limit: Limit) -> tuple[()]:
        """Sends questions and hands answers to those who wait; connects again after an end."""
        self._receive()
        if self._ended():
            self._again("the journal ended before it answered")
        elif self.welcome is None and self._clock.mono_ms() >= self._again_ms:
            self._again("the journal does not answer")
        with suppress(BlockingIOError):  # there is no question
            os.eventfd_read(self._wake)
        self._flush()
        return ()

    def next_wake_ms(self) -> int | None:
        """When a journal that says nothing is tried again."""
        return self._again_ms if self.welcome is None else None

    def _receive(self) -> None:
        while (frames := sockets.receive(self._dealer)) is not None:
            message = codec.FROM_JOURNAL.decode(frames[0].buffer)
            if isinstance(message, m.Welcome):
                if message.echo == self._mine:
                    self.welcome, self._waits = message, 1
            elif isinstance(message, m.UnknownRequester):
                self._again("the journal did not take it")
                return
            elif isinstance(message, m.Holders | m.Removal | m.Done):
                future = self._asked.pop(message.cid, None)
                if future is not None and future.set_running_or_notify_cancel():
                    future.set_result(message)

    def _flush(self) -> None:
        if self.welcome is None:
            return
        while True:
            with self._lock:
                if not self._unsent:
                    return
                ask = self._unsent.popleft()
            if ask.future.cancelled():
                continue
            cid = next(self._cids)
            message = ask.kind(cid, self.welcome.incarnation, **ask.fields)
            self._asked[cid] = ask.future
            self._dealer.send(codec.encode(message), zmq.NOBLOCK)

    def _ended(self) -> bool:
        """True if the connection broke: a process that ends closes it."""
        ended = False
        while self._monitor.poll(0):
            self._monitor.recv_multipart()  # it tells of nothing else
            ended = True
        return ended

    def _again(self, why: str) -> None:
        self.welcome = None
        self._shut()
        self._fail(list(self._asked.values()), why)
        self._asked.clear()
        self._open()

    def _fail(self, futures: list[Future[Answer]], why: str) -> None:
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(_not_ready(why))

    def _open(self) -> None:
        self._again_ms = self._clock.mono_ms() + self._waits * WELCOME_WAIT_MS
        self._waits = min(WELCOME_WAITS, 2 * self._waits)
        self._dealer = sockets.dealer(self._context, self._endpoint)
        self._monitor = self._dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._poller.register(self._dealer, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._dealer.send(codec.encode(m.Hello("admin", self._mine)), zmq.NOBLOCK)

    def _shut(self) -> None:
        self._poller.unregister(self._dealer)
        self._poller.unregister(self._monitor)
        self._dealer.disable_monitor()
        self._monitor.close(linger=0)
        self._dealer.close(linger=0)

    def close(self) -> None:
        """Every question fails from now on."""
        with self._lock:
            self._closed = True
            waiting = [ask.future for ask in self._unsent]
            self._unsent.clear()
        self._fail([*waiting, *self._asked.values()], "the admin is stopping")
        self._asked.clear()
        self._shut()
        self._poller.unregister(self._wake)
        os.close(self._wake)


def _not_ready(reason: str) -> ClientError:
    return ClientError("not_ready", reason, "it is starting or restarting: try again")


class HoldLease(Struct, frozen=True):
    """A reader, the part of the log that it needs, and until when (wall clock)."""

    until_ms: int
    holding: m.Holding


class HoldLeases:
    """Parts of the log that exports and backups keep without reading them through the broker.

    The journal keeps leases as long as it lives. Here they outlive it, in <data>/run/leases.json:
    each journal process gets all of them before it is asked to remove anything. Thread-safe.
    """

    def __init__(self, path: Path, clock: Clock, log: logging.Logger) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._informed = 0  # the incarnation of the journal that knows all of them
        self._leases = self._load()

    def _load(self) -> dict[str, HoldLease]:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=dict[str, HoldLease])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._log.warning("leases of an earlier run are lost: %s; ask for them again", error)
            return {}
        return found

    def hold(self, link: AdminJournalLink, holding: m.Holding, ttl_s: int) -> None:
        """Begins, renews or (ttl_s 0) ends one. Raises: ClientError."""
        with self._lock:
            done = link.ask(m.Done, m.Lease, holding=holding, ttl_ms=ttl_s * 1_000)
            if done.code:
                raise ClientError(done.code, done.reason)
            self._leases.pop(holding.who, None)
            if ttl_s:
                until_ms = self._now_ms() + ttl_s * 1_000
                self._leases[holding.who] = HoldLease(until_ms, holding)
            self._forget_ended()
            self._save()

    def secure(self, link: AdminJournalLink) -> None:
        """Sees to it that the journal that runs now knows all of them. Raises: ClientError."""
        with self._lock:
            welcome = link.welcome
            if welcome is None:
                raise ClientError("not_ready", "the journal is not there", "try again")
            self._forget_ended()
            if welcome.incarnation == self._informed:
                return
            for who, lease in list(self._leases.items()):
                ttl_ms = lease.until_ms - self._now_ms()
                done = link.ask(m.Done, m.Lease, holding=lease.holding, ttl_ms=ttl_ms)
                if done.code:
                    self._log.error("the lease of %s is void: %s", who, done.reason)
                    del self._leases[who]
            if link.welcome is welcome:
                self._informed = welcome.incarnation

    def _forget_ended(self) -> None:
        now_ms = self._now_ms()
        self._leases = {w: lease for w, lease in self._leases.items() if lease.until_ms > now_ms}

    def _now_ms(self) -> int:
        return self._clock.wall_ns() // 1_000_000

    def _save(self) -> None:
        """Losing it in a power cut costs what it did before there was a file: ask again."""
        try:
            durable_files.replace(self._path, msgspec.json.encode(self._leases))
        except OSError as error:
            self._log.warning("leases cannot be kept over a restart: %s", error)
