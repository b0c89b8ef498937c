"""The admin's questions to the delivery workers: what subscriptions each has."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

import msgspec
import zmq

from zbroker import sockets
from zbroker.clock import Clock
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire.surveys import FROM_DESK, AskSubscriptions, Subscriptions

ANSWER_MAX_MS: Final = 2_000  # a worker answers in one turn; one that does not is named instead

Context = zmq.Context[zmq.Socket[bytes]]
Answers = dict[str, Subscriptions | None]


class DeliveryLink:
    """Asks all workers at once, one question at a time, from any thread. `desks`: by room."""

    def __init__(self, context: Context, desks: Mapping[str, str], clock: Clock) -> None:
        self._context = context
        self._desks = desks
        self._clock = clock
        self._lock = threading.Lock()
        self._cid = 0
        self._closed = False

    def ask(self, question: AskSubscriptions) -> Answers:
        """What each worker answers; None for one that does not in time.

        Raises: ClientError not_ready, if others ask already.
        """
        if not self._lock.acquire(timeout=ANSWER_MAX_MS / 1_000):
            raise ClientError("not_ready", "others ask for the subscriptions", "try again")
        try:
            if self._closed:
                raise ClientError("not_ready", "the admin is stopping")
            self._cid += 1
            return self._ask(msgspec.structs.replace(question, cid=self._cid))
        finally:
            self._lock.release()

    def _ask(self, question: AskSubscriptions) -> Answers:
        """On new sockets: what is queued in an old one would go to a worker's successor."""
        answers: Answers = dict.fromkeys(self._desks)
        poller = zmq.Poller()
        waiting = {sockets.dealer(self._context, at): room for room, at in self._desks.items()}
        try:
            for dealer in waiting:
                dealer.send(codec.encode(question), zmq.NOBLOCK)
                poller.register(dealer, zmq.POLLIN)
            deadline_ms = self._clock.mono_ms() + ANSWER_MAX_MS
            while None in answers.values():
                events = poller.poll(max(0, deadline_ms - self._clock.mono_ms()))
                if not events:
                    break
                for dealer, _ in events:
                    frames = sockets.receive(dealer)
                    answer = FROM_DESK.decode(frames[0].buffer) if frames else None
                    if answer is not None and answer.cid == question.cid:
                        answers[waiting[dealer]] = answer
        finally:
            for dealer in waiting:
                dealer.close(linger=0)
        return answers

    def close(self) -> None:
        """Waits for a question that is under way."""
        with self._lock:
            self._closed = True
