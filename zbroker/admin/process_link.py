"""The admin's questions to rooms with doors: who is connected there, and what it wants or holds."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

import msgspec
import zmq

from zbroker import sockets
from zbroker.admin.documents import Stats, stats_of
from zbroker.admin.rates import Rings
from zbroker.clock import Clock
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire import queue_surveys as q
from zbroker.wire import surveys as s
from zbroker.wire.internal import Status

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


ROOM: Final = "queues"
CHANGE_MAX_MS: Final = 5_000  # what changes something is answered when it is durable


class QueueLink:
    """Answers to any thread."""

    def __init__(self, link: ProcessLink) -> None:
        self._link = link

    def look(self, kind: type[A], question: q.QueuesQuestion) -> A:
        """What is. Raises: ClientError not_ready, or what the room says."""
        answer = self._link.ask(kind, question, [ROOM])[ROOM]
        if answer is None:
            raise ClientError("not_ready", "the queues room does not answer", "try again")
        if isinstance(answer, q.Explained | q.Browsed) and answer.code:
            raise ClientError(answer.code, answer.reason)
        return answer

    def change(self, question: q.QueuesQuestion) -> q.Changed:
        """What has become so. Raises: ClientError likewise."""
        answer = self._link.ask(q.Changed, question, [ROOM], CHANGE_MAX_MS)[ROOM]
        if answer is None:
            reason = "the queues room did not answer in time; it may be done all the same"
            raise ClientError("not_ready", reason, "look before you ask again")
        if answer.code:
            raise ClientError(answer.code, answer.reason, answer.hint)
        return answer


STATUS_MAX_MS: Final = 2_000  # the supervisor answers in one turn


class SupervisorLink:
    """Asks the supervisor, one request at a time, from any thread."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, clock: Clock
    ) -> None:
        self._lock = threading.Lock()
        self._dealer = sockets.dealer(context, endpoint)
        self._clock = clock
        self._cid = 0

    def status(self) -> m.Status | None:
        """What it knows, or None when it does not answer in time."""
        with self._lock:
            if self._dealer.closed:
                return None
            self._cid += 1
            self._dealer.send(codec.encode(m.AskStatus(self._cid)))
            deadline_ms = self._clock.mono_ms() + STATUS_MAX_MS
            while (left_ms := deadline_ms - self._clock.mono_ms()) > 0:
                if not self._dealer.poll(left_ms):
                    return None
                frames = sockets.receive(self._dealer)
                answer = codec.FROM_SUPERVISOR.decode(frames[0].buffer) if frames else None
                if isinstance(answer, m.Status) and answer.cid == self._cid:
                    return answer
            return None

    def close(self) -> None:
        """Waits for a request that is under way."""
        with self._lock:
            self._dealer.close(linger=0)


class Sampler:
    """`take` by the loop's thread, the rest by any."""

    def __init__(
        self,
        supervisor: SupervisorLink,
        clock: Clock,
        more: Callable[[], Mapping[str, Stats]] = dict,
    ) -> None:
        """more: statistics of rooms beside those that they tell the supervisor."""
        self._supervisor = supervisor
        self._more = more
        self._clock = clock
        self._rings = Rings()
        self._lock = threading.Lock()  # of the rings

    def take(self) -> Status | None:
        """Asks; None if the supervisor is silent: then this second has no sample."""
        status = self._supervisor.status()
        if status is not None:
            stats = stats_of(status)
            for room, numbers in self._more().items():
                stats[room] = stats.get(room, {}) | numbers
            with self._lock:
                self._rings.take(stats, self._now_s())
        return status

    def status(self) -> Status | None:
        """As it is now."""
        return self._supervisor.status()

    def rates(self) -> dict[str, float]:
        """Of the last seconds."""
        with self._lock:
            return self._rings.rates()

    def history(self, seconds: int) -> dict[str, Any]:
        """The document of GET /history."""
        with self._lock:
            wall_s = self._clock.wall_ns() / 1e9
            return self._rings.history(seconds, self._now_s(), wall_s)

    def _now_s(self) -> float:
        return self._clock.mono_ms() / 1_000
