"""The I/O thread of one consumer: everything between its messages and the queues door.

It reads what comes, whoever waits, and extends leases while the program works: so a handler may
take as long as it likes. What threads of the program settle piles up while it is busy and goes out
together in its next turn. The lock is held except while it sleeps; it alone touches the socket.

Sockets: a DEALER to the queues door with its monitor. Known weakness: it shares the interpreter
lock; a call into C that keeps it for longer than half a lease costs the leases.
"""

from __future__ import annotations

import logging
import os
import random
import select
import threading
import time as clock
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from zbroker.client import forks
from zbroker.client.connection import State
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import ACK, Verb
from zbroker.client.consumer.transport import Carrying
from zbroker.client.effects import Connect, Effect, Send
from zbroker.client.endpoints import Doors
from zbroker.client.link import CLOSE_LINGER_MS, Link
from zbroker.client.transport import now_ms
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import Consume

WAIT_MAX_MS: Final = 1_000
CLOSE_S: Final = 2.0  # for the thread to send what is left

T = TypeVar("T")

_log: Final = logging.getLogger("zbroker.client")


class Line(Carrying):
    """A consumer's connection, its link, and the thread."""

    def __init__(self, doors: Doors, command: Consume) -> None:
        self._doors = doors
        self.core = self._connection = ConsumerCore(
            command, self, random.Random().random, doors.heartbeat_s, doors.resubscribed
        )
        self.error: ZBrokerError | None = None
        self._link: Link | None = None
        self._session = 0
        self._begin_waiting()
        self._outbox: deque[Effect] = deque()
        self._halted = False  # nothing more is handed out
        self._asleep = self._woken = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = select.poll()
        self._poller.register(self._wake_fd, select.POLLIN)
        self._thread = threading.Thread(
            target=self._run, name=f"zbroker queue {command.queue}", daemon=True
        )
        forks.watch(self)
        doors.follow(self)

    def __del__(self) -> None:
        os.close(self._wake_fd)

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: what was read, and the socket, are the parent's."""
        self._begin_waiting()
        self._link = None
        self.core.state, self.core.error = State.ENDED, error
        self.core.held.clear()

    def _begin_waiting(self) -> None:
        """Two lines of waiting threads with one lock: for messages, and for answers."""
        self._lock = threading.RLock()  # its owner may take it again
        self._came = threading.Condition(self._lock)
        self._changed = threading.Condition(self._lock)

    # -- called by threads of the program -----------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def settle(self, verb: Verb, messages: Sequence[QueueMessage]) -> None:
        """Notes it, to be sent soon. Raises: ZBrokerError, what ended the consumer."""
        with self._lock:
            if self.error is not None:
                raise self.error
            if verb is not ACK or len(messages) > 1 or not self.core.ack_one(messages[0]):
                self.core.settle(verb, messages, now_ms())
            if self._asleep:
                self._wake()

    def take(self, most: int | None, end: float | None = None) -> list[QueueMessage] | None:
        """The next messages, up to `most` of those that came together.

        Empty if none came before the time `end`; None if nothing more is handed out.
        Raises: ZBrokerError, what ended the consumer.
        """
        with self._lock:
            while not self._halted:
                if self.core.ready:
                    messages, effects = self.core.hand_out(most, now_ms())
                    if effects:
                        self._outbox += effects
                        self._wake()
                    if messages:
                        return messages
                if self.over:
                    break
                left = None if end is None else end - clock.monotonic()
                if left is not None and left <= 0:
                    return []
                self._came.wait(left)
            error = self._what_ended_it()
            if error is not None and not self._halted:
                raise error
            return None

    def take_many(self, most: int, end: float | None) -> list[QueueMessage]:
        """The same over several batches, as far as they are there."""
        with self._lock:
            found = self.take(most, end) or []
            while 0 < len(found) < most and self.core.ready and not self._halted:
                messages, effects = self.core.hand_out(most - len(found), now_ms())
                self._outbox += effects
                found += messages
            self._wake()
            return found

    def look(self, at: Callable[[ConsumerCore], T]) -> T:
        """What `at` says of the core, while nobody changes it."""
        with self._lock:
            return at(self.core)

    def wait(self, done: Callable[[], object], timeout: float | None) -> bool:
        """Sleeps until `done()`, which is looked at when something came; False if it is not."""
        with self._lock:
            return bool(self._changed.wait_for(done, timeout))

    def halt(self) -> None:
        """Nothing more is handed out; what was, can still be settled."""
        with self._lock:
            self._halted = True
            self._came.notify_all()
            self._changed.notify_all()

    def close(self, timeout: float = CLOSE_S) -> None:
        """Sends what is left, gives back what is held, and ends the thread."""
        with self._lock:
            self._halted = True
            self._outbox += self.core.leave(now_ms())
            self._wake()
            self._came.notify_all()
            self._changed.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def client_ended(self, error: ZBrokerError) -> None:
        """The consumer ends with what ended the client, and whoever waits here is told."""
        with self._lock:
            self._outbox += self.core.leave(now_ms(), error)
            self._wake()
            self._came.notify_all()
            self._changed.notify_all()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        with self._lock:
            self._outbox += self.core.beat_each(interval_s)
            self._wake()

    def _wake(self) -> None:
        """Ends the thread's sleep."""
        if self._asleep and not self._woken:
            self._woken = True
            os.eventfd_write(self._wake_fd, 1)

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        with self._lock:
            try:
                while self.core.state is not State.ENDED:
                    self._turn()
                self._send()
            except ZBrokerError as error:  # what ended the client
                self._fail(error)
            except Exception as error:  # a bug of ours: nobody may wait for what does not come
                _log.exception("client.thread_failed: what is held comes back to the queue")
                self._fail(ZBrokerError("internal", f"the thread of a consumer failed: {error!r}"))
            finally:
                if self._link is not None:
                    self._link.close(CLOSE_LINGER_MS)
                    self._link = None
                self._came.notify_all()
                self._changed.notify_all()

    def _turn(self) -> None:
        """Reads some answers, does what time demands, sends what piled up; then sleeps."""
        _, more = self._read()
        if not more:
            self._do_what_is_due()
        self._send()
        self._changed.notify_all()
        if self.core.ready or self.over:  # else who waits for messages need not look
            self._came.notify_all()
        if self.core.state is not State.ENDED:
            self._sleep(0 if more else self._wait_ms(WAIT_MAX_MS))

    def _sleep(self, wait_ms: int) -> None:
        link, self._asleep = self._link, True
        happened = False
        self._lock.release()
        try:
            if link is None:
                self._poller.poll(wait_ms)
            else:
                happened = link.wait(wait_ms, self._wake_fd)
        finally:
            self._lock.acquire()
            self._asleep = False
        if self._woken:
            self._woken = False
            os.eventfd_read(self._wake_fd)
        if link is not None and happened:
            self._read_events(link)

    def _send(self) -> None:
        while self._outbox:
            self._perform([self._outbox.popleft()])
        self._perform(self.core.due(now_ms()))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Connect):
                if self._link is not None:
                    self._link.close()
                self._outbox.clear()  # it was for the old one
                self._link = self._doors.connect()
            elif isinstance(effect, Send) and self._link is not None:
                self._link.send(effect.command, effect.body)

    def _fail(self, error: ZBrokerError) -> None:
        self.error = error
        self.core.leave(now_ms())
