"""The publisher in an event loop.

It has a turn when the broker said something, when something is due, soon after `publish()` queued
the first message, and at once when a full batch is queued. So a task that publishes without ever
waiting goes at full speed, until the store is full.

Sockets: a DEALER to ingest with its monitor. Known weakness: a turn runs in the loop, also what it
writes to a store in a file; while the loop is busy with something else nothing is sent or read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ClassVar, Final

from zbroker.client.aio.loop_port import LinkWatch, LoopTurns
from zbroker.client.aio.receipt import AsyncTrack
from zbroker.client.link import CLOSE_LINGER_MS, ClientLink
from zbroker.client.publisher import publisher as common
from zbroker.client.publisher.publisher import PublisherSettings
from zbroker.client.publisher.store import MemoryStore
from zbroker.client.servers import ServerChooser
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Logon

WAIT_MAX_MS: Final = 3_600_000

_log: Final = logging.getLogger("zbroker.client")


class AsyncPublisher(common.PublisherPort):
    """All of it is called in the loop in which it was made, but for `_ask_session`."""

    track_type: ClassVar[type[AsyncTrack]] = AsyncTrack
    track: AsyncTrack

    def __init__(
        self,
        servers: ServerChooser,
        logon: Logon,
        publisher: int,
        settings: PublisherSettings,
        store: MemoryStore | None = None,
    ) -> None:
        super().__init__(servers, logon, publisher, settings, store)
        self.loop = self.track.loop
        self._hurried = False  # a turn came inside publish(): the loop had none for a while
        self._turns = LoopTurns(self.loop, self.turn)
        self._watch: LinkWatch | None = None
        self._events = False  # the monitor has something
        self._renew = False  # a new session was asked for
        self._in_turn = self._over = False
        self.track.ask_numbers = self._number_inbox
        self.track.call, self.track.wake = self.call, self._turns.soon

    def start(self) -> None:
        """Begins to connect."""
        self._turns.soon()

    def wake(self) -> None:
        """The first message has a turn come soon, a full batch has it now."""
        if len(self.inbox) >= self._full_batch:
            self._hurried = True
            self.turn()
        else:
            self._turns.soon()
            self.wake_at = self._full_batch

    def numbers(self) -> int:
        """The sequence of the newest message. Raises: ZBrokerError, what ended the client."""
        if self.track.error is not None:
            raise self.track.error
        self._guard(self._number_all)
        self._turns.soon()
        if self.track.error is not None:
            raise self.track.error
        return self._core.next_sequence - 1 + len(self.inbox)

    async def breathe(self) -> None:
        """Gives the loop a round, if turns came inside publish() since the last one."""
        if self._hurried:
            self._hurried = False
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Logs off; what is not persisted stays in the store, if it lasts."""
        await asyncio.shield(self.let_go(ZBrokerError("closed", "this client is closed")))

    def let_go(self, error: ZBrokerError) -> asyncio.Future[None]:
        """The same without waiting for what is still sent then."""
        if not self._over:
            self._guard(lambda: self._perform(self._core.log_off()))
        self._shut(self.track.error or error)
        return self.loop.run_in_executor(None, self.context.term)

    def abandon(self) -> None:
        """The client was forgotten; perhaps in another thread, which collects garbage."""
        if not self.loop.is_closed():
            error = ZBrokerError("closed", "this client was forgotten")
            self.loop.call_soon_threadsafe(self.let_go, error)

    def forked(self, error: ZBrokerError) -> None:
        """This is a copy in a forked process: neither sockets nor the loop are its own."""
        self.track.error, self.room, self._over = error, -1, True

    # -- a turn -------------------------------------------------------------------------------

    def turn(self) -> None:
        """Does what is due, packs and sends what is queued, reads what there is."""
        if self._in_turn or self._over:
            return
        self._in_turn = True
        try:
            self._guard(self._work)
        finally:
            self._in_turn = False
        if not self._over:
            self._rest()

    def _work(self) -> None:
        if self._renew:
            self._renew = False
            self._perform(self._core.log_on_again(self.clock.mono_ms()))
        self._read_all()
        if self._events and self._link is not None:
            self._events = False
            self._read_events(self._link)
        self._tick()
        self._pack()
        self._read_all()  # again, whether something was sent or not: see loop_port.py
        self._publish_state()

    def _read_all(self) -> None:
        if self._link is not None:
            self._read(self._link)

    def _rest(self) -> None:
        """Sets when the next turn is."""
        soon = self._turns.is_soon
        self.wake_at = 1 if self._core.can_send and not soon else self._full_batch
        if len(self.inbox) >= self.wake_at and self._space_again_ms is None:
            self._turns.soon()
        self._turns.within(self._wait_ms(WAIT_MAX_MS))

    def _guard(self, work: Callable[[], object]) -> None:
        """Whatever fails in there ends the client: nobody may wait for it."""
        try:
            work()
        except ZBrokerError as error:  # the store's
            _log.error("client.store_failed: nothing more is published: %s", error)
            self._shut(error)
        except Exception as error:  # a bug of ours
            _log.exception("client.turn_failed: what is not persisted stays unsent")
            self._shut(ZBrokerError("internal", f"a turn of this client failed: {error!r}"))

    def _shut(self, error: ZBrokerError) -> None:
        """Lets go of all but the context. What a store in a file holds stays there."""
        if self._over:
            return
        self._over = True
        self._fail(error)
        self._close_link(CLOSE_LINGER_MS)
        self._turns.close()
        self.store.close()

    # -- what the publisher needs -------------------------------------------------------------

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """In a round of the loop of its own."""
        self.loop.call_soon(_called, function, arguments)

    def _ask_session(self) -> None:
        self._renew = True
        self.loop.call_soon_threadsafe(self._turns.soon)

    def _ask_beats(self) -> None:
        if self.track.error is not None:
            raise self.track.error
        self._guard(self._beat_each)
        self._turns.soon()

    def _linked(self, link: ClientLink) -> None:
        self._watch = LinkWatch(self.loop, link, self.turn, self._monitored)
        self._monitored()

    def _unlinked(self, link: ClientLink) -> None:
        del link
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _monitored(self) -> None:
        self._events = True
        self._turns.soon()

    def _number_inbox(self) -> None:
        self.numbers()


def _called(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    try:
        function(*arguments)
    except Exception:
        _log.exception("client.callback_failed: publishing and subscriptions go on")
