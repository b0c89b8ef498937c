"""A queue next to a simple reference: a dict of messages, each in one place. All is compared.

The reference does not choose: it sees whom the queue offers what, and says whether it may.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work import consumers
from zbroker.queues.work.consumers import GRACE_MS
from zbroker.queues.work.delays import due_of
from zbroker.queues.work.leases import end_of
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import MS_NS, Arrivals, Offer, Outcome


@dataclass
class Message:
    """place: ready, leased or delayed. going: fates of the outcomes that are on their way."""

    position: int
    priority: int = 0
    group: int = 0
    barrier: bool = False
    expires: int | None = None
    place: str = "ready"
    going: list[str] = field(default_factory=list)
    was_leased: bool = False
    end: int | None = None
    due: int = 0
    failures: int = 0
    cancels: int = 0
    uncounted: int = 0
    suspect: bool = False
    expired: bool = False

    @property
    def idle(self) -> bool:
        return self.place == "ready" and not self.going and not self.expired

    @property
    def before(self) -> int:
        """Deliveries that came back."""
        return self.failures + self.uncounted + self.suspect

    @property
    def known(self) -> int:
        """Of these, those that are recorded."""
        return self.failures + self.suspect


@dataclass
class Member:
    """every: its filter is true for each so many-th position; 0: it has none. most: its backlog
    adapts, up to that; 0: it stays as it is."""

    key: int
    client: str
    backlog: int
    every: int = 0
    most: int = 0
    lost: bool = False
    held: set[int] = field(default_factory=set)
    until: int = 0

    def wants(self, position: int) -> bool:
        return not self.every or position % self.every == 0

    @property
    def spare(self) -> int:
        return self.backlog - len(self.held)


class World:
    """Every method does something to both, and compares."""

    def __init__(self, config: QueueConfig, kind: type[Queue] = Queue) -> None:
        self.config = config
        self.kind = kind
        self.queue = kind(config)
        self.once = config.semantics == "at-most-once"
        self.now = Now(1_000, 10**15)
        self.messages: dict[int, Message] = {}
        self.members: dict[int, Member] = {}
        self.pending: list[Outcome] = []
        self.log: list[tuple[Any, ...]] = []
        self.left: dict[int, Message] = {}
        self.sent: set[int] = set()
        self.next_position = 5
        self.last_key = 0
        self.joined: list[int] = []
        self.turn = 0

    # -- log ----------------------------------------------------------------------------------

    def publish(self, messages: Iterable[Message]) -> None:
        many = list(messages)
        for message in many:
            self.messages[message.position] = message
            self.next_position = max(self.next_position, message.position + 1)
        entered = self._entered(many)
        self.log.append(("entered", entered))
        self.queue.entered(entered)

    def _entered(self, many: list[Message]) -> Arrivals:
        many.sort(key=lambda one: one.position)
        barriers = BitMap64([one.position for one in many if one.barrier])
        return Arrivals(
            BitMap64([one.position for one in many]),
            array("Q", [one.priority for one in many]) if self.config.priority else None,
            array("q", [one.group for one in many]) if self.config.group_key else None,
            barriers if self.config.barrier else None,
            [(one.expires, one.position, one.position + 1) for one in many if one.expires],
        )

    def next_units(self) -> list[int]:
        """What may land next: dead letters take longer, but those of one message stay in order."""
        found, before = [], BitMap64()
        for at, outcome in enumerate(self.pending):
            if outcome.positions.isdisjoint(before):
                found.append(at)
            before |= outcome.positions
        return found

    def land(self, at: int = 0) -> None:
        """A unit is in the log, and the fold reads it."""
        outcome = self.pending.pop(at)
        for position in outcome.positions:
            message = self.messages.get(position)
            if message is None:
                continue
            message.going.remove(outcome.fate)
            if outcome.fate == "gone":
                self.left[position] = self.messages.pop(position)
            else:
                message.failures += 1
                message.cancels += outcome.why == "cancelled"
                self._failed(message, outcome.due_ns)
        self.log.append((outcome.fate, outcome.positions, outcome.why, outcome.due_ns))
        self._fold(self.queue, self.log[-1])

    def _failed(self, message: Message, due: int) -> None:
        message.due = 0 if message.barrier or message.expired else due
        if not message.going:
            message.was_leased = False
            message.place = "delayed" if message.due else "ready"

    def refuse(self, at: int = 0) -> None:
        """A unit is refused."""
        outcome = self.pending.pop(at)
        for position in outcome.positions:
            message = self.messages.get(position)
            if message is None:
                continue
            message.going.remove(outcome.fate)
            for member in self.members.values():
                if self.once:
                    member.held.discard(position)
            self.sent.discard(position)
            if not message.going:
                message.uncounted += message.was_leased
                message.was_leased = False
                message.place = "delayed" if message.due else "ready"
        self.queue.undo(outcome)

    def _fold(self, queue: Queue, fact: tuple[Any, ...]) -> None:
        match fact:
            case ("entered", entered):
                queue.entered(entered)
            case ("gone", positions, _, _):
                queue.gone(positions)
            case ("failed", positions, why, due):
                queue.failed(positions, why, due)
            case ("barrier", position):
                queue.gone(BitMap64([position]))
            case ("returned", entered):
                queue.returned(entered.positions, entered)
            case _:
                raise AssertionError(fact)

    def bring_back(self, many: list[Message]) -> None:
        """Dead letters come back, or what is still here begins again."""
        for message in many:
            old = self.messages.get(message.position)
            if old is None:
                self.messages[message.position] = message
                self.sent.discard(message.position)
                for member in self.members.values():
                    member.held.discard(message.position)
                self.left.pop(message.position, None)
            else:
                old.failures = old.cancels = old.uncounted = 0
                old.suspect = False
        entered = self._entered(many)
        self.log.append(("returned", entered))
        self._fold(self.queue, self.log[-1])

    # -- consumers ----------------------------------------------------------------------------

    def join(self, client: str, backlog: int, every: int = 0) -> int:
        self.last_key += 1
        most = self.config.max_per_subscription
        adapts = not most and not backlog
        if not most:
            most = consumers.BACKLOG_LEAST if self.once else consumers.BACKLOG_MOST
            most = min(most, self.config.max_backlog or most)
        granted = min(backlog or most, most)
        got = self.queue.join(self.last_key, client, backlog, bool(every), self.now)
        assert got == granted
        first = min(consumers.BACKLOG_LEAST, most) if adapts else granted
        self.members[self.last_key] = Member(
            self.last_key, client, first, every, most=granted if adapts else 0
        )
        self._forget_lost()
        return self.last_key

    def leave(self, key: int) -> None:
        self.queue.leave(key)
        self._come_back(self.members.pop(key).held)

    def _come_back(self, positions: set[int]) -> None:
        if self.once:
            return
        for position in positions:
            message = self.messages[position]
            message.place, message.end = "ready", None
            message.uncounted += 1

    def lose(self, key: int) -> None:
        member = self.members[key]
        member.lost, member.until = True, self.now.mono_ms + GRACE_MS
        end = end_of(self.now.mono_ms, self.config.lease or GRACE_MS)
        assert end is not None
        for position in member.held if not self.once else ():
            message = self.messages[position]
            message.end = end if message.end is None else min(end, message.end)
        self.queue.lose(key, self.now)
        self._forget_lost()

    def come_again(self, key: int, holding: set[int]) -> None:
        """A client whose connection was lost has joined again."""
        member, kept = self.members[key], set[int]()
        for old in [one for one in self.members.values() if one.lost]:
            if old.client == member.client:
                kept |= old.held & holding
                del self.members[old.key]
                self._come_back(old.held - holding)
        if not self.once:
            for position in kept:
                self.messages[position].end = end_of(self.now.mono_ms, self.config.lease)
        member.held |= kept
        got = self.queue.reclaim(key, member.client, BitMap64(holding), self.now)
        assert set(got) == kept

    def _forget_lost(self) -> None:
        self._forget_idle()
        for one in list(self.members.values()):
            if one.lost and self.once and one.until <= self.now.mono_ms:
                del self.members[one.key]

    def _forget_idle(self) -> None:
        """Whatever freed the last of what they held."""
        for one in list(self.members.values()):
            if one.lost and not one.held:
                del self.members[one.key]

    # -- offers -------------------------------------------------------------------------------

    def offer(self, no_credit: frozenset[int] = frozenset()) -> None:
        offers = self.offer_once(no_credit)
        while self.queue.more:
            assert offers
            assert any(one.every for one in self.members.values())
            offers = self.offer_once(no_credit)

    def adapt(self) -> None:
        """The backlogs that may change: within bounds, and not too far at a time."""
        for one in self.members.values():
            now = self.queue.consumers.by_key[one.key]
            now.adapt(self.now.mono_ms)
            if one.most:
                least, old = min(consumers.BACKLOG_LEAST, one.most), one.backlog
                assert least <= now.backlog <= one.most, "beyond its bounds"
                assert old // 2 <= now.backlog <= 2 * old, "too far at a time"
                one.backlog = now.backlog
            assert now.backlog == one.backlog

    def offer_once(self, no_credit: frozenset[int]) -> list[Offer]:
        self.adapt()
        self.notice()
        self._look()
        able = [
            one for one in self.members.values()
            if not one.lost and one.key not in no_credit and one.spare > 0
        ]  # fmt: skip
        before = {one.key: len(one.held) for one in able}
        credit = {key: key not in no_credit for key in self.members}
        offers = self.queue.offer(self.now, credit)
        if offers and offers[0].barrier:
            self._barrier(offers)
            return offers
        self._judge_order(offers)
        for offer in offers:
            self._take(offer, able)
        if not self.queue.more:
            self._judge_left(able)
        self._judge_fairness(able, before, offers)
        return offers

    def _look(self) -> None:
        for one in self.members.values():
            while one.every and not one.lost:
                part = self.queue.unlooked(one.key, 3, self.now)
                if not part:
                    break
                assert len(part) <= 3
                for position in part:
                    assert position in self.messages
                fits = BitMap64([position for position in part if one.wants(position)])
                self.queue.looked(one.key, part, fits)

    def barrier(self) -> int:
        return min((p for p, one in self.messages.items() if one.barrier), default=1 << 62)

    def _barrier(self, offers: list[Offer]) -> None:
        at = self.barrier()
        assert at == min(self.messages), "something is before the barrier"
        assert self.messages[at].idle
        assert [one.consumer for one in offers] == [
            one.key for one in self.members.values() if not one.lost
        ]
        for offer in offers:
            assert offer == Offer(offer.consumer, BitMap64([at]), barrier=True)
        self.messages[at].going.append("gone")
        self.messages[at].was_leased = True
        self.pending.append(Outcome(BitMap64([at]), "gone", "barrier"))

    def _order(self, message: Message) -> tuple[int, int]:
        return -message.priority, message.position

    def _judge_order(self, offers: list[Offer]) -> None:
        """The next ones, in order, of those that can be offered."""
        if any(one.every for one in self.members.values()):
            return
        order = [self._order(self.messages[p]) for offer in offers for p in offer.positions]
        assert order == sorted(order) or not self.config.priority
        taken = {position for offer in offers for position in offer.positions}
        last = max(order, default=(-(1 << 70), 0))
        for message in self._surely():
            assert message.position in taken or self._order(message) > last, "passed over"

    def _surely(self) -> list[Message]:
        """Whatever nothing holds back."""
        barrier = self.barrier()
        found = [one for one in self.messages.values() if one.idle and one.position < barrier]
        return [one for one in found if self._is_head(one)]

    def _mates(self, message: Message) -> list[Message]:
        if not message.group:
            return []
        return [
            one for one in self.messages.values()
            if one.group == message.group and one is not message
        ]  # fmt: skip

    def _is_head(self, message: Message) -> bool:
        mates = self._mates(message)
        busy = any(one.going or one.place != "ready" or one.expired for one in mates)
        return not busy and all(one.position > message.position for one in mates)

    def _take(self, offer: Offer, able: list[Member]) -> None:
        member = self.members[offer.consumer]
        assert member in able
        assert not offer.barrier
        assert offer.first_commit == self.once
        expected = [self.messages[position].before + 1 for position in offer.positions]
        reported = self.queue.deliveries_of(offer.positions)
        assert reported == (expected if set(expected) != {1} else None)
        for position in offer.positions:
            message = self.messages[position]
            assert message.idle, f"{message} cannot be offered"
            assert member.wants(position)
            assert position < self.barrier(), "behind a barrier"
            for mate in self._mates(message):
                assert mate.place != "leased", "two of a key are under way"
                assert mate.position > position, "not the first of its key"
            if self.once:
                assert position not in self.sent, "sent twice"
                self.sent.add(position)
                message.going.append("gone")
            else:
                message.place = "leased"
                message.end = end_of(self.now.mono_ms, self.config.lease)
            member.held.add(position)
        assert member.spare >= 0
        if self.once:
            self.pending.append(Outcome(offer.positions, "gone", "sent"))

    def _leased(self) -> int:
        return sum(len(one.held) for one in self.members.values())

    def _judge_left(self, able: list[Member]) -> None:
        """Nothing waits that somebody has room for."""
        if self.config.max_backlog:
            assert self._leased() <= max(self.config.max_backlog, 0)
            if self._leased() == self.config.max_backlog:
                return
        for message in self._surely():
            for member in able:
                assert not (member.spare > 0 and member.wants(message.position)), "left behind"

    def _judge_fairness(
        self, able: list[Member], before: dict[int, int], offers: list[Offer]
    ) -> None:
        if any(one.every for one in self.members.values()):
            return
        got = {one.key: len(one.held) - before[one.key] for one in able}
        fairness = self.config.fairness or ("round-robin" if self.once else "proportional")
        if fairness == "proportional":
            for one in able:
                for other in able:
                    if got[one.key] and other.spare > 0:
                        share = (len(one.held) - 1) / one.backlog
                        assert share <= (len(other.held) + 1) / other.backlog + 1e-9, "unfair"
        elif fairness == "round-robin":
            assert got == self._dealt(able, before, sum(got.values())), "out of turn"

    def _dealt(self, able: list[Member], before: dict[int, int], count: int) -> dict[int, int]:
        """One after the other, as at a table."""
        dealt = {one.key: 0 for one in able}
        while count:
            keys = [one.key for one in able if one.backlog > before[one.key] + dealt[one.key]]
            self.turn = min(keys, key=lambda key: (key <= self.turn, key))
            dealt[self.turn] += 1
            count -= 1
        return dealt

    # -- settling -----------------------------------------------------------------------------

    def settle(
        self, key: int | None, positions: set[int], verb: str, *, delay_ms: int = 0,
        reason: str = "", lease_ms: int = 0,
    ) -> None:  # fmt: skip
        expected, taken = {}, 0
        for position in sorted(positions):
            done, entry = self._settled(key, position, verb, delay_ms, reason, lease_ms)
            taken += done
            if entry is not None:
                expected[position] = entry
        result = self.queue.settle(
            key, BitMap64(positions), verb, self.now,
            delay_ms=delay_ms, reason=reason, lease_ms=lease_ms,
        )  # fmt: skip
        assert result.taken == taken
        assert result.ignored == len(positions) - taken
        self._compare(result.outcomes, expected)

    def _settled(
        self, key: int | None, position: int, verb: str, delay_ms: int, reason: str, lease_ms: int
    ) -> tuple[bool, tuple[Any, ...] | None]:
        """Whether it was taken, and its outcome."""
        strict = self.config.leasing == "strict"
        holder = next((one for one in self.members.values() if position in one.held), None)
        if strict and holder is not None and holder.key != key:
            return False, None
        if self.once and holder is not None and verb != "extend":
            holder.held.discard(position)
            return True, None
        message = self.messages.get(position)
        if message is None or "gone" in message.going or (message.going and verb != "ack"):
            return False, None
        leased = message.place == "leased" and not message.going
        if verb in ("release", "extend") and not leased:
            return False, None
        if verb == "extend":
            message.end = end_of(self.now.mono_ms, lease_ms or self.config.lease)
            if message.end is None and holder is not None and holder.lost:
                message.end = end_of(self.now.mono_ms, self.config.lease or GRACE_MS)
            return True, None
        if verb == "release":
            return True, self._fails(message, "cancelled", delay_ms)
        letter = (reason or "rejected") if verb == "reject" else ""
        return True, self._goes(message, "acked" if verb == "ack" else "rejected", letter)

    def _pull(self, message: Message) -> None:
        for one in self.members.values():
            if not self.once:
                one.held.discard(message.position)
        if not message.going:
            message.was_leased = message.place == "leased"
        message.place, message.end = "ready", None

    def _goes(self, message: Message, why: str, letter: str = "") -> tuple[Any, ...]:
        self._pull(message)
        message.going.append("gone")
        return ("gone", why, 0, letter if self.config.dead_letter else "")

    def _fails(self, message: Message, why: str, delay_ms: int = 0) -> tuple[Any, ...]:
        config = self.config
        if message.expired:
            return self._goes(message, "time_limit", "time_limit")
        if config.max_deliveries and message.known + 1 >= config.max_deliveries:
            return self._goes(message, "max_deliveries", "max_deliveries")
        if config.max_cancels and why == "cancelled" and message.cancels + 1 >= config.max_cancels:
            return self._goes(message, "max_cancels", "max_cancels")
        retry = config.retry_delay
        if not delay_ms and retry:
            delay_ms = retry[min(message.failures, len(retry) - 1)]
        self._pull(message)
        message.going.append("failed")
        return ("failed", why, due_of(self.now.wall_ns, delay_ms), "")

    def _compare(self, outcomes: list[Outcome], expected: dict[int, tuple[Any, ...]]) -> None:
        reported: dict[int, tuple[Any, ...]] = {}
        for outcome in outcomes:
            assert outcome.positions
            for position in outcome.positions:
                assert position not in reported
                reported[position] = (outcome.fate, outcome.why, outcome.due_ns, outcome.letter)
        assert reported == expected
        self.pending += outcomes

    def purge(self, before: int, leased: bool) -> None:
        expected = {
            message.position: self._goes(message, "purged")
            for message in list(self.messages.values())
            if not message.going and (leased or message.place != "leased")
            if not before or message.position < before
        }
        assert set(self.queue.purgeable(before, leased)) == set(expected)
        self._compare(self.queue.purge(before, leased), expected)

    def unreadable(self, positions: set[int]) -> None:
        expected = {}
        for position in positions:
            message = self.messages.get(position)
            if self.once:
                for member in self.members.values():
                    member.held.discard(position)
            if message is not None and "gone" not in message.going:
                expected[position] = self._goes(message, "unreadable")
                message.was_leased = message.was_leased and "failed" in message.going
        self._compare(self.queue.unreadable(BitMap64(positions)), expected)

    # -- time ---------------------------------------------------------------------------------

    def notice(self) -> None:
        for message in self.messages.values():
            if message.expires is not None and message.expires <= self.now.wall_ns:
                message.expired = True
            if message.expired or message.due <= self.now.wall_ns:
                message.due = 0
            if message.place == "delayed" and not message.due:
                message.place = "ready"

    def pass_time(self, ms: int) -> None:
        """To the next thing that happens by itself, or `ms` later if that is sooner."""
        wake = self.queue.next_wake(self.now)
        if wake is not None:
            assert wake >= 0
            ms = min(ms, max(0, wake - self.now.mono_ms))
        self.now = Now(self.now.mono_ms + ms, self.now.wall_ns + ms * MS_NS)
        if wake is None or wake > self.now.mono_ms:
            self._assert_idle()
        else:
            self.tick()

    def _assert_idle(self) -> None:
        """Nothing happens before the wake that was reported."""
        for message in self.messages.values():
            if message.place == "leased":
                assert message.end is None or message.end > self.now.mono_ms
            if message.place == "delayed" and not message.going:
                assert message.due > self.now.wall_ns
            assert message.going or message.place == "leased" or not message.expired

    def tick(self) -> None:
        self.notice()
        expected = {}
        for message in list(self.messages.values()):
            if message.place == "leased" and not message.going:
                if message.end is not None and message.end <= self.now.mono_ms:
                    expected[message.position] = self._fails(message, "lease_ended")
            elif message.expired and not message.going:
                expected[message.position] = self._goes(message, "time_limit", "time_limit")
        self._compare(self.queue.tick(self.now), expected)
        self._forget_lost()
        wake = self.queue.next_wake(self.now)
        assert wake is None or wake > self.now.mono_ms, "it would tick for ever"

    # -- restart ------------------------------------------------------------------------------

    def restart(self, horizon: int, from_tables: bool) -> None:
        """The process ends; what it had not committed is lost. Log and tables give the same."""
        loaded, folded = self.kind(self.config), self.kind(self.config)
        loaded.load(self.queue.dump())
        for fact in self.log:
            self._fold(folded, fact)
        self.pending, self.members, self.sent = [], {}, set()
        self.turn = 0
        for message in self.messages.values():
            if message.place == "leased" or message.going:
                message.place = "delayed" if message.due else "ready"
            message.going, message.was_leased, message.uncounted = [], False, 0
            message.suspect = not self.once and message.position < horizon
            message.end = None
        for queue in (loaded, folded):
            queue.suspect(horizon)
        self._compare_queues(loaded, folded)
        self.queue = loaded if from_tables else folded
        self.queue.places.notice(self.now)
        self.last_key = 0
        self.notice()

    def _compare_queues(self, one: Queue, other: Queue) -> None:
        reported = []
        for queue in (one, other):
            twin = self.kind(self.config)
            twin.load(queue.dump())
            reported.append((
                twin.tick(self.now), twin.here, twin.places.ready.standing,
                twin.places.delays.dump(), twin.places.barrier, twin.counts(),
                [queue.where(p, self.now)[3:] for p in sorted(self.messages)],
            ))  # fmt: skip
            twin.check()
        assert reported[0] == reported[1]

    # -- compare ------------------------------------------------------------------------------

    def check(self) -> None:
        queue = self.queue
        queue.check()
        self._forget_idle()
        assert set(queue.here) == set(self.messages)
        assert queue.lowest == min(self.messages, default=None)
        assert set(queue.going) == {p for p, one in self.messages.items() if one.going}
        assert (queue.places.barrier or 1 << 62) == self.barrier()
        for key, member in self.members.items():
            assert set(queue.leased(key)) == member.held
        assert set(queue.consumers.by_key) == set(self.members)
        for position, message in self.messages.items():
            self._check_one(position, message)
        numbers = queue.counts()
        assert sum(numbers) == len(self.messages)
        assert min(numbers) >= 0
        assert bool(self.messages) or queue.why_nothing(self.now) == ["it is empty"]
        assert queue.memory_bytes() > 0
        for position in self.left:
            assert queue.where(position, self.now).state == "gone"

    def _check_one(self, position: int, message: Message) -> None:
        standing = self.queue.where(position, self.now)
        leased = message.place == "leased" and not message.going
        extra = leased or (bool(message.going) and message.was_leased)
        assert standing.deliveries == message.before + extra
        assert standing.failures == message.failures
        if message.going or (message.expired and not leased):
            assert standing.state == "going"
        elif leased:
            assert (standing.state, standing.due) == ("leased", message.end)
            assert standing.consumer is not None
            assert position in self.members[standing.consumer].held
        elif message.place == "delayed":
            assert standing.state in ("delayed", "ready", "waiting")
            assert standing.state == "delayed" or message.due <= self.now.wall_ns
        elif position >= self.barrier():
            assert standing.state == "waiting"
        elif self._is_head(message):
            assert standing.state == "ready"
        else:
            assert standing.state in ("ready", "waiting")
