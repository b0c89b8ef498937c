"""Receipts, the one object that tells them how far the broker is, and the thread for callbacks.

A receipt is what the application queued, so it costs nothing more per message: the I/O thread
writes its sequence into it and keeps one mark for all of them.

Functions of the user (listeners, callbacks of receipts, refusals) are not called by the I/O thread:
they may take their time, publish, and wait for acks.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from zbroker.client.publisher import hot_path
from zbroker.client.publisher.unrecorded import ReturnedMessages, Unrecorded
from zbroker.client.waits import end_of, left_until
from zbroker.errors import ZBrokerError
from zbroker.ids import format_bookmark

NUMBER_TIMEOUT_S: Final = 10.0  # the I/O thread numbers what is queued at once when asked


class AckTracker:
    """What the I/O thread says of one publisher's messages, and the waiting for it.

    The I/O thread alone writes the marks, then calls `changed`; that takes the lock only when
    somebody waits. A waiter counts itself before it looks, so no change is missed.
    """

    def __init__(self, publisher: int) -> None:
        self.publisher = publisher
        self.settled = 0  # everything up to it is durable, or not recorded, or finally refused
        self.unrecorded = Unrecorded()  # what the broker does not record
        self.returned = ReturnedMessages()  # what went to no queue
        self.error: ZBrokerError | None = None  # nothing more will be settled
        self.ask_numbers: Callable[[], object] = _nothing
        self.wake: Callable[[], None] = _nothing
        self.hurry: Callable[[], None] = _nothing  # somebody waits for what has no number yet
        #: has the turns of the publisher until something is done, if it can
        self.have_turns: Callable[[Callable[[], bool], float | None], bool] = _no_turns
        self.call: Callable[..., None] = _call
        self.callbacks: deque[tuple[Receipt, Callable[[Receipt], object]]] = deque()
        self.last_refusal: Callable[[], str] = str
        self._refused_from: list[int] = []
        self._refused: list[tuple[int, ZBrokerError]] = []  # (last, error), beside _refused_from
        self._condition = threading.Condition(threading.Lock())
        self.waiting = 0

    def refuse(self, first: int, last: int, error: ZBrokerError) -> None:
        """Notes that `first` to `last` were given up; runs with one code are kept as one."""
        end, known = self._refused[-1] if self._refused else (0, None)
        if known is not None and end == first - 1 and known.code == error.code:
            self._refused[-1] = (last, known)
            return
        at = bisect_right(self._refused_from, first)
        self._refused.insert(at, (last, error))
        self._refused_from.insert(at, first)

    def refusal(self, sequence: int) -> ZBrokerError | None:
        """Why that message was given up, if it was."""
        at = bisect_right(self._refused_from, sequence) - 1
        return self._refused[at][1] if at >= 0 and sequence <= self._refused[at][0] else None

    def refusal_after(self, sequence: int) -> ZBrokerError | None:
        """The first refusal of messages above `sequence`."""
        at = bisect_right(self._refused_from, sequence)
        return self._refused[at][1] if at < len(self._refused) else None

    def when_done(self, receipt: Receipt, callback: Callable[[Receipt], object]) -> None:
        """Has `callback` called once it is known what became of `receipt`; from any thread."""
        self.callbacks.append((receipt, callback))
        self.wake()

    def changed(self) -> None:
        """Wakes who waits, and has called who asked for it."""
        while self.callbacks and self.callbacks[0][0].done:
            receipt, callback = self.callbacks.popleft()
            self.call(callback, receipt)
        if self.waiting:
            with self._condition:
                self._condition.notify_all()

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Sleeps until `done()`; False when that took longer than `timeout` seconds."""
        if done():
            return True
        with self._condition:
            self.waiting += 1
            try:
                return self._condition.wait_for(done, timeout)
            finally:
                self.waiting -= 1

    async def until(self, done: Callable[[], bool], end: float | None) -> bool:
        """Waits until `done()`; False if that is not so at the time `end`."""
        return self.wait(done, left_until(end))

    async def until_settled(self, sequence: int, timeout: float | None) -> None:
        """As `wait_settled`."""
        self.wait_settled(sequence, timeout)

    def wait_settled(self, sequence: int, timeout: float | None) -> None:
        """Raises: ZBrokerError timeout, or what ended the client."""

        def done() -> bool:
            return self.settled >= sequence or self.error is not None

        end = end_of(timeout)
        if not done() and not self.have_turns(done, end) and not self.wait(done, left_until(end)):
            raise self.timed_out(timeout)
        if self.settled < sequence and self.error is not None:
            raise self.error

    def timed_out(self, timeout: float | None) -> ZBrokerError:
        """The error after a wait of `timeout` seconds, with the last message of the broker."""
        said = self.last_refusal()
        return ZBrokerError(
            "timeout",
            f"not acknowledged after {timeout} s" + (f"; {said}" if said else ""),
            "it stays in the publish store and is sent until the broker has it",
        )


@hot_path.untracked
class Receipt(hot_path.QueuedMessage):
    """One published message on its way."""

    if hot_path.COMPILED:
        __slots__ = ()  # a Struct has none, and may not say so

    @property
    def sequence(self) -> int:
        """The message's number in its publisher's line."""
        if not self._number:
            self._track.ask_numbers()
            self._track.wait(
                lambda: self._number > 0 or self._track.error is not None, NUMBER_TIMEOUT_S
            )
            if not self._number:
                raise self._track.error or ZBrokerError("timeout", "the message has no number yet")
        return self._number

    @property
    def _number(self) -> int:
        """The sequence, 0 as long as there is none."""
        value = self.value
        return value if type(value) is int else 0

    @property
    def bookmark(self) -> str:
        """What names this message in the log; "" once it is known not to be recorded."""
        if self.recorded is False:
            return ""
        return format_bookmark(self._track.publisher, self.sequence)

    @property
    def recorded(self) -> bool | None:
        """Whether the broker recorded it; None as long as that is not known.

        An unrecorded message went to the subscribers of the moment, if any; nothing keeps it. The
        last 100,000 runs of messages that a filter of the broker kept out of the log are
        remembered: of a receipt that is older than all of them it is not known any more.
        """
        sequence, track = self._number, self._track
        if not 0 < sequence <= track.settled or track.refusal(sequence) is not None:
            return None
        if self.topic in track.unrecorded.topics or sequence in track.unrecorded.filtered:
            return False
        return None if sequence <= track.unrecorded.filtered.forgotten else True

    @property
    def persisted(self) -> bool:
        """True once it is durable at the broker; never if it is not recorded."""
        return self.recorded is True

    @property
    def returned(self) -> bool | None:
        """Whether a mandatory message went to no queue; the log has it all the same.

        None as long as that is not known: before it is done, and for ever if the broker had it when
        a lost connection came back, since it says this once. False for one that is not mandatory.
        """
        if self.extra is None or not self.extra.mandatory:
            return False
        sequence, track = self._number, self._track
        if not 0 < sequence <= track.settled or track.refusal(sequence) is not None:
            return None
        if sequence in track.returned.known:
            return True
        is_unknown = sequence in track.returned.unknown
        return None if is_unknown or sequence <= track.returned.forgotten else False

    @property
    def done(self) -> bool:
        """True once it is persisted, not recorded or refused, or the client ended."""
        track = self._track
        return 0 < self._number <= track.settled or track.error is not None

    @property
    def returned_indexes(self) -> list[int] | None:
        """Which payloads of its mandatory `publish_many` went to no queue; None as long as that is
        not known of each of them, see `returned`."""
        before = () if self.extra is None else self.extra.before
        known = [receipt.returned for receipt in (*before, self)]
        if None in known:
            return None
        return [index for index, is_lost in enumerate(known) if is_lost]

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Has `callback(receipt)` called once it is done, by a thread of the client for that.

        In the order in which they were added; `wait(0)` then gives the bookmark or raises.
        """
        self._track.when_done(self, callback)

    def wait(self, timeout: float | None = None) -> str:
        """Its bookmark, once persisted; "" if it is not recorded.

        Raises: ZBrokerError with the broker's code if it was finally refused, "timeout" if that
        took longer than `timeout` seconds, or what ended the client.
        """
        track, end = self._track, end_of(timeout)

        def done() -> bool:
            return self.done

        if not self._number:
            track.hurry()
        settled = self.done or track.have_turns(done, end)
        if not settled and not track.wait(done, left_until(end)):
            raise track.timed_out(timeout)
        error = track.refusal(self._number) if self._number else None
        if error is None and not 0 < self._number <= track.settled:
            error = track.error
        if error is not None:
            raise error
        return self.bookmark

    def __repr__(self) -> str:
        state = {None: "pending", True: "persisted", False: "not recorded"}[self.recorded]
        return f"Receipt({self.topic!r}, sequence={self._number or None}, {state})"


def _no_turns(_done: Callable[[], bool], _end: float | None) -> bool:
    return False


def _nothing() -> None:
    """Until there is a shell to ask."""


def _call(function: Callable[..., object], *arguments: object) -> None:
    """Until there is a shell that calls it elsewhere."""
    function(*arguments)


_log: Final = logging.getLogger("zbroker.client")

Call = tuple[Callable[..., object], tuple[object, ...]]


def call_user(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    """Calls a function of the user. What it raises is logged: it is not about us."""
    try:
        function(*arguments)
    except Exception:
        _log.exception("client.callback_failed: publishing and subscriptions go on")


class Callbacks:
    """Calls one after the other, in the order in which they were asked for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Queues one call; the first one starts the thread. From any thread."""
        self._calls.put((function, arguments))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"zbroker {self._name} callbacks", daemon=True
                )
                self._thread.start()

    def close(self, timeout: float) -> None:
        """Waits for what was asked, unless one of the calls is what closes."""
        thread = self._thread
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call_user(*call)
