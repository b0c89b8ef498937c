"""The question of a start: where does this log end, and what do peers hold beyond it? Pure.

    UNDECIDED --all peers answered, one knows more, or ANSWER_MS are over--> RAISED
    CONFIRMED from the start on: a note proves the end, or there are no peers

While it is undecided no record of any origin is placed: it would take a position that a record may
have which only a peer holds. Without a note that proves the end (end_note.py) a generation
begins, also where no peer holds more: the host may have been set back to an older disk, and
subscribers may know positions that only the lost disk gave. The answers are awaited because the
new number has to be above all that peers have seen. Each later answer is the same question, for a
host that was set back without a start: a peer that knows more then has a generation begun before
the next record. So has a reader that has seen a later one (later_generations.py).

What peers hold of older generations comes back from them, as records of another origin. A publisher
whose acknowledged messages are among those would send them again as new ones: `returning` says for
which generations that is so, and is where `broker_behind` is to be decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from zbroker.ids import Origin
from zbroker.journal.end_note import Proof

ANSWER_MS: Final = 2_000  # publishers wait no longer for an answer
UNPROVED: Final = (
    "no note in memory proves that this is where the log ended last, as after a reboot"
)
SEEN: Final = "a reader has seen a later generation of this instance, which is lost"


class PeerAnswer(NamedTuple):
    """How far a peer has each generation of this instance, and the highest one that it heard of.

    asked_in: the generation of this instance when it was asked. whole: the same of those that it
    has with all topics, which can come back; None: all of them.
    """

    peer: str
    holds: Mapping[int, int]
    generation: int = 0
    asked_in: int = 0
    whole: Mapping[int, int] | None = None

    @property
    def returns(self) -> Mapping[int, int]:
        """What can come back from it."""
        return self.holds if self.whole is None else self.whole


class Decision(Enum):
    """See above."""

    UNDECIDED = "undecided"
    CONFIRMED = "confirmed"
    RAISED = "raised"


class StartQuestion:
    """`state`: the decision. peers: names of those that are configured; none: there is no question.

    why: why the newest generation was begun, for people.
    """

    def __init__(self, peers: Iterable[str], proved: Proof) -> None:
        self._missing = set(peers)
        self._lost = bool(self._missing) and proved is Proof.LOST
        sure = not self._missing or proved is Proof.PROVED
        self._sure = sure
        self.state = Decision.CONFIRMED if sure else Decision.UNDECIDED
        self._until_ms: int | None = None
        self._held: dict[int, int] = {}  # of each generation, by any peer
        self.highest = 0  # generation that a peer has seen
        self.why = ""

    @property
    def open(self) -> bool:
        """True while nothing may be placed."""
        return self.state is Decision.UNDECIDED

    @property
    def due_ms(self) -> int | None:
        """When it is decided without the answers that are missing."""
        return self._until_ms if self.open else None

    def heard(self, answers: Iterable[PeerAnswer], here: Origin, high: int) -> bool:
        """Whether a generation has to begin. high: of the last record that `here` gave."""
        more = seen = False
        for answer in answers:
            self._missing.discard(answer.peer)
            for generation, position in answer.returns.items():
                self._held[generation] = max(position, self._held.get(generation, 0))
            newest = max(answer.holds, default=0)
            self.highest = max(self.highest, newest, answer.generation)
            more = more or newest > here.generation or answer.holds.get(here.generation, 0) > high
            seen = seen or answer.generation > here.generation
        if more:
            return self._raised("a peer holds more of this instance than its own log")
        if seen:
            return self._raised(SEEN)
        if self.open and not self._missing:
            return self._raised(UNPROVED)
        return False

    def read(self, generation: int, here: int) -> bool:
        """The same when a reader has seen this generation. While it is undecided its word ends
        nothing: the number will be higher."""
        self.highest = max(self.highest, generation)
        return not self.open and generation > here and self._raised(SEEN)

    def tick(self, now_ms: int) -> bool:
        """The same, as time goes by."""
        if not self.open:
            return False
        if self._lost:
            return self._raised("the log ends before what was in it")
        if self._until_ms is None:
            self._until_ms = now_ms + ANSWER_MS
        if now_ms < self._until_ms:
            return False
        return self._raised(f"no answer of {', '.join(sorted(self._missing))}")

    def unheard(self, now_ms: int) -> bool:
        """Whether peers may say soon that they hold what this log has lost, also where it is
        decided without them."""
        if self._sure or not self._missing:
            return False
        if self._until_ms is None:
            self._until_ms = now_ms + ANSWER_MS
        return now_ms < self._until_ms

    def _raised(self, why: str) -> bool:
        self.state, self.why = Decision.RAISED, why
        return True

    def returning(self, high: Mapping[int, int], now: int) -> dict[int, int]:
        """Generations before `now` of which a peer holds more than there is here, and how far."""
        held = self._held.items()
        return {g: at for g, at in held if g < now and at > high.get(g, 0)}
