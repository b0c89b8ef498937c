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
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zbroker.engine.effects import Answer
from zbroker.ingest.acks import UnrecordedNames, runs_of
from zbroker.ingest.contract import Effect
from zbroker.wire.messages import Ack, Heartbeat

RETRY_MS: Final = 20  # how soon a full queue is tried again
RETRY_MAX: Final = 32  # answers of one client at a time: most of them may come back
OWED_MAX: Final = 1_000  # answers of one client, as many as its queue takes
NAMED_PER_ANSWER: Final = 10  # so many topics count as one answer,
RUNS_PER_ANSWER: Final = 100  # and so many runs of filtered sequences


class OwedAnswers:
    """By client, in their order. next_wake_ms: when they are tried again."""

    def __init__(self) -> None:
        self._owed: dict[bytes, _Owed] = defaultdict(_Owed)
        self.next_wake_ms: int | None = None

    def __bool__(self) -> bool:
        return bool(self._owed)

    def put(self, answer: Answer, now_ms: int) -> None:
        """A full queue did not take this."""
        self.next_wake_ms = now_ms + RETRY_MS
        self._owed[answer.rid].put(answer.message)

    def behind(self, effects: Iterable[Effect]) -> list[Effect]:
        """What of `effects` is performed now; answers to clients that are owed some are kept."""
        now: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Answer) and effect.rid in self._owed:
                self._owed[effect.rid].put(effect.message)
            else:
                now.append(effect)
        return now

    def due(self, now_ms: int) -> list[Answer]:
        """Takes out answers that may be tried again; `put` those back that are refused again."""
        if self.next_wake_ms is None or now_ms < self.next_wake_ms:
            return []
        found: list[Answer] = []
        for rid, owed in list(self._owed.items()):
            found += (Answer(rid, message) for message in owed.take())
            if owed.empty:
                del self._owed[rid]
        self.next_wake_ms = now_ms if self._owed else None
        return found

    def too_slow(self) -> list[bytes]:
        """Clients that are owed too much, each once."""
        return [rid for rid, owed in self._owed.items() if owed.too_much and not owed.ended]

    def end(self, rid: bytes, message: Struct) -> None:
        """This is the last that is kept for a client, until it has read all of it."""
        self._owed[rid].put(message)
        self._owed[rid].ended = True

    def forget(self, rid: bytes) -> None:
        """This client is gone."""
        self._owed.pop(rid, None)


class _Owed:
    """What one client is owed. ended: nothing more is kept for it."""

    def __init__(self) -> None:
        self.ended = False
        self._returned: list[Struct] = []  # of those that were tried, in their order
        self._tried: list[Struct] = []
        self._answers: deque[Struct] = deque()
        self._acks = _MergedAcks()

    def put(self, message: Struct) -> None:
        if any(tried is message for tried in self._tried):
            self._returned.append(message)
        elif self.ended:
            return
        elif isinstance(message, Heartbeat):
            if self.empty:  # else anything that it is owed tells it as much
                self._answers.append(message)
        elif not isinstance(message, Ack) or not self._acks.add(message):
            self._answers += self._acks.take()
            self._answers.append(message)

    def take(self) -> list[Struct]:
        """The first of them."""
        self._answers.extendleft(reversed(self._returned))
        self._returned = []
        if len(self._answers) < RETRY_MAX:
            self._answers += self._acks.take()
        many = min(RETRY_MAX, len(self._answers))
        self._tried = [self._answers.popleft() for _ in range(many)]
        return self._tried

    @property
    def empty(self) -> bool:
        return not (self._answers or self._returned or self._acks.size)

    @property
    def too_much(self) -> bool:
        return len(self._answers) + len(self._returned) + self._acks.size > OWED_MAX


class _MergedAcks:
    """Acks without another answer between them.

    before, after: unrecorded messages before the newest recorded one, and after it.
    """

    def __init__(self) -> None:
        self._before: UnrecordedNames | None = None
        self._persisted: Ack | None = None
        self._after: UnrecordedNames | None = None
        self._processed: Ack | None = None  # messages that were taken, which says no more

    def add(self, ack: Ack) -> bool:
        """False if it is an answer to one command, which cannot be merged."""
        if ack.cid is not None:
            return False
        if ack.type == "persisted":
            if self._persisted is not None:
                ack = replace(ack, duplicate=ack.duplicate + self._persisted.duplicate)
            self._persisted = ack
            self._before, self._after = _joined(self._before, self._after), None
        elif ack.unrecorded is not None:
            topics = dict.fromkeys(ack.unrecorded)
            names = UnrecordedNames(ack.seq or 0, topics, runs_of(ack.filtered))
            self._after = _joined(self._after, names)
        else:
            self._processed = ack
        return True

    def take(self) -> Sequence[Ack]:
        """Takes out all of them, in the order of their sequences."""
        before = self._before.acks() if self._before is not None else ()
        after = self._after.acks() if self._after is not None else ()
        acks = [*before, self._persisted, *after, self._processed]
        self._before = self._persisted = self._after = self._processed = None
        return [ack for ack in acks if ack is not None]

    @property
    def size(self) -> int:
        """As how many answers they count."""
        size = (self._persisted is not None) + (self._processed is not None)
        for names in filter(None, (self._before, self._after)):
            size += 1 + len(names.topics) // NAMED_PER_ANSWER + len(names.runs) // RUNS_PER_ANSWER
        return size


def _joined(older: UnrecordedNames | None, newer: UnrecordedNames | None) -> UnrecordedNames | None:
    if older is None or newer is None:
        return older or newer
    older.add(newer.seq, newer.topics, newer.runs)
    return older
