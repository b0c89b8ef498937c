"""The admin's questions to the other processes of the instance, and what is asked every second.

ProcessLink asks processes with a listener, QueueLink the queues process, ReplicationLink that of
the links to other instances; Sampler asks the supervisor, and keeps what it reports for /history
and for rates.
"""

from __future__ import annotations

import itertools
import os
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
from zbroker.wire import branch_surveys as b
from zbroker.wire import codec
from zbroker.wire import exchange_surveys as x
from zbroker.wire import queue_surveys as q
from zbroker.wire import replicas as r
from zbroker.wire import session_surveys as y
from zbroker.wire import surveys as s
from zbroker.wire.internal import Refusable
from zbroker.wire.supervision import AskStatus, Status

ANSWER_MAX_MS: Final = 2_000  # a process answers in one turn; a silent one is named instead
ASKING_MAX: Final = 8  # questions at once: each has sockets of its own
LOOK_MS: Final = 100  # how soon a question is given up when the admin stops
QUEUES: Final = "queues"
REPLICATION: Final = "replication"
CHANGE_MAX_MS: Final = 5_000  # a change is answered when it is durable
NICE: Final = 19
STOP_WAIT_S: Final = 1.0  # then the process ends all the same: unfinished copies are not used
SUPERVISOR: Final = "supervisor"

Context = zmq.Context[zmq.Socket[bytes]]
Question = s.Question | s.IngestQuestion | q.QueuesQuestion | r.LinkQuestion | AskStatus
_ANSWERS: Final = msgspec.msgpack.Decoder(s.Answer | q.QueuesAnswer | r.LinkAnswer | Status)
A = TypeVar(
    "A",
    s.Subscriptions, s.Topics, s.Clients, s.Disconnected, s.RefusalRows, s.IngestDrained,
    q.Queues, q.Consumers, q.Explained, q.Browsed, q.Changed, q.Points, q.QueuesDrained,
    x.ExchangesSurveyed, x.BindingsSurveyed, y.SessionsSurveyed, b.BranchesSurveyed,
    b.BranchChanged, r.Links, r.LinkChanged, Status,
)  # fmt: skip


class ProcessLink:
    """Asks several processes at once, from any thread. endpoints: by process."""

    def __init__(self, context: Context, endpoints: Mapping[str, str], clock: Clock) -> None:
        self._context = context
        self._endpoints = endpoints
        self._clock = clock
        self._free = threading.Semaphore(ASKING_MAX)
        self._cids = itertools.count(1)
        self._closed = False

    @property
    def processes(self) -> Collection[str]:
        """Every process that can be asked."""
        return self._endpoints.keys()

    def ask(
        self, answer: type[A], question: Question, processes: Collection[str], wait_ms: int = 0
    ) -> dict[str, A | None]:
        """The answer of each of these processes; None for one that is silent for `wait_ms`.

        Units: wait_ms 0 is ANSWER_MAX_MS.
        Raises: ClientError not_ready, if too many questions are under way, or the admin stops.
        """
        if not self._free.acquire(timeout=ANSWER_MAX_MS / 1_000):
            raise ClientError("not_ready", "too many questions are under way", "try again")
        endpoints = {process: self._endpoints[process] for process in processes}
        try:
            question = msgspec.structs.replace(question, cid=next(self._cids))
            return self._ask(answer, question, endpoints, wait_ms or ANSWER_MAX_MS)
        finally:
            self._free.release()

    def _ask(
        self, kind: type[A], question: Question, endpoints: Mapping[str, str], wait_ms: int
    ) -> dict[str, A | None]:
        """Asks on new sockets: messages queued in an old one would go to the next process."""
        answers: dict[str, A | None] = dict.fromkeys(endpoints)
        poller = zmq.Poller()
        waiting = {sockets.dealer(self._context, at): process for process, at in endpoints.items()}
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
        self._free.release(sum(got))  # a later question is refused at once


class QueueLink:
    """Asks the queues process, from any thread."""

    def __init__(self, link: ProcessLink) -> None:
        self._link = link

    def look(self, kind: type[A], question: q.QueuesQuestion) -> A:
        """What there is. Raises: ClientError not_ready, or the refusal of the process."""
        answer = self._link.ask(kind, question, [QUEUES])[QUEUES]
        if answer is None:
            raise ClientError("not_ready", "the queues process does not answer", "try again")
        if isinstance(answer, Refusable) and answer.code:
            raise ClientError(answer.code, answer.reason)
        return answer

    def change(self, question: q.QueuesQuestion) -> q.Changed:
        """Makes a change; it is durable then. Raises: ClientError likewise."""
        answer = self._change(q.Changed, question)
        if answer.code:
            raise ClientError(answer.code, answer.reason, answer.hint)
        return answer

    def decide(self, question: b.ChangeBranch) -> b.BranchChanged:
        """The same of a distributed transaction."""
        answer = self._change(b.BranchChanged, question)
        if answer.code:
            raise ClientError(answer.code, answer.reason)
        return answer

    def _change(self, kind: type[A], question: q.QueuesQuestion) -> A:
        answer = self._link.ask(kind, question, [QUEUES], CHANGE_MAX_MS)[QUEUES]
        if answer is None:
            reason = "the queues process did not answer in time; it may be done all the same"
            raise ClientError("not_ready", reason, "look before you ask again")
        return answer


class ReplicationLink:
    """Asks the replication process, from any thread. on: the config has such a process."""

    def __init__(self, link: ProcessLink, *, on: bool) -> None:
        self._link = link
        self.on = on

    def look(self) -> r.Links:
        """Every link. Raises: ClientError not_ready."""
        if not self.on:
            return r.Links(0, [], 0)
        answer = self._link.ask(r.Links, r.AskLinks(0), [REPLICATION])[REPLICATION]
        if answer is None:
            raise ClientError("not_ready", "the replication process does not answer", "try again")
        return answer

    def change(self, question: r.ChangeLink) -> r.LinkChanged:
        """Makes a change. Raises: ClientError likewise, or the refusal of the process."""
        if not self.on:
            reason = f"there is no destination {question.link!r}: this instance does not replicate"
            raise ClientError("not_found", reason, "see [[destination]] in the config")
        answer = self._link.ask(r.LinkChanged, question, [REPLICATION])[REPLICATION]
        if answer is None:
            reason = "the replication process did not answer in time; it may be done all the same"
            raise ClientError("not_ready", reason, "look before you ask again")
        if answer.code:
            raise ClientError(answer.code, answer.reason)
        return answer


class WorkThread:
    """A niced thread that works, and sleeps until it is woken: threads that serve go first."""

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._begin, name=name, daemon=True)

    def stop(self) -> None:
        """Gives up what is under way; returns soon, and the process may end all the same."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WAIT_S)

    def _begin(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        self._run()

    def _run(self) -> None:
        """Works until `_stop`."""
        raise NotImplementedError


class PeriodicThread:
    """Calls `look` each second in a thread of its own: a process that hangs delays nothing else."""

    every_s = 1.0

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins now."""
        self._thread.start()

    def stop(self) -> None:
        """Ends at the latest when a question that is under way is given up."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(self.every_s)

    def look(self) -> None:
        """Asks once."""
        raise NotImplementedError


class Sampler:
    """Numbers of all processes, each second; the loop calls `take`, any thread the rest."""

    def __init__(
        self,
        supervisor: ProcessLink,
        clock: Clock,
        more: Callable[[], Mapping[str, Stats]] = dict,
    ) -> None:
        """more: statistics of processes beside those that they report to the supervisor."""
        self._supervisor = supervisor
        self._more = more
        self._clock = clock
        self._rings = Rings()
        self._lock = threading.Lock()  # of the rings

    def status(self) -> Status | None:
        """The state of all processes; None if the supervisor does not answer in time."""
        try:
            return self._supervisor.ask(Status, AskStatus(0), [SUPERVISOR])[SUPERVISOR]
        except ClientError:
            return None

    def take(self) -> Status | None:
        """Asks; None if the supervisor is silent: then this second has no sample."""
        status = self.status()
        if status is not None:
            stats = stats_of(status)
            for process, numbers in self._more().items():
                stats[process] = stats.get(process, {}) | numbers
            with self._lock:
                self._rings.take(stats, self._now_s())
        return status

    def rates(self) -> dict[str, float]:
        """The mean of the last seconds."""
        with self._lock:
            return self._rings.rates()

    def history(self, seconds: int) -> dict[str, Any]:
        """The document of GET /history."""
        with self._lock:
            wall_s = self._clock.wall_ns() / 1e9
            return self._rings.history(seconds, self._now_s(), wall_s)

    def _now_s(self) -> float:
        return self._clock.mono_ms() / 1_000
