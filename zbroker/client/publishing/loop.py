"""The I/O thread of one client: everything between `publish()` and the ingest door.

Application threads append receipts to `inbox` and wake the thread when they find it longer than
`wake_at`; no lock is taken. The thread takes `inbox[:n]`, then deletes as many: appends of other
threads in between stay. Before it sleeps it sets `wake_at` and looks at the inbox once more, so a
message is either seen by it or followed by a wake-up.

Sockets: a DEALER to ingest with its monitor. Known weakness: the thread shares the interpreter
lock; when the application computes in pure Python a message may wait for some milliseconds
(`sys.setswitchinterval` shortens that).
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import zmq
from msgspec import Struct

from zbroker.client import effects as e
from zbroker.client.link import CLOSE_LINGER_MS, Context, Link
from zbroker.client.publishing import packing
from zbroker.client.publishing.core import Core, State
from zbroker.client.publishing.receipt import Receipt, Track
from zbroker.clock import Clock, SystemClock
from zbroker.errors import ZBrokerError
from zbroker.limits import MESSAGE_MAX_BYTES
from zbroker.wire.messages import Ack, Logon

NEVER: Final = 1 << 62
POLL_MAX_MS: Final = 1_000  # so that even a wake-up that was lost to an interrupt is made up for
TURN_BATCHES: Final = 16  # then acks are read: they free the window
TOKEN_EVERY_MS: Final = 1_000  # a logon costs the publisher a round
SMALL_BYTES: Final = 1_024  # larger messages are counted one by one before they are queued
INBOX_MESSAGES: Final = 16_384

_log: Final = logging.getLogger("zbroker.client")


class Session(Struct):
    """What the newest logon said, for who opens other doors; `number` counts the logons."""

    number: int
    answer: Ack


class Request(Struct, eq=False):
    """Something an application thread wants done; `done` is set once it is."""

    kind: str
    done: threading.Event
    result: int = 0


class Publisher:
    """The thread, its inbox and its link. Attributes without underscore are read by all threads."""

    def __init__(
        self,
        url: str,
        logon: Logon,
        publisher: int,
        store_bytes: int,
        on_refused: Callable[[ZBrokerError], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.context: Context = zmq.Context()
        self.track = Track(publisher)
        self.inbox: list[Receipt] = []
        self.inbox_max = max(16, min(INBOX_MESSAGES, store_bytes // (4 * SMALL_BYTES)))
        self.room = 0  # how long the inbox may get; 0 before the logon, when full and when ended
        self.wake_at = NEVER
        self.taken_large = 0  # bytes of larger messages taken out of the inbox so far
        self.stored_bytes = 0
        self.unsettled = 0  # messages taken out of the inbox and not settled
        self.message_max = MESSAGE_MAX_BYTES
        self.batch_max = packing.BATCH_BYTES
        self.session: Session | None = None
        self.store_bytes = store_bytes
        self._url = url
        self._clock = clock or SystemClock()
        self._core = Core(logon, self._clock.wall_ns(), random.Random().random)
        self._on_refused = on_refused
        self._requests: deque[Request] = deque()
        self._link: Link | None = None
        self._poller = zmq.Poller()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._asked_ms = -TOKEN_EVERY_MS
        self.track.ask_numbers = self._ask_numbers
        self.track.last_refusal = self._last_refusal
        self.track.unrecorded = self._core.unrecorded
        self._thread = threading.Thread(
            target=self._run, name=f"zbroker {logon.client}", daemon=True
        )

    # -- called by application threads --------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Ends the thread's sleep. NEVER comes first: then the thread sets `wake_at` again."""
        self.wake_at = NEVER
        os.eventfd_write(self._wake_fd, 1)

    def ask(self, kind: str, timeout: float | None = 10.0) -> int:
        """Has the thread do something: `numbers` packs what is queued and tells the last number.

        Raises: ZBrokerError timeout, or what ended the client.
        """
        request = Request(kind, threading.Event())
        self._requests.append(request)
        self.wake()
        # with an error the thread may be gone, and nobody looks at requests any more
        if self.track.error is None and not request.done.wait(timeout):
            raise ZBrokerError("timeout", f"the I/O thread did not answer in {timeout} s")
        if self.track.error is not None:
            raise self.track.error
        return request.result

    def _ask_numbers(self) -> None:
        self.ask("numbers")

    def newer_session(self, than: int) -> Session | None:
        """The newest session if its number is above `than`, else None; asks for one then."""
        session = self.session
        if session is not None and session.number > than:
            return session
        now_ms = self._clock.mono_ms()
        if now_ms >= self._asked_ms + TOKEN_EVERY_MS:
            self._asked_ms = now_ms
            self._requests.append(Request("token", threading.Event()))
            self.wake()
        return None

    def stop(self, timeout: float = 2.0) -> None:
        """Logs off and ends the thread; what is not persisted is given up."""
        if self._thread.is_alive():
            self._stopping = True
            self.wake()
            self._thread.join(timeout)

    def __del__(self) -> None:
        os.close(self._wake_fd)  # not before: another thread may still write to it

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._poller.register(self._wake_fd, zmq.POLLIN)
            while not self._stopping:
                self._turn()
            self._perform(self._core.log_off())
        except Exception as error:  # a bug of ours: nobody may wait for a thread that is gone
            _log.exception("client.thread_failed: what is not persisted stays unsent")
            self._fail(ZBrokerError("internal", f"the I/O thread of this client failed: {error!r}"))
        finally:
            self._fail(self.track.error or ZBrokerError("closed", "this client is closed"))
            if self._link is not None:
                self._link.close(CLOSE_LINGER_MS)
            self.context.term()

    def _turn(self) -> None:
        """One round: what time demands, what was asked, what is queued; then sleep and read."""
        self._perform(self._core.tick(self._clock.mono_ms()))
        while self._requests:
            self._serve(self._requests.popleft())
        self._pack()
        self._publish_state()
        ready = self._sleep()
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        if self._link is not None:
            self._read(self._link, ready)

    def _sleep(self) -> set[object]:
        """Polls until something happens, unless enough was queued meanwhile."""
        wake_ms = self._core.next_wake_ms()
        timeout = POLL_MAX_MS
        if wake_ms is not None:
            timeout = max(0, min(timeout, wake_ms - self._clock.mono_ms()))
        self.wake_at = 1 if self._core.can_send else self._full_batch
        if len(self.inbox) >= self.wake_at or self._requests or self._stopping:
            timeout = 0
        events = self._poller.poll(timeout)
        self.wake_at = NEVER
        return {source for source, _ in events}

    @property
    def _full_batch(self) -> int:
        """While nothing can be sent, packing waits for as much: fewer, larger batches."""
        return min(packing.BATCH_MESSAGES, self.inbox_max // 2)

    def _serve(self, request: Request) -> None:
        if request.kind == "token":
            self._perform(self._core.log_on_again(self._clock.mono_ms()))
        else:
            while self.inbox and self.session is not None:
                self._take()
            request.result = self._core.next_sequence - 1
        request.done.set()

    def _pack(self) -> None:
        """Takes messages while they can be sent, or make full batches."""
        for _ in range(TURN_BATCHES):
            waiting = len(self.inbox)
            if not waiting or (waiting < self._full_batch and not self._core.can_send):
                return
            self._take()

    def _take(self) -> None:
        """Packs, numbers and sends up to a batch of messages. No lock: see the page's docstring."""
        items = self.inbox[: packing.BATCH_MESSAGES]
        self.unsettled += len(items)
        del self.inbox[: len(items)]
        rows = packing.rows(items)
        for run in packing.split(rows, self.batch_max):
            batch = packing.pack(run)
            effects = self._core.add(batch, self._clock.mono_ms())
            number = batch.first
            for receipt in run.items:
                receipt.value = number
                number += 1
            self._perform(effects)
        self.stored_bytes = self._core.store.bytes
        if max(rows.sizes) > SMALL_BYTES:
            self.taken_large += sum(size for size in rows.sizes if size > SMALL_BYTES)

    def _read(self, link: Link, ready: set[object]) -> None:
        """Handles what the broker sent and what became of the connection, until it is replaced."""
        if link.socket in ready:
            while self._link is link and (received := link.receive()) is not None:
                self._handle(received[0])
                self._publish_state()  # at once: somebody may wait for this ack
        if link.monitor in ready and self._link is link:
            for event in link.events():
                if self._link is link:
                    self._handle(event)

    def _handle(self, event: e.Event) -> None:
        self._perform(self._core.handle(event, self._clock.mono_ms()))

    def _publish_state(self) -> None:
        """Tells the application threads how far it is and how much room there is."""
        store, track = self._core.store, self.track
        self.stored_bytes, self.unsettled = store.bytes, store.messages
        if self._core.state is not State.ENDED and self.session is not None:
            track.settled = self._core.settled
            self.room = self.inbox_max if store.bytes < self.store_bytes * 3 // 4 else 0
        track.changed()

    # -- effects ------------------------------------------------------------------------------

    def _perform(self, effects: list[e.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, e.Send):
                if self._link is not None:
                    self._link.send(effect.command, effect.body)
            elif isinstance(effect, e.Connect):
                self._connect()
            elif isinstance(effect, e.LoggedOn):
                self._logged_on(effect.answer)
            elif isinstance(effect, e.Refused):
                self._refused(effect)
            else:
                self._fail(effect.error)

    def _connect(self) -> None:
        if self._link is not None:
            self._poller.unregister(self._link.socket)
            self._poller.unregister(self._link.monitor)
            self._link.close()
        self._link = Link(self.context, self._url)
        self._poller.register(self._link.socket, zmq.POLLIN)
        self._poller.register(self._link.monitor, zmq.POLLIN)

    def _logged_on(self, answer: Ack) -> None:
        self.message_max = answer.max_message_bytes or self.message_max
        self.batch_max = min(packing.BATCH_BYTES, answer.max_batch_bytes or packing.BATCH_BYTES)
        self.session = Session(self.session.number + 1 if self.session else 1, answer)

    def _refused(self, effect: e.Refused) -> None:
        self.track.refuse(effect.first, effect.last, effect.error)
        _log.warning(
            "client.refused: messages %d to %d are given up: %s",
            effect.first,
            effect.last,
            effect.error,
        )
        if self._on_refused is not None:
            try:
                self._on_refused(effect.error)
            except Exception:
                _log.exception("client.on_refused_failed: publishing goes on")

    def _fail(self, error: ZBrokerError) -> None:
        """Nothing more is published: tells everybody who waits or will ask."""
        self.track.error, self.room = error, -1
        while self._requests:
            self._requests.popleft().done.set()
        self.track.changed()

    def _last_refusal(self) -> str:
        refusal = self._core.refusal
        return f"{refusal.code}: {refusal.reason}" if refusal else ""
