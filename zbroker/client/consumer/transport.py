"""One consumer's connection to the queues process, and the I/O thread that has its turns.

The thread reads what comes, whether anything waits for it or not, and extends leases while the
program works: so a handler may take as long as it likes. What threads of the program settle piles
up while it is busy and goes out together in its next turn. The lock is held except while it
sleeps; it alone touches the socket. An event loop needs no thread: see aio/transport.py.

Sockets: a DEALER to the queues process with its monitor. Known weakness: the thread shares the
interpreter lock; a call into C that keeps it for longer than half a lease costs the leases.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from zbroker.client import forks
from zbroker.client.connection import Phase
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import ACK, Verb
from zbroker.client.consumer.single_acks import SingleAcks
from zbroker.client.endpoints import ListenerEndpoints, Transport
from zbroker.client.link import CLOSE_LINGER_MS
from zbroker.client.ports import ONE, PolledLink, WakingPoller, defect, wait_limit_ms
from zbroker.client.waits import left_until
from zbroker.engine.contract import Ready
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import Consume

CLOSE_S: Final = 2.0  # for the thread to send what is left

T = TypeVar("T")


class ConsumerTransport(Transport[ConsumerCore]):
    """What ports for threads and for event loops do alike."""

    def __init__(self, listeners: ListenerEndpoints, command: Consume) -> None:
        resubscribed = partial(listeners.publisher.tell, "resubscribed")
        jitter, heartbeat_s = random.Random().random, listeners.publisher.heartbeat_s
        core = ConsumerCore(command, self, jitter, heartbeat_s, resubscribed)
        super().__init__(listeners, core)
        self._acks = SingleAcks()
        self._sources = ((self._acks, ONE),)
        self.error: ZBrokerError | None = None  # what ended the client, or a defect of this
        self.halted = False  # nothing more is handed out

    def start(self) -> None:
        """Has the broker asked."""
        raise NotImplementedError

    async def _until_ready(self, end: float | None) -> bool:
        """Waits until `take` should look again; False if the time `end` is over."""
        raise NotImplementedError

    # -- what the program does ----------------------------------------------------------------

    def ack(self, message: QueueMessage) -> None:
        """One message is done. Raises: ZBrokerError, what ended the consumer."""
        if self._acks.add(message):
            with self._lock:
                self._soon()
        if self.error is not None or self._ended:
            self.settle(ACK, (message,))  # raises

    def settle(self, verb: Verb, messages: Sequence[QueueMessage]) -> None:
        """Notes it, to be sent soon. Raises: ZBrokerError, what ended the consumer."""
        with self._lock:
            if self.error is not None:
                raise self.error
            self._note_acks()
            self.core.settle(verb, messages, self._listeners.now_ms())
            self._soon()

    def _note_acks(self) -> None:
        """To be called before anything else that the program does: acks before it count first."""
        if messages := self._acks.take():
            self.core.acked(messages, self._listeners.now_ms())
            self._soon()

    async def take(self, most: int | None, end: float | None = None) -> list[QueueMessage] | None:
        """The next messages, up to `most` of those that came together.

        Empty if none came before the time `end`; None if nothing more is handed out.
        Raises: ZBrokerError, what ended the consumer.
        """
        with self._lock:
            while not self.halted:
                if messages := self.take_now(most):
                    return messages
                if self.over:
                    break
                if not await self._until_ready(end):
                    return []
            error = self.what_ended_it
            if error is not None and not self.halted:
                raise error
            return None

    def take_now(self, most: int | None) -> list[QueueMessage]:
        """The messages that are there, up to `most` that came together."""
        with self._lock:
            if self.halted or not self.core.ready:
                return []
            messages, effects = self.core.hand_out(most, self._listeners.now_ms())
            self._do(effects)
            return messages

    def read(self, at: Callable[[ConsumerCore], T]) -> T:
        """What `at` says of the core, while nothing changes it."""
        with self._lock:
            self._note_acks()
            return at(self.core)

    def ask(self, at: Callable[[ConsumerCore], T]) -> T:
        """Has `at` note something in the core, to be sent soon. Raises: ZBrokerError, what ended
        the consumer."""
        with self._lock:
            if self.over or self.halted:
                raise self.what_ended_it or ZBrokerError("closed", "the consumer was closed")
            self._note_acks()
            noted = at(self.core)
            self._soon()
            return noted

    def halt(self) -> None:
        """Nothing more is handed out; what was, can still be settled."""
        with self._lock:
            self.halted = True
            self.look()

    async def cancel(self, end: float | None) -> None:
        """Has the broker end it, and waits until it has, at the latest until the time `end`."""
        with self._lock:
            self._note_acks()
            self._do(self.core.cancel(self._listeners.now_ms()))
        await self.until(lambda: self.core.is_cancelled or self.over, end)

    def close(self) -> None:
        """Sends what is left, and gives back what is held."""
        with self._lock:
            self.halted = True
            self._note_acks()
            self._do(self.core.leave(self._listeners.now_ms()))
            self._close_if_over()
            self.look()

    def _fail(self, error: ZBrokerError) -> None:
        self.error = error
        self.core.leave(self._listeners.now_ms())

    @property
    def over(self) -> bool:
        """Nothing more comes than what waits."""
        return self._ended or self.core.ended or self.error is not None

    @property
    def what_ended_it(self) -> ZBrokerError | None:
        """None while it goes on, and after `close`."""
        return self.core.error or self.error


class ConsumerThread(ConsumerTransport):
    """A consumer's connection, and the thread that has its turns."""

    def __init__(self, listeners: ListenerEndpoints, command: Consume) -> None:
        super().__init__(listeners, command)
        self._begin_waiting()
        self._poller = WakingPoller()
        self._thread = threading.Thread(
            target=self._run, name=f"zbroker queue {command.queue}", daemon=True
        )
        forks.watch(self)
        self._begin(PolledLink(listeners.connect, self._calls, self._poller))

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: its messages and its socket are the parent's."""
        self._begin_waiting()
        self._link.link = None
        self.core.state, self.core.error = Phase.ENDED, error
        self.core.held.clear()

    def _begin_waiting(self) -> None:
        """Threads wait in two groups with one lock: for messages, and for answers."""
        self._lock = lock = threading.RLock()
        self._came, self._changed = threading.Condition(lock), threading.Condition(lock)

    # -- called by threads of the program -----------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        with self._lock:
            return bool(self._changed.wait_for(done, left_until(end)))

    async def _until_ready(self, end: float | None) -> bool:
        left = left_until(end)
        if left == 0:
            return False
        self._came.wait(left)
        return True

    def close(self, timeout: float = CLOSE_S) -> None:
        """Also ends the thread."""
        super().close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def look(self) -> None:
        self._poller.wake()
        self._came.notify_all()
        self._changed.notify_all()

    def _flush(self) -> None:
        self._poller.wake()

    def _soon(self) -> None:
        self._poller.wake()

    def _close_if_over(self) -> None:
        """The thread does so."""

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        with self._lock:
            try:
                ready: Ready = {}
                while not self._ended:
                    ready = self._turn_and_sleep(ready)
                self._turn.run({})  # sends what is left
            except ZBrokerError as error:  # what ended the client
                self._fail(error)
            except Exception as error:
                note = "client.thread_failed: the messages that it holds come back to the queue"
                self._fail(defect(error, note, "the thread of a consumer"))
            finally:
                self._link.close(CLOSE_LINGER_MS)
                self.look()

    def _turn_and_sleep(self, ready: Ready) -> Ready:
        wait_ms = self._turn.run(ready)
        self._changed.notify_all()
        if self.core.ready or self.over:  # else threads that wait for messages need not look
            self._came.notify_all()
        return {} if self._ended else self._poller.poll(wait_limit_ms(wait_ms), self._changed)
