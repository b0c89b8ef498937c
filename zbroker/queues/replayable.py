"""A replayable queue: one consumer, from any place, as often as it likes; nothing goes. Pure.

    kept --ack--> kept and noted            kept --purge--> gone

Consuming writes nothing: how far a consumer is, is its own business. An acknowledgement is a mark
on the message. Only a purge takes messages out. Source: seed 003.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.engine.contract import Now
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.queues.work.sets import below, bytes_of, first_of, insert, lowest, remove, without
from zbroker.queues.work.values import Arrivals, Offer, Outcome, SettleResult, Standing

CHUNK: Final = 1_000  # messages of one offer


class ReplayReader(Struct):
    """The consumer. position: the next one that it gets; it ends before `until`.

    passed: a vector; it had what that covers at another instance. had: these messages, here.
    """

    key: int
    client: str
    position: int
    until: int = U63_MAX
    sent: int = 0
    passed: Mapping[Origin, int] = field(default_factory=dict)
    had: BitMap64 = field(default_factory=BitMap64)


class Replayable:
    """A replayable queue.

    here: messages that were not purged. noted_ones: those of them that were acknowledged. going:
    acknowledgements on their way. purged_to: no message before it is there, and the last one before
    it was purged.
    """

    def __init__(self) -> None:
        self.here = BitMap64()
        self.noted_ones = BitMap64()
        self.going = BitMap64()
        self.purged_to = 0
        self.reader: ReplayReader | None = None

    # -- fold ---------------------------------------------------------------------------------

    def entered(self, entered: Arrivals) -> None:
        """Messages of its topic."""
        insert(self.here, entered.positions)

    def gone(self, positions: BitMap64) -> None:
        """They were purged."""
        for one in (self.here, self.noted_ones, self.going):
            remove(one, positions)

    def purged(self, before: int) -> bool:
        """Messages before this position were purged. True: its reader was to get some of them."""
        return self.take_out(self.before(before))

    def take_out(self, taken: BitMap64) -> bool:
        """These messages were purged. True: its reader was to get some of them."""
        if not taken:
            return False
        self.purged_to = max(self.purged_to, taken.max() + 1)
        self.gone(taken)
        reader = self.reader
        if reader is None:
            return False
        missed = first_of(without(taken, reader.had), reader.position)
        return missed is not None and missed < reader.until

    def before(self, position: int) -> BitMap64:
        """Its messages before this position."""
        return below(self.here, position)

    def noted(self, positions: BitMap64) -> None:
        """They were acknowledged."""
        self.going -= positions
        self.noted_ones |= positions & self.here

    @property
    def lowest(self) -> int | None:
        """The oldest message."""
        return first_of(self.here)

    # -- the consumer -------------------------------------------------------------------------

    def check_free(self, client: str) -> None:
        """Raises: ClientError resource_locked, if another client reads it."""
        if self.reader is not None and self.reader.client != client:
            raise ClientError(
                "resource_locked", f"client {self.reader.client!r} reads this replayable queue"
            )

    def open(self, key: int, client: str, position: int, until: int = U63_MAX) -> None:
        """Everything from there on, in order. A client that comes again replaces itself."""
        self.reader = ReplayReader(key, client, min(position, until), until)

    def skip(self, passed: Mapping[Origin, int], had: BitMap64) -> None:
        """The consumer does not get these; more of what a vector covers may come."""
        assert self.reader is not None
        self.reader.passed, self.reader.had = passed, had

    def has(self, key: int) -> bool:
        """Whether this is the consumer."""
        return self.reader is not None and self.reader.key == key

    def leave(self, key: int) -> None:
        """The consumer is gone; the next one says where it begins."""
        if self.reader is not None and self.reader.key == key:
            self.reader = None

    def lose(self, key: int, now: Now) -> None:
        """Its connection is lost: the same."""
        self.leave(key)

    def offer(self, now: Now, credit: Mapping[int, bool]) -> list[Offer]:
        """The next messages, if the consumer has room for some."""
        reader = self.reader
        if reader is None or not credit.get(reader.key, True):
            return []
        while positions := lowest(self.here, CHUNK, reader.until, reader.position):
            reader.position = positions.max() + 1
            if fresh := without(positions, reader.had):
                reader.sent += len(fresh)
                return [Offer(reader.key, fresh)]
        return []

    def go_back(self, key: int, position: int) -> None:
        """Messages from there on were offered and not sent: they are offered again."""
        if self.reader is not None and self.reader.key == key:
            self.reader.position = min(self.reader.position, position)

    def ended(self, folded: int) -> bool:
        """True if the consumer was given everything before its end; `folded`: of the log."""
        reader = self.reader
        if reader is None or reader.until == U63_MAX:
            return False
        following = first_of(self.here, reader.position)
        return folded >= reader.until if following is None else following >= reader.until

    # -- what is asked of it ------------------------------------------------------------------

    def settle(self, positions: BitMap64, verb: str) -> SettleResult:
        """Acknowledges. Raises: ClientError bad_command: nothing goes, so nothing comes back."""
        if verb != "ack":
            raise ClientError("bad_command", f"a replayable queue knows no {verb}")
        known = (positions & self.here) - self.noted_ones - self.going
        self.going |= known
        outcomes = [Outcome(known, "noted", "acked")] if known else []
        taken = len(positions & self.here)
        return SettleResult(outcomes, taken, len(positions) - taken)

    def undo(self, outcome: Outcome) -> None:
        """It was not taken into the log."""
        self.going -= outcome.positions

    def unreadable(self, positions: BitMap64) -> list[Outcome]:
        """They cannot be read any more."""
        lost = positions & self.here
        return [Outcome(lost, "gone", "unreadable")] if lost else []

    def tick(self, now: Now) -> list[Outcome]:
        """Nothing ends by itself."""
        return []

    def next_wake(self, now: Now) -> int | None:
        """Nothing ends by itself."""
        return None

    # -- look ---------------------------------------------------------------------------------

    def deliveries_of(self, positions: BitMap64) -> list[int] | None:
        """Deliveries are not counted: that would be a write."""
        return None

    def where(self, position: int, now: Now) -> Standing:
        """Kept, or acked, or gone."""
        if position not in self.here:
            return Standing("gone")
        return Standing("acked" if position in self.noted_ones else "kept")

    def why_nothing(self, now: Now) -> list[str]:
        """Why the consumer gets nothing, the most important reason first."""
        if self.reader is None:
            return ["it has no consumer"]
        if first_of(self.here, self.reader.position) is not None:
            return ["the consumer has no credit: it has not read what it was sent"]
        return ["the consumer has read everything"]

    def memory_bytes(self) -> int:
        """Size of the sets, roughly."""
        return bytes_of(self.here, self.noted_ones)

    def dump(self) -> dict[str, bytes]:
        """For the tables."""
        return {
            "here": bytes(self.here.serialize()), "noted": bytes(self.noted_ones.serialize()),
            "purged": b"%d" % self.purged_to,
        }  # fmt: skip

    def load(self, rows: Mapping[str, bytes]) -> None:
        """From the tables."""
        self.here = BitMap64.deserialize(rows["here"])
        self.noted_ones = BitMap64.deserialize(rows["noted"])
        self.purged_to = int(rows["purged"])

    def check(self) -> None:
        """Asserts what is always true."""
        assert self.noted_ones.issubset(self.here)
        assert self.reader is None or self.reader.position <= self.reader.until or not self.here
