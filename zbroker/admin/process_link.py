"""The admin's questions to rooms with doors: who is connected there, and what it wants or holds."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Mapping
from typing import Final, TypeVar

import msgspec
import zmq

from zbroker import sockets
from zbroker.clock import Clock
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import queue_surveys as q
from zbroker.wire import surveys as s

ANSWER_MAX_MS: Final = 2_000  # a room answers in one turn; one that does not is named instead
ASKING_MAX: Final = 8  # questions at once: each has sockets of its own
LOOK_MS: Final = 100  # how soon a question is given up when the admin stops

Context = zmq.Context[zmq.Socket[bytes]]
Question = s.Question | q.QueuesQuestion
_ANSWERS: Final = msgspec.msgpack.Decoder(s.Answer | q.QueuesAnswer)
A = TypeVar(
    "A",
    s.Subscriptions, s.Topics, s.Clients, s.Disconnected, s.RefusalRows,
    q.Queues, q.Consumers, q.Explained, q.Browsed, q.Changed, q.Points,
)  # fmt: skip


class ProcessLink:
    """Asks several rooms at once, from any thread. `desks`: by room."""

    def __init__(self, context: Context, desks: Mapping[str, str], clock: Clock) -> None:
        self._context = context
        self._desks = desks
        self._clock = clock
        self._free = threading.Semaphore(ASKING_MAX)
        self._cids = itertools.count(1)
        self._closed = False

    @property
    def rooms(self) -> Collection[str]:
        """Every room with a desk."""
        return self._desks.keys()

    def ask(
        self,
        answer: type[A],
        question: Question,
        rooms: Collection[str],
        wait_ms: int = 0,
    ) -> dict[str, A | None]:
        """What each of `rooms` answers; None for one that does not in time.

        wait_ms: how long that is, 0: ANSWER_MAX_MS.

        Raises: ClientError not_ready, if too many others ask, or the admin stops.
        """
        if not self._free.acquire(timeout=ANSWER_MAX_MS / 1_000):
            raise ClientError("not_ready", "others ask the doors", "try again")
        desks = {room: self._desks[room] for room in rooms}
        try:
            question = msgspec.structs.replace(question, cid=next(self._cids))
            return self._ask(answer, question, desks, wait_ms or ANSWER_MAX_MS)
        finally:
            self._free.release()

    def _ask(
        self, kind: type[A], question: Question, desks: Mapping[str, str], wait_ms: int
    ) -> dict[str, A | None]:
        """On new sockets: what is queued in an old one would go to a room's successor."""
        answers: dict[str, A | None] = dict.fromkeys(desks)
        poller = zmq.Poller()
        waiting = {sockets.dealer(self._context, at): room for room, at in desks.items()}
        try:
            for dealer in waiting:
                dealer.send(codec.encode(question), zmq.NOBLOCK)
                poller.register(dealer, zmq.POLLIN)
            deadline_ms = self._clock.mono_ms() + wait_ms
            while None in answers.values() and (left_ms := self._left_ms(deadline_ms)) > 0:
                for dealer, _ in poller.poll(min(left_ms, LOOK_MS)):
                    frames = sockets.receive(dealer)
                    answer = _ANSWERS.decode(frames[0].buffer) if frames else None
                    if isinstance(answer, kind) and answer.cid == question.cid:
                        answers[waiting[dealer]] = answer
        finally:
            for dealer in waiting:
                dealer.close(linger=0)
        return answers

    def _left_ms(self, deadline_ms: int) -> int:
        if self._closed:
            raise ClientError("not_ready", "the admin is stopping")
        return deadline_ms - self._clock.mono_ms()

    def close(self) -> None:
        """Gives up the questions that are under way."""
        self._closed = True
        got = [self._free.acquire(timeout=ANSWER_MAX_MS / 1_000) for _ in range(ASKING_MAX)]
        self._free.release(sum(got))  # who asks later finds out at once
