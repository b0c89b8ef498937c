"""A subscription as its reader sees it: an iterator of messages, or of lists of them.

Everything happens in the reader's thread (twice as fast as handing over from another one): who does
not read gives no credit and is sent nothing. One subscription belongs to one thread at a time.
"""

from __future__ import annotations

import random
import time as clock
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from zbroker.client import message as messages
from zbroker.client.door import Doors, origin_of
from zbroker.client.effects import Connect
from zbroker.client.feed import Effect, Feed, State
from zbroker.client.link import CLOSE_LINGER_MS, Link
from zbroker.client.message import Message
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, format_vector
from zbroker.wire.messages import Msg, Subscribe

WAIT_MAX_MS: Final = 1_000
TOKEN_WAIT_MS: Final = 20  # how often it is looked whether the I/O thread has a new session


class Subscription:
    """Made by `Client.subscribe`. Iterate over it, or over `.batches()`, or call `.next()`.

    It reconnects by itself and goes on where it was. An iteration ends when the end of the range
    (`until`) is reached or the subscription is closed; leaving one and starting another goes on
    with the next message.
    """

    def __init__(self, doors: Doors, subscribe: Subscribe) -> None:
        self._closed = True  # until it is whole: __del__ comes even if it never is
        self.topic = subscribe.topic
        self._doors = doors
        self._feed = Feed(subscribe, random.Random().random)
        self._session = 0
        self._link: Link | None = None
        self._current: Message | None = None
        self._recorded: Message | None = None  # the last recorded one of the batches before
        self._rest: Iterator[Message] = iter(())
        self._before: dict[Origin, int] = {}  # the vector before the batch of _current
        self._closed = False

    # -- reading ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Message]:
        """Each message. Raises: ZBrokerError with the code with which the broker ended it."""
        while True:
            for self._current in self._rest:  # noqa: B020  (a quick assignment, not a mistake)
                yield self._current
            batch = self._fetch(None)
            if batch is None:
                return
            self._rest = iter(batch)

    def batches(self, timeout: float | None = None) -> Iterator[list[Message]]:
        """Lists of messages as they were published together: the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        batch: list[Message] | None = list(self._rest)
        while batch is not None:
            if batch:
                self._current = batch[-1]
                self._rest = iter(())
                yield batch
            batch = self._fetch(timeout)

    def next(self, timeout: float | None = None) -> Message | None:
        """The next message; None at the end of the range. Raises: ZBrokerError, also "timeout"."""
        message = next(self._rest, None)
        if message is None:
            batch = self._fetch(timeout)
            if batch is None:
                return None
            self._rest = iter(batch)
            message = next(self._rest)
        self._current = message
        return message

    # -- where it is --------------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """True once everything that was persisted when it began has been received."""
        return self._feed.caught_up

    @property
    def position(self) -> int | None:
        """Of the last recorded message handed out (of a batch: its last one)."""
        last = self._last
        return last.position if last is not None else None

    @property
    def bookmark(self) -> str | None:
        """Of the last recorded message handed out."""
        last = self._last
        return last.bookmark if last is not None else None

    @property
    def dropped(self) -> int:
        """How many unrecorded messages the broker had to leave out, because this side was slow."""
        return self._feed.dropped

    @property
    def _last(self) -> Message | None:
        """The last recorded message handed out."""
        current = self._current
        return current if current is not None and current.recorded else self._recorded

    @property
    def vector(self) -> str | None:
        """A value for `since` that goes on behind the last recorded message handed out."""
        vector = dict(self._before)
        if self._current is not None and self._current.recorded:
            vector[self._current.origin] = self._current.position
        return format_vector(vector) if vector else None

    # -- its life -----------------------------------------------------------------------------

    def start(self, timeout: float) -> None:
        """Waits until the broker has accepted it: what is published from then on is in it.

        Raises: ZBrokerError with the broker's code, or "timeout".
        """
        end = clock.monotonic() + timeout
        while self._feed.state is not State.LIVE and not self._over():
            if not self._turn(end):
                raise ZBrokerError(
                    "timeout", f"delivery did not accept the subscription in {timeout} s"
                )
        self._before = dict(self._feed.seen)

    def close(self) -> None:
        """Ends it; an iteration over it ends too."""
        if not self._closed:
            self._closed = True
            self._perform(self._feed.close())
            if self._link is not None:
                self._link.close(CLOSE_LINGER_MS)
                self._link = None

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Subscription({self.topic!r}, {self._feed.state.value}, {self.vector})"

    # -- helpers ------------------------------------------------------------------------------

    def _fetch(self, timeout: float | None) -> list[Message] | None:
        """The next batch of new messages; None at the end."""
        self._before = dict(self._feed.seen)
        self._recorded = self._last
        end = None if timeout is None else clock.monotonic() + timeout
        while not self._closed:
            received = self._link.receive() if self._link is not None else None
            if received is None:
                if self._over():
                    return None
                if not self._turn(end):
                    raise ZBrokerError(
                        "timeout", f"no message in {timeout} s", "the subscription goes on"
                    )
                continue
            answer, body = received
            if not isinstance(answer, Msg):
                self._perform(self._feed.handle(answer, _now_ms()))
            elif fresh := self._decoded(answer, body):
                return fresh
        return None

    def _decoded(self, msg: Msg, body: bytes) -> list[Message]:
        batch = messages.decode(msg, body, self._feed.own, self._doors.body_max())
        fresh, effects = self._feed.take(batch, len(body))
        self._perform(effects)
        return fresh

    def _over(self) -> bool:
        """True at the end of the range. Raises: what the broker ended it with."""
        if self._feed.state is not State.ENDED:
            return False
        self.close()
        if self._feed.error is not None:
            raise self._feed.error
        return True

    def _turn(self, end: float | None) -> bool:
        """Waits for something other than messages and handles it; False when the time is over."""
        if self._feed.state is State.NO_TOKEN:
            self._use_newer_session()
        self._perform(self._feed.tick(_now_ms()))
        left_ms = WAIT_MAX_MS if end is None else int((end - clock.monotonic()) * 1_000) + 1
        wake_ms = self._feed.next_wake_ms()
        wait_ms = min(WAIT_MAX_MS, left_ms, WAIT_MAX_MS if wake_ms is None else wake_ms - _now_ms())
        if self._feed.state is State.NO_TOKEN:
            wait_ms = min(wait_ms, TOKEN_WAIT_MS)
        if self._link is None:
            clock.sleep(max(0, wait_ms) / 1_000)
        else:
            self._link.wait(max(0, wait_ms))
            self._settle(self._link)
        return left_ms > 0

    def _settle(self, link: Link) -> None:
        """Before it is live: reads answers. Always: hears what became of the connection."""
        while self._link is link and self._feed.state is not State.LIVE:
            received = link.receive()
            if received is None:
                break
            self._perform(self._feed.handle(received[0], _now_ms()))
        for event in link.events() if self._link is link else ():
            if self._link is link:
                self._perform(self._feed.handle(event, _now_ms()))

    def _use_newer_session(self) -> None:
        session = self._doors.session(self._session)
        if session is not None:
            self._session = session.number
            self._perform(self._feed.use(session.answer.token or "", origin_of(session), _now_ms()))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Connect):
                if self._link is not None:
                    self._link.close()
                self._link = self._doors.connect()
            elif self._link is not None:
                self._link.send(effect.command, effect.body)


def _now_ms() -> int:
    return clock.monotonic_ns() // 1_000_000
