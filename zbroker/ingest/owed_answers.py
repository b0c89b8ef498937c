"""Answers to clients whose queues are full: merged, and sent as soon as there is space. Pure.

    decided    persisted 1, processed 2 (u), persisted 3, error 4, persisted 5, persisted 6
    owed       processed 2 (u), persisted 3, error 4, persisted 6

Nothing newer is sent to a client before what it is owed. Acks are merged between two answers of
another kind, never across one: an ack of all up to a sequence, before the refusal of one of them,
would say that it is persisted. Topics that are not recorded, and sequences that a filter kept out,
stay named.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from zbroker.engine.effects import Answer
from zbroker.ingest.acks import MergedAcks, runs_of
from zbroker.ingest.contract import Effect
from zbroker.wire.messages import Ack, Heartbeat

RETRY_MS: Final = 20  # how soon a full queue is tried again
RETRY_MAX: Final = 32  # answers of one client at a time: most of them may come back
OWED_MAX: Final = 1_000  # answers of one client, as many as its queue takes
NAMED_PER_ANSWER: Final = 10  # so many topics count as one answer,
RUNS_PER_ANSWER: Final = 100  # and so many runs of filtered sequences


class OwedAnswers:
    """clients: those that are owed some. next_wake_ms: when they are tried again."""

    def __init__(self) -> None:
        self.clients: dict[bytes, _Owed] = defaultdict(_Owed)
        self.next_wake_ms: int | None = None

    def put(self, answer: Answer, now_ms: int) -> None:
        """A full queue did not take this."""
        self.next_wake_ms = now_ms + RETRY_MS
        self.clients[answer.rid].put(answer.message)

    def hold_back(self, effects: Iterable[Effect]) -> list[Effect]:
        """What of `effects` is performed now; answers to clients that are owed some are kept."""
        now: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Answer) and effect.rid in self.clients:
                self.clients[effect.rid].put(effect.message)
            else:
                now.append(effect)
        return now

    def due(self, now_ms: int) -> list[Answer]:
        """Takes out answers that may be tried again; `put` those back that are refused again."""
        if self.next_wake_ms is None or now_ms < self.next_wake_ms:
            return []
        found: list[Answer] = []
        for rid, owed in list(self.clients.items()):
            found += (Answer(rid, message) for message in owed.take())
            if owed.empty:
                del self.clients[rid]
        self.next_wake_ms = now_ms if self.clients else None
        return found

    def too_slow(self) -> list[bytes]:
        """Clients that are owed too much, each once."""
        return [rid for rid, owed in self.clients.items() if owed.too_much and not owed.ended]

    def end(self, rid: bytes, message: Struct) -> None:
        """This is the last that is kept for a client, until it has read all of it."""
        self.clients[rid].put(message)
        self.clients[rid].ended = True

    def forget(self, rid: bytes) -> None:
        """This client is gone."""
        self.clients.pop(rid, None)


class _Owed:
    """What one client is owed. ended: nothing more is kept for it."""

    def __init__(self) -> None:
        self.ended = False
        self._returned: list[Struct] = []  # of those that were tried, in their order
        self._tried: list[Struct] = []
        self._answers: deque[Struct] = deque()
        self._acks = _OwedAcks()

    def put(self, message: Struct) -> None:
        if any(tried is message for tried in self._tried):
            self._returned.append(message)
        elif self.ended:
            return
        elif isinstance(message, Heartbeat):
            if self.empty:  # else anything that it is owed tells it as much
                self._answers.append(message)
        elif not isinstance(message, Ack) or not self._acks.add(message):
            self._end_acks()
            self._answers.append(message)

    def take(self) -> list[Struct]:
        """The first of them."""
        self._answers.extendleft(reversed(self._returned))
        self._returned = []
        if len(self._answers) < RETRY_MAX:
            self._end_acks()
        many = min(RETRY_MAX, len(self._answers))
        self._tried = [self._answers.popleft() for _ in range(many)]
        return self._tried

    def _end_acks(self) -> None:
        """No later ack is merged with those before."""
        self._answers += self._acks.acks()
        self._acks = _OwedAcks()

    @property
    def empty(self) -> bool:
        return not (self._answers or self._returned or self._acks.size)

    @property
    def too_much(self) -> bool:
        return len(self._answers) + len(self._returned) + self._acks.size > OWED_MAX


class _OwedAcks(MergedAcks):
    """Acks without another answer between them. processed: messages that were taken, no more."""

    __slots__ = ("_processed",)

    def __init__(self) -> None:
        super().__init__()
        self._processed: Ack | None = None

    def add(self, ack: Ack) -> bool:
        """False if it is an answer to one command, which cannot be merged."""
        if ack.cid is not None:
            return False
        if ack.type == "persisted":
            self.returned(runs_of(ack.returned))
            self.persisted(ack.seq or 0, ack.duplicate)
            self._durability = ack.durability
        elif ack.unrecorded is not None:
            self.passed(ack.seq or 0, ack.unrecorded, runs_of(ack.filtered))
        else:
            self._processed = ack
        return True

    def acks(self) -> list[Ack]:
        """All of them, in the order of their sequences."""
        return super().acks() + ([self._processed] if self._processed is not None else [])

    @property
    def size(self) -> int:
        """As how many answers they count."""
        size = (self._seq is not None) + (self._processed is not None)
        size += len(self._returned) // RUNS_PER_ANSWER
        for names in filter(None, (self._before, self._after)):
            size += 1 + len(names.topics) // NAMED_PER_ANSWER + len(names.runs) // RUNS_PER_ANSWER
        return size
