"""The publisher in an event loop: its turns, its receipts, and its backpressure.

It has a turn when the broker said something, when something is due, soon after `publish()` queued
the first message, and at once when a full batch is queued. So a task that publishes without ever
waiting goes at full speed, until the store is full.

Sockets: a DEALER to ingest with its monitor. Known weakness: a turn runs in the loop, also what it
writes to a store in a file; while the loop is busy with something else nothing is sent or read.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush
from typing import Any, ClassVar, TypeVar, cast

from zbroker.client.aio.transport import LoopLink, Waiters, check_loop, wake, within
from zbroker.client.ports import READ_LIMIT, LinkPort
from zbroker.client.publisher import hot_path
from zbroker.client.publisher import publisher as common
from zbroker.client.publisher.backpressure import SPACE_AGAIN_S, Backpressure
from zbroker.client.publisher.publisher import SMALL_BYTES
from zbroker.client.publisher.receipt import AckTracker, Receipt, call_user
from zbroker.engine.contract import Limit
from zbroker.errors import StorageError, ZBrokerError

T = TypeVar("T")


class AsyncTrack(AckTracker):
    """The progress of one publisher's messages. No thread sleeps here: tasks wait."""

    def __init__(self, publisher: int) -> None:
        super().__init__(publisher)
        self.loop = asyncio.get_running_loop()
        self.waiters = Waiters(self.loop)
        self._of: dict[int, set[Future[None]]] = {}  # those that wait for that sequence
        self._heap: list[int] = []  # its keys, the lowest first
        self._unnumbered: dict[Future[None], Callable[[], int]] = {}

    def changed(self) -> None:
        super().changed()
        if self._unnumbered:
            self._number()
        while self._heap and (self._heap[0] <= self.settled or self.error is not None):
            for future in self._of.pop(heappop(self._heap)):
                wake(future)
        self.waiters.look()

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Looks once: a loop must not sleep."""
        del timeout
        return done()

    async def until(self, done: Callable[[], bool], end: float | None) -> bool:
        return await self.waiters.until(done, end)

    async def until_settled(self, sequence: int, timeout: float | None) -> None:
        """Waits for everything up to `sequence`. Raises: ZBrokerError timeout, or what ended it."""
        if self.settled < sequence and self.error is None:
            await self._until(lambda: sequence, timeout)
        self.wait_settled(sequence, timeout)

    async def until_done(self, receipt: AsyncReceipt, timeout: float | None) -> None:
        """Waits until it is known what became of `receipt`, at most `timeout` seconds."""
        check_loop(self.loop, self)
        if not receipt.done:
            if not receipt._number:
                self.hurry()
            await self._until(lambda: receipt._number, timeout)

    async def _until(self, number: Callable[[], int], timeout: float | None) -> None:
        """Waits for the sequence that `number` tells, as soon as it tells one."""
        future: Future[None] = self.loop.create_future()
        self._sort_in(future, number)
        try:
            await within(future, timeout)
        finally:
            self._unnumbered.pop(future, None)
            self._of.get(number(), set()).discard(future)

    def _sort_in(self, future: Future[None], number: Callable[[], int]) -> None:
        sequence = number()
        if not sequence:
            self._unnumbered[future] = number
            return
        if sequence not in self._of:
            self._of[sequence] = set()
            heappush(self._heap, sequence)
        self._of[sequence].add(future)

    def _number(self) -> None:
        """Messages that had no sequence may have one now."""
        waiting, self._unnumbered = self._unnumbered, {}
        for future, number in waiting.items():
            self._sort_in(future, number)
            if self.error is not None:
                wake(future)


@hot_path.untracked
class AsyncReceipt(Receipt):
    """One published message on its way. `bookmark = await receipt`."""

    if hot_path.COMPILED:
        __slots__ = ()

    def __await__(self) -> Generator[object, None, str]:
        return self.wait().__await__()

    async def wait(self, timeout: float | None = None) -> str:  # type: ignore[override]
        """Its bookmark, once persisted; "" if it is not recorded.

        Raises: ZBrokerError with the broker's code if it was finally refused, "timeout" if that
        took longer than `timeout` seconds, or what ended the client.
        """
        await cast(AsyncTrack, self._track).until_done(self, timeout)
        return Receipt.wait(self, timeout)

    def add_done_callback(self, callback: Callable[[AsyncReceipt], object]) -> None:
        """Has `callback(receipt)` called by the event loop once it is done."""
        self._track.when_done(self, callback)  # type: ignore[arg-type]


class AsyncPublisher(common.PublisherPort):
    """All of it is called in the loop in which it was made, but for `_ask_session`."""

    track_type: ClassVar[type[AsyncTrack]] = AsyncTrack
    track: AsyncTrack
    loop: asyncio.AbstractEventLoop
    _link: LoopLink

    def _prepare(self) -> LinkPort:
        self.loop = self.track.loop
        self._hurried = False  # a turn came inside publish(): the loop had none for a while
        self._in_turn = self._over = False
        return LoopLink(self._connect, self._calls, self.loop, self.turn)

    def _after_sending(self) -> list[tuple[Any, Limit]]:
        return [(self._link, READ_LIMIT)]  # see transport.py

    def start(self) -> None:
        """Begins to connect."""
        self._link.turns.soon()

    def wake(self) -> None:
        """The first message has a turn come soon, a full batch has it now."""
        if len(self.inbox) >= self._full_batch:
            self._hurried = True
            self.turn()
        else:
            self._link.turns.soon()
            self.wake_at = self._full_batch

    async def breathe(self) -> None:
        """Gives the loop a round, if turns came inside publish() since the last one."""
        if self._hurried:
            self._hurried = False
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Logs off; messages that are not persisted stay in the store, if it lasts."""
        await asyncio.shield(self.let_go(ZBrokerError("closed", "this client is closed")))

    def let_go(self, error: ZBrokerError) -> asyncio.Future[None]:
        """The same without waiting for what is still sent then."""
        if not self._over:
            self._guard(self._log_off)
        self._shut(self.track.error or error)
        return self.loop.run_in_executor(None, self.context.term)

    def abandon(self) -> None:
        """The client was forgotten; perhaps in another thread, which collects garbage."""
        if not self.loop.is_closed():
            error = ZBrokerError("closed", "this client was forgotten")
            self.loop.call_soon_threadsafe(self.let_go, error)

    def forked(self, error: ZBrokerError) -> None:
        super().forked(error)
        self._over = True

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

    def _work(self) -> None:
        link = self._link
        link.rest(self._rest(self._have_turn(link.ready()), soon=link.turns.is_soon))

    def _guard(self, work: Callable[[], T]) -> T | None:
        """What it returns. Whatever fails in there ends the client: nothing may wait for it."""
        try:
            return work()
        except Exception as error:
            self._shut(self._failure(error, "turn", "a turn of this client"))
            return None
        except BaseException:  # maybe of a signal: the connection goes on with another turn
            self._renew_turn()
            raise

    def _shut(self, error: ZBrokerError) -> None:
        """Lets go of all but the context. What a store in a file holds stays there."""
        if self._over:
            return
        self._over = True
        self._fail(error)
        self._link.shut()
        self.store.close()

    # -- what the publisher needs -------------------------------------------------------------

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """In a round of the loop of its own."""
        self.loop.call_soon(call_user, function, arguments)

    def _ask_session(self) -> None:
        self.loop.call_soon_threadsafe(self._between_turns, self._log_on_again)

    def _between_turns(self, work: Callable[[], int]) -> int | None:
        """And has a turn, which performs what came of it."""
        done = self._guard(work)
        self.turn()
        return done

    def _ask(self, work: Callable[[], int], timeout: float | None = None) -> int:
        del timeout
        if self.track.error is not None:
            raise self.track.error
        done = self._between_turns(work)
        if self.track.error is not None:
            raise self.track.error
        return done or 0


class AsyncBackpressure(Backpressure):
    """What `publish` looks at before it queues, and what `ready` waits for."""

    _publisher: AsyncPublisher

    def __init__(self, publisher: AsyncPublisher) -> None:
        super().__init__(publisher)
        self._refused = (0, 0)  # bytes and messages that did not fit last, beyond one small one
        self._disk_full = False  # nothing tells when it has space again

    def admit(self) -> None:
        """Makes room for one more message. Raises: ZBrokerError store_full, or what ended it."""
        self._publisher.turn()
        self.wait(0)

    def admit_large(self, size: int, timeout: float | None = None) -> None:
        """As in a client with threads, without the waiting."""
        del timeout
        if not self._fits(size):
            self._publisher.turn()
            if size <= self._publisher.settings.store_bytes:
                self._refused = (size, 1)
        super().admit_large(size, 0)
        self._refused = (0, 0)

    def admit_many(self, sizes: Sequence[int]) -> None:
        """Counts messages that are queued together: all of them or none.

        Raises: ZBrokerError too_large, store_full, or what ended it.
        """
        settings, before, total = self._publisher.settings, self._large, sum(sizes)
        if total > settings.store_bytes or len(sizes) > settings.store_messages:
            what = f"{len(sizes)} messages of {total} bytes never fit the store together"
            raise ZBrokerError("store_full", what, "publish fewer at a time")
        self.admit()
        if not self._fits(total, len(sizes)):
            self._publisher.turn()
        if not self._fits(total, len(sizes)):
            self._refused = (total, len(sizes))
            raise self._store_full(0)
        try:
            for size in sizes if max(sizes) > SMALL_BYTES else ():
                if size > SMALL_BYTES:
                    self.admit_large(size)
        except ZBrokerError:
            self._large = before
            raise

    def again(self, put: Callable[[], None], timeout: float | None, refused: StorageError) -> None:
        """Gives up. Raises: ZBrokerError store_full, or `refused` if it is not about space."""
        if refused.code != "disk_full":
            raise refused
        self._disk_full = True
        what = f"no space for the publish store: {refused.reason}"
        raise ZBrokerError("store_full", what, "free space; `await client.ready()` waits a moment")

    async def ready(self, end: float | None) -> bool:
        """Waits for room, also for what was refused last."""
        publisher = self._publisher
        if self._disk_full:
            self._disk_full = False
            await asyncio.sleep(SPACE_AGAIN_S)

        def ready() -> bool:
            has_space = len(publisher.inbox) < publisher.inbox_limit and self._fits(*self._refused)
            return has_space or publisher.track.error is not None

        there = await publisher.track.waiters.until(ready, end)
        self._refused = (0, 0) if there else self._refused
        return there

    def _fits(self, size: int, count: int = 0) -> bool:
        """Whether there is room for so much. Queued messages count as if they were large."""
        publisher, settings = self._publisher, self._publisher.settings
        held = self._large - publisher.taken_large + publisher.stored_bytes
        queued = len(publisher.inbox)
        if count > 1:
            held += queued * SMALL_BYTES
        messages = publisher.unsettled + queued + count
        return not size or (
            held + size <= settings.store_bytes and messages <= settings.store_messages
        )

    def _store_full(self, timeout: float | None) -> ZBrokerError:
        error = super()._store_full(timeout)
        hint = "`await client.ready()` waits for room; or connect with larger store_bytes"
        return ZBrokerError(error.code, error.reason, hint)
