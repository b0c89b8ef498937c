"""One consumer's connection to the queues process, and the I/O thread that has its turns.

The thread reads what comes, whether anything waits for it or not, and extends leases while the
program works: so a handler may take as long as it likes. What threads of the program settle piles
up while it is busy and goes out together in its next turn. The lock is held except while it
sleeps; it alone touches the socket. An event loop needs no thread: see aio/transport.py.

Sockets: a DEALER to the queues process with its monitor. Known weakness: the thread shares the
interpreter lock; a call into C that keeps it for longer than half a lease costs the leases.
"""

from __future__ import annotations

import logging
import random
import threading
import time as clock
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from zbroker.client import forks
from zbroker.client.connection import Phase
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import ACK, Verb
from zbroker.client.effects import Effect
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.link import CLOSE_LINGER_MS
from zbroker.client.ports import Calls, LinkPort, PolledLink, WakingPoller, turn_of
from zbroker.engine.contract import Ready
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import Consume

T = TypeVar("T")


class ConsumerTransport:
    """The core, its turn, and what both ports do with them."""

    _link: LinkPort

    def __init__(self, doors: ListenerEndpoints, command: Consume) -> None:
        self._doors = doors
        self.core = ConsumerCore(
            command, self, random.Random().random, doors.heartbeat_s, doors.resubscribed
        )
        self.error: ZBrokerError | None = None  # what ended the client, or a defect of this
        self.halted = False  # nothing more is handed out
        self._calls = Calls()

    def _begin(self, link: LinkPort) -> None:
        self._link = link
        self._turn = turn_of(self.core, link, self._calls, self._doors)
        self._doors.follow(self)

    def settle(self, verb: Verb, messages: Sequence[QueueMessage]) -> None:
        """Notes it, to be sent soon. Raises: ZBrokerError, what ended the consumer."""
        raise NotImplementedError

    def look(self, at: Callable[[ConsumerCore], T]) -> T:
        """What `at` says of the core, while nothing changes it."""
        return at(self.core)

    def client_ended(self, error: ZBrokerError) -> None:
        """The consumer ends with what ended the client."""
        raise NotImplementedError

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        raise NotImplementedError

    def _leave(self, error: ZBrokerError | None = None) -> list[Effect]:
        return self.core.leave(self._doors.now_ms(), error)

    @property
    def over(self) -> bool:
        """Nothing more comes than what waits."""
        core = self.core
        return core.state is Phase.ENDED or core.ended or self.error is not None

    @property
    def what_ended_it(self) -> ZBrokerError | None:
        """None while it goes on, and after `close`."""
        return self.core.error or self.error


WAIT_MAX_MS: Final = 1_000
CLOSE_S: Final = 2.0  # for the thread to send what is left


_log: Final = logging.getLogger("zbroker.client")


class ConsumerThread(ConsumerTransport):
    """A consumer's connection, and the thread that has its turns."""

    def __init__(self, doors: ListenerEndpoints, command: Consume) -> None:
        super().__init__(doors, command)
        self._begin_waiting()
        self._poller = WakingPoller()
        self._thread = threading.Thread(
            target=self._run, name=f"zbroker queue {command.queue}", daemon=True
        )
        forks.watch(self)
        self._begin(PolledLink(doors.connect, self._calls, self._poller))

    def _forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: what was read, and the socket, are the parent's."""
        self._begin_waiting()
        self._link.link = None
        self.core.state, self.core.error = Phase.ENDED, error
        self.core.held.clear()

    def _begin_waiting(self) -> None:
        """Threads wait in two groups with one lock: for messages, and for answers."""
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
                self.core.settle(verb, messages, self._doors.now_ms())
            self._poller.wake()

    def take(self, most: int | None, end: float | None = None) -> list[QueueMessage] | None:
        """The next messages, up to `most` of those that came together.

        Empty if none came before the time `end`; None if nothing more is handed out.
        Raises: ZBrokerError, what ended the consumer.
        """
        with self._lock:
            while not self.halted:
                if self.core.ready and (messages := self._hand_out(most)):
                    return messages
                if self.over:
                    break
                left = None if end is None else end - clock.monotonic()
                if left is not None and left <= 0:
                    return []
                self._came.wait(left)
            error = self.what_ended_it
            if error is not None and not self.halted:
                raise error
            return None

    def take_many(self, most: int, end: float | None) -> list[QueueMessage]:
        """The same over several batches, as far as they are there."""
        with self._lock:
            found = self.take(most, end) or []
            while 0 < len(found) < most and self.core.ready and not self.halted:
                found += self._hand_out(most - len(found))
            return found

    def _hand_out(self, most: int | None) -> list[QueueMessage]:
        messages, effects = self.core.hand_out(most, self._doors.now_ms())
        if effects:
            self._calls.add(effects)
            self._poller.wake()
        return messages

    def look(self, at: Callable[[ConsumerCore], T]) -> T:
        """What `at` says of the core, while nothing changes it."""
        with self._lock:
            return at(self.core)

    def wait(self, done: Callable[[], object], timeout: float | None) -> bool:
        """Sleeps until `done()`, which is looked at when something came; False if it is not."""
        with self._lock:
            return bool(self._changed.wait_for(done, timeout))

    def halt(self) -> None:
        """Nothing more is handed out; what was, can still be settled."""
        with self._lock:
            self.halted = True
            self._wake_all()

    def close(self, timeout: float = CLOSE_S) -> None:
        """Sends what is left, gives back what is held, and ends the thread."""
        with self._lock:
            self.halted = True
            self._calls.add(self._leave())
            self._wake_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def client_ended(self, error: ZBrokerError) -> None:
        """The consumer ends with what ended the client, and so does every wait here."""
        with self._lock:
            self._calls.add(self._leave(error))
            self._wake_all()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        with self._lock:
            self._calls.add(self.core.beat_each(interval_s))
            self._poller.wake()

    def _wake_all(self) -> None:
        self._poller.wake()
        self._came.notify_all()
        self._changed.notify_all()

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        with self._lock:
            try:
                ready: Ready = {}
                while self.core.state is not Phase.ENDED:
                    ready = self._turn_and_sleep(ready)
                self._turn.run({})  # sends what is left
            except ZBrokerError as error:  # what ended the client
                self._fail(error)
            except Exception as error:  # a defect of ours: nothing may wait for what does not come
                _log.exception("client.thread_failed: what is held comes back to the queue")
                self._fail(ZBrokerError("internal", f"the thread of a consumer failed: {error!r}"))
            finally:
                self._link.close(CLOSE_LINGER_MS)
                self._came.notify_all()
                self._changed.notify_all()

    def _turn_and_sleep(self, ready: Ready) -> Ready:
        wait_ms = self._turn.run(ready)
        self._changed.notify_all()
        if self.core.ready or self.over:  # else threads that wait for messages need not look
            self._came.notify_all()
        if self.core.state is Phase.ENDED:
            return {}
        wait_ms = WAIT_MAX_MS if wait_ms is None else min(wait_ms, WAIT_MAX_MS)
        return self._poller.poll(wait_ms, self._changed)

    def _fail(self, error: ZBrokerError) -> None:
        self.error = error
        self._leave()
