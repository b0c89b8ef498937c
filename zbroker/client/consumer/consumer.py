"""A consumer as its program sees it: an iterator of messages, or of lists of them.

`BaseConsumer` is what the consumers with threads and with tasks share. How the next messages are
waited for differs: with threads here, with tasks in `zbroker.client.aio.consumer`.
"""

from __future__ import annotations

import secrets
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from pyroaring import BitMap64

from zbroker.client.connection import Phase
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.message_credit import PICKED_MAX, CreditChange
from zbroker.client.consumer.settlement import ACK
from zbroker.client.consumer.transport import ConsumerThread, ConsumerTransport
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.subscriber.options import TIMEOUT_S, ConsumeOptions, whole_number
from zbroker.client.waits import blocking, end_of, run
from zbroker.errors import ZBrokerError
from zbroker.ids import format_vector

CLOSE_S: Final = 10.0
CANCEL_S: Final = 5.0
MESSAGES_MAX: Final = 1 << 62  # of one call of `flow`


class Placed(Protocol):
    """Something with the position of a message, as a queue has it: what `browse` shows."""

    @property
    def position(self) -> int:
        """Where it is in the log of the instance."""


class BaseConsumer:
    """One consumer: what it is, and how far."""

    _port_type: type[ConsumerTransport]

    def __init__(self, listeners: ListenerEndpoints, options: ConsumeOptions) -> None:
        self._closed = True  # until it is whole
        self._listeners, self._accept_s = listeners, options.timeout
        self._accept_by: float | None = None  # None: the broker was not asked for it yet
        self._command = options.command
        self._command.holder = secrets.token_hex(8)  # the same over reconnects
        self._owner: object = None  # the client: it lives as long as its consumers
        self._port = self._port_type(listeners, self._command)
        self._closed = False

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._command.queue

    @property
    def backlog(self) -> int:
        """How many messages it holds at most, as the broker granted; 0 before it was accepted."""
        return self._port.core.backlog

    @property
    def lease(self) -> float | None:
        """How many seconds a lease lasts that is not extended; None: for ever, or there is none."""
        lease_ms = self._port.core.lease_ms
        return lease_ms / 1_000 if lease_ms else None

    @property
    def held(self) -> int:
        """How many messages it has that are not settled: with the program, or waiting for it."""
        return self._port.read(lambda core: len(core.held))

    @property
    def unsettled(self) -> int:
        """How many messages were acked, released or rejected, and that is not known durable."""
        return self._port.read(lambda core: len(core.settling))

    @property
    def vector(self) -> str | None:
        """A value for `since` after what a replayable queue handed out."""
        passed = self._port.read(lambda core: dict(core.passed))
        return format_vector(passed) if passed else None

    @property
    def error(self) -> ZBrokerError | None:
        """What ended it, if it was not `close`."""
        return self._port.what_ended_it

    def ack(self, messages: Iterable[QueueMessage]) -> None:
        """Many are done, at once. Else as `QueueMessage.ack`.

        Raises: ZBrokerError bad_field (they are another consumer's), what ended the consumer.
        """
        many: Sequence[QueueMessage] = messages if isinstance(messages, list) else list(messages)
        port = self._port
        if any(message._head.settler is not port for message in many):
            raise ZBrokerError("bad_field", "messages of another consumer: ack them there")
        if many:
            port.settle(ACK, many)

    def flow(self, messages: int | None = None) -> None:
        """Asks for so many more messages; starts a consumer that was stopped or drained.

        messages: needed for a consumer with flow="credit", and for no other. Returns at once.
        Raises: ZBrokerError bad_field, what ended the consumer.
        """
        counted = self._port.core.flow.counted
        if counted != (messages is not None):
            needed = "needs a number of messages" if counted else "takes no number of messages"
            reason = f"a consumer with flow={self._command.flow_mode!r} {needed}"
            raise ZBrokerError("bad_field", reason)
        count = 0 if messages is None else whole_number("messages", messages, MESSAGES_MAX)
        self._port.ask(lambda core: core.flow.change(CreditChange("flow", count)))

    # -- what a shell adds --------------------------------------------------------------------

    def _ask_at_once(self) -> None:
        """Its client has made it."""

    def _check_here(self) -> None:
        """Raises: what ended it, or RuntimeError in an event loop that is not its own."""

    # -- what both do -------------------------------------------------------------------------

    async def _open(self, end: float | None) -> None:
        """Has the broker asked for it, once, and waits until it has accepted or refused it."""
        self._check_here()
        port, core = self._port, self._port.core
        if core.granted is not None or self._closed:
            return
        if self._accept_by is None:
            self._accept_by = time.monotonic() + self._accept_s
            port.start()
        by = self._accept_by if end is None else min(end, self._accept_by)
        answered = await port.until(
            lambda: core.granted is not None or port.over or port.halted, by
        )
        if core.granted is None and not self._closed:
            if not answered and time.monotonic() < self._accept_by:
                return
            error = self.error or self._not_accepted()
            self._closed = True
            port.close()
            raise error

    async def _take(self, most: int | None, end: float | None) -> list[QueueMessage] | None:
        if messages := self._port.take_now(most):
            return messages
        await self._open(end)
        return await self._port.take(most, end)

    async def _next_batch(self, timeout: float | None) -> list[QueueMessage] | None:
        messages = await self._take(None, end_of(timeout))
        if messages is not None and not messages:
            raise ZBrokerError("timeout", f"no message in {timeout} s", "the consumer goes on")
        return messages

    async def _fetch(self, most: int = 1, timeout: float | None = None) -> list[QueueMessage]:
        """Up to `most` messages: those that are there, or else the first in `timeout` seconds.

        Empty if none comes, and at the end. Raises: ZBrokerError, what ended it.
        """
        whole_number("most", most)
        found = await self._take(most, end_of(timeout)) or []
        while 0 < len(found) < most and (more := self._port.take_now(most - len(found))):
            found += more
        return found

    async def _flush(self, timeout: float | None = None) -> None:
        """Waits until all that was acked, released or rejected before is durable.

        Raises: ZBrokerError "timeout"; what the broker refused since the last flush; what ended it.
        """
        self._check_here()
        port, number = self._port, self._port.read(lambda core: core.settling.number)
        if not await port.until(lambda: self._is_through(number), end_of(timeout)):
            what = f"{self.unsettled} messages are not settled after {timeout} s"
            raise ZBrokerError("timeout", what)
        port.read(lambda _core: self._check_through(number))

    async def _stop(self, timeout: float | None = TIMEOUT_S) -> None:
        """Has the broker send nothing more until `flow`. What it holds it keeps: messages that came
        before this returned can still be taken.

        Raises: ZBrokerError "timeout"; what ended it.
        """
        await self._change(CreditChange("stop"), timeout)

    async def _drain(self, timeout: float | None = TIMEOUT_S) -> int:
        """Has the broker send what there is for it now, as far as its credit and its backlog go;
        then it is stopped. How many messages that brought; take them with `fetch`.

        Raises: ZBrokerError "timeout"; what ended it.
        """
        return (await self._change(CreditChange("drain"), timeout)).sent

    async def _acquire(
        self, rows: Iterable[int | Placed], timeout: float | None = TIMEOUT_S
    ) -> list[int]:
        """Takes messages out of the order of the queue, by their positions at the broker: numbers,
        or rows of `Client.browse`. The positions of those that it gets, which come as others do.

        The rest is with other consumers, or cannot be had now; see reference/consumer-credit.md.
        Raises: ZBrokerError "timeout" (it may still get them), bad_field (a queue without leases);
        what ended it.
        """
        end = end_of(timeout)
        await self._open(end)
        positions = BitMap64(row if isinstance(row, int) else row.position for row in rows)
        parts = [positions[at : at + PICKED_MAX] for at in range(0, len(positions), PICKED_MAX)]
        picks = self._port.ask(lambda core: [core.flow.pick(part) for part in parts])
        what = f"{len(positions)} messages are not acquired"
        await self._answered(
            lambda: all(pick.got is not None or pick.error for pick in picks), end, what
        )
        found: list[int] = []
        for pick in picks:
            if pick.error is not None:
                raise pick.error
            found += pick.got or ()
        return found

    async def _change(self, change: CreditChange, timeout: float | None) -> CreditChange:
        end = end_of(timeout)
        await self._open(end)
        self._port.ask(lambda core: core.flow.change(change))
        await self._answered(lambda: change.done, end, f"no answer to {change.kind}")
        if change.error is not None:
            raise change.error
        return change

    async def _answered(self, done: Callable[[], bool], end: float | None, what: str) -> None:
        """Raises: ZBrokerError "timeout", what ended it."""
        port = self._port
        if not await port.until(lambda: done() or port.over or port.halted, end):
            raise ZBrokerError("timeout", f"{what} in time")
        if not done():
            raise self.error or ZBrokerError("closed", "the consumer was closed")

    async def _close(self, *, flush: bool = True, timeout: float | None = CLOSE_S) -> None:
        """Ends it, once what was settled is durable (for `timeout` seconds).

        With threads any of them may do so. What it has besides, also what the program works on,
        comes back to the queue at once. Messages published after this returned go to others; only a
        broker that does not answer for 5 s may count one more delivery of them.
        Raises: ZBrokerError of `flush`; it is closed all the same.
        """
        if self._closed:
            return
        self._check_here()
        self._closed = True
        self._port.halt()
        try:
            if flush and self.error is None:
                if self.unsettled:
                    await self._flush(timeout)
                await self._port.cancel(end_of(CANCEL_S))
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._port.close()

    def _not_accepted(self) -> ZBrokerError:
        """There was no answer in time."""
        timeout = self._accept_s
        if self._listeners.listener not in self._listeners.endpoints():
            return ZBrokerError(
                "not_ready",
                f"the broker named no queues listener in {timeout} s",
                "it has no queues, or still starts",
            )
        return ZBrokerError("timeout", f"the broker did not accept the consumer in {timeout} s")

    def _is_through(self, number: int) -> bool:
        """All that was settled up to `number` is durable, or the broker will not say so."""
        core = self._port.core
        return core.settling.through(number) or core.state is Phase.ENDED or self.error is not None

    def _check_through(self, number: int) -> None:
        """Raises: ZBrokerError, what ended it before, or the first refusal since the last time."""
        settling = self._port.core.settling
        refusal, settling.refusal = settling.refusal, None
        if not settling.through(number):
            raise self.error or ZBrokerError("closed", "the consumer was closed")
        if refusal is not None:
            raise refusal

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}({self.queue!r}, held={self.held}, unsettled={self.unsettled})"


class Consumer(BaseConsumer):
    """Made by `Client.consume`. Iterate over it, or over `.batches()`, or call `.fetch()`.

    Any number of threads may do so at once: each message is handed to one of them. It reconnects
    by itself, and then acks again. Messages come while fewer than `backlog` of them
    are not settled: so settle each one.
    """

    _port_type = ConsumerThread

    def __init__(self, listeners: ListenerEndpoints, options: ConsumeOptions) -> None:
        super().__init__(listeners, options)
        # at the end of the program, and of a forgotten consumer
        self._finalizer = weakref.finalize(self, self._port.close)

    # -- taking -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[QueueMessage]:
        """Each message, until it is closed, or a replayable queue came to `until`.

        Raises: ZBrokerError with the code with which the broker ended it.
        """
        while True:
            messages: list[QueueMessage] | None = self._port.take_now(1)
            if not messages:  # mostly there is one: without a coroutine each
                messages = run(self._take(1, None))
            if not messages:
                return
            yield messages[0]

    def batches(self, timeout: float | None = None) -> Iterator[list[QueueMessage]]:
        """Lists of messages as they came: with `ack` of a list the fast path.

        Raises: ZBrokerError "timeout" if none comes for `timeout` seconds; calling again goes on.
        """
        while (messages := run(self._next_batch(timeout))) is not None:
            yield messages

    def fetch(self, most: int = 1, timeout: float | None = None) -> list[QueueMessage]:
        """Up to `most` messages: those that are there, or else the first in `timeout` seconds.

        Empty if none comes, and at the end. Raises: ZBrokerError, what ended it.
        """
        return run(self._fetch(most, timeout))

    # -- its end ------------------------------------------------------------------------------

    stop = blocking(BaseConsumer._stop)
    drain = blocking(BaseConsumer._drain)
    acquire = blocking(BaseConsumer._acquire)
    flush = blocking(BaseConsumer._flush)
    close = blocking(BaseConsumer._close)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Closes it; after an exception without waiting for the broker."""
        self.close(flush=kind is None)

    # -- helpers ------------------------------------------------------------------------------

    def _ask_at_once(self) -> None:
        """Waits until the broker has accepted it. Raises: ZBrokerError with its code, "timeout"."""
        try:
            run(self._open(None))
            if self.error is not None:
                raise self.error
        except BaseException:
            self.close(flush=False)
            raise

    def _let_go(self) -> None:
        super()._let_go()
        self._finalizer.detach()
