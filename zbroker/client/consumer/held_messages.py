"""The messages that a consumer holds, and their leases by its own clock. Pure.

    came in --> waiting --taken--> in hand --ack, release, reject--> settled
                   |                  |
                   +--lease lost--> gone    in hand, lease lost: only an ack still counts

The program takes messages that wait, and works on those in hand. A lease is lost when the broker
does not know it any more after a reconnect, and when its time is over before an extension was
answered: then another consumer may have the message, so one that still waits is dropped. Positions
of batches are runs nearly always, so the sets are small.

All leases are extended together, each half of a lease: so none is older than that. An extension
counts from when it was sent, once it was answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct
from pyroaring import BitMap64

from zbroker.client.consumer.message import QueueMessage
from zbroker.errors import ZBrokerError
from zbroker.log.records import of_ends
from zbroker.wire.queue_messages import Consuming


class HeldBatch(Struct, eq=False):
    """Messages that came together, and have not all been taken. at: of the next one."""

    messages: Sequence[QueueMessage]
    size: int  # in bytes of credit
    came_ms: int
    at: int = 0

    @property
    def rest(self) -> Sequence[QueueMessage]:
        return self.messages[self.at :] if self.at else self.messages


class HeldMessages:
    """By position. What a lease is not needed for (barriers) is in the line only."""

    def __init__(self) -> None:
        self.keeps = True  # a message that is taken is held until it is settled
        self.line: deque[HeldBatch] = deque()
        self.waiting = BitMap64()
        self.in_hand = BitMap64()
        self.lost = BitMap64()  # of those in hand
        self.size = 0  # bytes of what waits

    @property
    def leased(self) -> BitMap64:
        """The messages that are the consumer's own, as far as it knows."""
        return (self.in_hand - self.lost) | self.waiting

    def put(self, messages: Sequence[QueueMessage], size: int, now_ms: int) -> None:
        """A batch came in, and waits."""
        self.line.append(HeldBatch(messages, size, now_ms))
        self.size += size
        if not messages[0].barrier:
            self.waiting |= positions_of(messages)

    def take(self, most: int | None) -> tuple[list[QueueMessage], int]:
        """Up to `most` messages of the first batch, and the bytes of a batch that is used up."""
        batch = self.line[0]
        end = len(batch.messages) if most is None else batch.at + most
        taken, batch.at = list(batch.messages[batch.at : end]), end
        if not taken[0].barrier:
            self._hand_over(taken)
        return taken, self._used_up() if end >= len(batch.messages) else 0

    def _hand_over(self, taken: Sequence[QueueMessage]) -> None:
        if len(taken) == 1:
            self.waiting.discard(taken[0]._at)
            if self.keeps:
                self.in_hand.add(taken[0]._at)
            return
        positions = positions_of(taken)
        self.waiting -= positions
        if self.keeps:
            self.in_hand |= positions

    def settle(self, positions: BitMap64, *, ours: bool) -> BitMap64:
        """Those that are in hand, and are not any more. ours: without those that were lost."""
        found = positions & self.in_hand
        self.in_hand -= found
        if self.lost:
            gone = found & self.lost
            self.lost -= gone
            if ours:
                found -= gone
        return found

    def drop(self, positions: BitMap64) -> int:
        """They leave the line. Returns: the bytes of batches that are used up by that."""
        self.waiting -= positions
        freed, line = 0, self.line
        self.line = deque()
        for batch in line:
            rest = [m for m in batch.rest if m.barrier or m._at in self.waiting]
            if rest:
                batch.messages, batch.at = rest, 0
                self.line.append(batch)
            else:
                freed += batch.size
        self.size -= freed
        return freed

    def drop_first(self) -> int:
        """The first batch leaves the line. Returns: its bytes."""
        self.waiting -= positions_of(self.line[0].rest)
        return self._used_up()

    def keep(self, kept: BitMap64) -> int:
        """The rest is not ours any more. Returns: as `drop`."""
        self.lost = self.in_hand - kept
        gone = self.waiting - kept
        return self.drop(gone) if gone else 0

    def clear(self) -> None:
        """Nothing is held any more."""
        self.line.clear()
        self.waiting, self.in_hand, self.lost, self.size = BitMap64(), BitMap64(), BitMap64(), 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_hand)

    def check(self) -> None:
        """Asserts what is always true."""
        rest = [message for batch in self.line for message in batch.rest]
        assert BitMap64(m._at for m in rest if not m.barrier) == self.waiting
        assert self.size == sum(batch.size for batch in self.line)
        assert not self.waiting & self.in_hand
        assert self.lost <= self.in_hand
        assert all(batch.at < len(batch.messages) for batch in self.line)

    def _used_up(self) -> int:
        size = self.line.popleft().size
        self.size -= size
        return size


def positions_of(messages: Sequence[QueueMessage]) -> BitMap64:
    """Their positions, as a set."""
    return BitMap64([message._at for message in messages])


def kept_of(event: Consuming) -> BitMap64:
    """What the broker still has for a consumer. Raises: ZBrokerError bad_frame."""
    try:
        return of_ends(event.kept)
    except ValueError as error:
        raise ZBrokerError("bad_frame", f"the broker keeps no runs: {error}") from None


class ConsumerLeases:
    """lease_ms: as long as a lease of the queue lasts; 0: for ever, or there are none."""

    def __init__(self) -> None:
        self.lease_ms = 0
        self._due_ms: int | None = None  # when they are to be extended; None: none is held
        self._extended_ms = 0
        self._round: set[str] = set()  # the commands of the newest extension
        self._round_ms = 0
        self._longer: dict[int, int] = {}  # by position: the program's own, and until when

    def begin(self, lease_ms: int, now_ms: int) -> None:
        """The broker reported those that it still knows: they are extended at once."""
        self.lease_ms, self._extended_ms = lease_ms, now_ms
        self._round.clear()
        self._due_ms = now_ms if lease_ms else None

    def came(self, now_ms: int) -> None:
        """More of them begin."""
        if self._due_ms is None and self.lease_ms:
            self._due_ms = now_ms + self.lease_ms // 2

    def lengthen(self, positions: Iterable[int], lease_ms: int, now_ms: int) -> None:
        """The program asked for these: the next extensions must not make them shorter."""
        if lease_ms > self.lease_ms > 0:
            for position in positions:
                self._longer[position] = now_ms + lease_ms

    def hold(self, came_ms: int, now_ms: int) -> bool:
        """True if a lease that began at `came_ms` still lasts."""
        return not self.lease_ms or max(came_ms, self._extended_ms) + self.lease_ms > now_ms

    # -- extending ----------------------------------------------------------------------------

    def is_due(self, now_ms: int) -> bool:
        return self._due_ms is not None and now_ms >= self._due_ms

    def next_wake_ms(self) -> int | None:
        return self._due_ms

    def extend(self, leased: BitMap64, now_ms: int) -> BitMap64:
        """What of `leased` is to be extended now; when the next time is."""
        if self._longer:
            ends = now_ms + self.lease_ms
            self._longer = {
                position: until_ms
                for position, until_ms in self._longer.items()
                if until_ms > ends and position in leased
            }
            leased = leased - BitMap64(self._longer)
        self._due_ms = now_ms + max(1, self.lease_ms // 2) if leased or self._longer else None
        return leased

    def sent(self, cids: Iterable[str], now_ms: int) -> None:
        """The commands that extend all of them."""
        self._round, self._round_ms = set(cids), now_ms

    def settled(self, cid: str) -> None:
        """One of them is done."""
        if cid in self._round:
            self._round.discard(cid)
            if not self._round:
                self._extended_ms = self._round_ms
