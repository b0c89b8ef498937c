"""One queue, next to a simple reference, whatever is done to it in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from pyroaring import BitMap64

from tests.queues.work.machine import Machine
from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.limits import KIB, U63_MAX
from zbroker.queues.work import consumers, offers
from zbroker.queues.work.consumers import BACKLOG_LEAST, BACKLOG_MOST, QueueConsumer
from zbroker.queues.work.delivery_counts import DeliveryCounts
from zbroker.queues.work.grouped import Grouped
from zbroker.queues.work.leases import MessageLeases
from zbroker.queues.work.offers import OFFER_MAX
from zbroker.queues.work.places import MessagePlaces
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.ready import ReadyMessages
from zbroker.queues.work.values import Arrivals


def config(**kwargs: Any) -> QueueConfig:
    defaults: dict[str, Any] = {"name": "q", "max_per_subscription": 8, "lease": 1_000}
    return QueueConfig(**{**defaults, **kwargs})


PLAIN = [
    config(),
    config(lease=0),
    config(fairness="round-robin"),
    config(fairness="fast", leasing="strict"),
    config(max_backlog=3, lease=30_000),
    config(max_per_subscription=0),
    config(max_per_subscription=0, max_backlog=6),
    config(max_deliveries=2, dead_letter="dead"),
    config(max_cancels=1, max_deliveries=3, retry_delay=[10, 2_000]),
    config(max_cancels=2, dead_letter="dead", retry_delay=[0, 100]),
]
PRIORITY = [config(priority="/p"), config(priority="/p", max_deliveries=2, retry_delay=[50])]
GROUP = [config(group_key="/g"), config(group_key="/g", retry_delay=[50], max_backlog=3)]
BARRIER = [config(barrier="/b"), config(barrier="/b", group_key="/g")]
ONCE = [
    config(semantics="at-most-once"),
    config(semantics="at-most-once", max_per_subscription=0),
    config(semantics="at-most-once", leasing="strict", barrier="/b"),
    config(semantics="at-most-once", group_key="/g", dead_letter="dead", max_backlog=3),
]
WAYS = settings(
    phases=[Phase.generate, Phase.shrink],
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
BUGGY = settings(
    WAYS, max_examples=3_000, phases=[Phase.generate], derandomize=True, database=None,
    report_multiple_bugs=False,
)  # fmt: skip


def machine(
    configs: list[QueueConfig], *, expiring: bool = False, filtered: bool = False,
    kind: type[Queue] = Queue,
) -> type[Machine]:  # fmt: skip
    names = {"configs": configs, "expiring": expiring, "filtered": filtered, "kind": kind}
    return type("Machine", (Machine,), names)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backlogs that adapt begin with 2 and end at 7."""
    monkeypatch.setattr(consumers, "BACKLOG_LEAST", 2)
    monkeypatch.setattr(consumers, "BACKLOG_MOST", 7)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("configs", [PLAIN, PRIORITY, GROUP, BARRIER, ONCE])
@pytest.mark.parametrize("expiring", [False, True])
def test_a_queue_does_what_the_reference_says(configs: list[QueueConfig], expiring: bool) -> None:
    run_state_machine_as_test(machine(configs, expiring=expiring), settings=WAYS)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("configs", [PLAIN, PRIORITY, GROUP, BARRIER, ONCE])
def test_consumers_with_filters_get_what_fits_and_all_of_it(configs: list[QueueConfig]) -> None:
    run_state_machine_as_test(machine(configs, filtered=True), settings=WAYS)


# -- the test of the test: bugs that it has to find -----------------------------------------------


class TakesAndKeeps(ReadyMessages):
    """Forgets to remove what was taken."""

    def take(self, *args: Any, **kwargs: Any) -> list[BitMap64]:
        parts = super().take(*args, **kwargs)
        for part in parts:
            self.add(part)
        return parts


class NoLock(Grouped):
    """Offers the next one of a key while one is under way."""

    def take(self, *args: Any, **kwargs: Any) -> list[BitMap64]:
        parts = super().take(*args, **kwargs)
        for part in parts:
            for position, key in self._linked(part & self._keys.known):
                del self._busy[key]
                self._unlink(position, key)
        return parts

    def check(self, here: BitMap64) -> None:
        """The queue has to notice by what is offered."""


class NoBarrier(MessagePlaces):
    """Offers messages after a barrier."""

    @property
    def offered_before(self) -> int:
        return U63_MAX


class Endless(MessageLeases):
    """Leases never end."""

    def over(self, now_ms: int) -> BitMap64:
        super().over(now_ms)
        return BitMap64()


class Careless(MessagePlaces):
    """Forgets that an outcome is on its way."""

    def going_to_go(self, positions: BitMap64) -> None:
        self.ready.add(positions)


class Uncounted(DeliveryCounts):
    """Counts no failures."""

    def failed(self, positions: BitMap64, why: str) -> None:
        pass


def with_ready(ready: type[ReadyMessages]) -> type[Queue]:
    class Planted(Queue):
        def __init__(self, config: QueueConfig) -> None:
            super().__init__(config)
            self.places.ready = ready()

    return Planted


def with_class(name: str, other: type) -> type[Queue]:
    """One part of the queue is of another class."""

    class Planted(Queue):
        def __init__(self, config: QueueConfig) -> None:
            super().__init__(config)
            part = self
            for step in name.split("."):
                part = getattr(part, step)
            part.__class__ = other

    return Planted


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("configs", "kind"),
    [
        (PLAIN, with_ready(TakesAndKeeps)),
        (GROUP, with_ready(NoLock)),
        (BARRIER, with_class("places", NoBarrier)),
        pytest.param([config()], with_class("places.leases", Endless), marks=pytest.mark.long),
        (ONCE, with_class("places", Careless)),
        pytest.param(
            [config(max_deliveries=2)], with_class("counting", Uncounted), marks=pytest.mark.long
        ),
    ],
)
def test_a_planted_bug_is_found(configs: list[QueueConfig], kind: type[Queue]) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine(configs, kind=kind), settings=BUGGY)


@pytest.mark.long
def test_an_unfair_queue_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fair = offers.share
    monkeypatch.setattr(offers, "share", lambda model, *rest: fair("fast", *rest))
    for configs in ([config()], [config(fairness="round-robin")]):
        with pytest.raises(AssertionError, match=r"unfair|out of turn"):
            run_state_machine_as_test(machine(configs), settings=BUGGY)


@pytest.mark.long
@pytest.mark.usefixtures("small")
def test_a_prefetch_that_only_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(one: QueueConsumer, _now_ms: int) -> None:
        one.backlog += one.freed if one.most else 0

    monkeypatch.setattr(QueueConsumer, "adapt", grow)
    with pytest.raises(AssertionError, match=r"bounds|too far"):
        run_state_machine_as_test(machine([config(max_per_subscription=0)]), settings=BUGGY)


# -- what the reference does not look at ----------------------------------------------------------

NOW = Now(0, 10**15)


def filled(count: int, **kwargs: Any) -> Queue:
    queue = Queue(config(**kwargs))
    positions = BitMap64()
    positions.add_range(100, 100 + count)
    queue.entered(Arrivals(positions))
    return queue


def test_a_large_backlog_takes_a_few_kilobytes() -> None:
    queue = filled(10_000_000)
    assert len(queue.here) == 10_000_000
    assert queue.memory_bytes() < 64 * KIB


def test_a_huge_space_is_filled_in_pieces() -> None:
    queue = filled(5_000, max_per_subscription=100_000)
    queue.join(1, "ann", 100_000, False, NOW)
    sizes = []
    while offers := queue.offer(NOW, {1: True}):
        sizes.append(sum(len(offer.positions) for offer in offers))
        assert queue.more == (sum(sizes) < 5_000 or sizes[-1] == OFFER_MAX)
    assert sizes == [OFFER_MAX] * 5
    assert not queue.more


def worked(queue: Queue, ms: int, slow: int = 0, slow_ms: int = 10) -> list[int]:
    """Each ms all consumers acknowledge what they have, but number `slow` one message in 10 ms.

    Returns: how many messages each held at most in the second half of that time.
    """
    keys = list(queue.consumers.by_key)
    most = dict.fromkeys(keys, 0)
    for now_ms in range(1, ms + 1):
        now = Now(now_ms, NOW.wall_ns)
        for key in keys:
            held = queue.leased(key)
            part = held[: now_ms % slow_ms == 0] if key == slow else held
            queue.settle(key, part, "ack", now)
        queue.offer(now, {})
        for key in keys if now_ms > ms // 2 else []:
            most[key] = max(most[key], len(queue.leased(key)))
    return list(most.values())


def test_a_consumer_that_keeps_up_holds_more_up_to_a_limit() -> None:
    queue = filled(3_000_000, max_per_subscription=0)
    assert queue.join(1, "ann", 0, False, NOW) == BACKLOG_MOST
    queue.offer(NOW, {})
    assert len(queue.leased(1)) == BACKLOG_LEAST
    assert worked(queue, 500) == [min(BACKLOG_MOST, OFFER_MAX)]
    assert queue.held_by(1)[0] == BACKLOG_MOST


def test_a_slow_consumer_among_fast_ones_holds_few() -> None:
    queue = filled(3_000_000, max_per_subscription=0)
    for key in (1, 2, 3, 4):
        queue.join(key, "c", 0, False, NOW)
    *fast, slow = worked(queue, 400, slow=4)
    assert min(fast) > 10 * BACKLOG_LEAST
    assert 0 < slow <= BACKLOG_LEAST


def test_a_consumer_that_becomes_slow_gets_no_more_before_it_holds_few() -> None:
    queue = filled(3_000_000, max_per_subscription=0)
    queue.join(1, "ann", 0, False, NOW)
    worked(queue, 300)
    begun, ended = Now(300, NOW.wall_ns), Now(2_000, NOW.wall_ns)
    queue.offer(begun, {})
    held = queue.leased(1)
    assert len(held) > BACKLOG_LEAST
    for now_ms in range(400, 1_200, 100):
        queue.offer(Now(now_ms, NOW.wall_ns), {})
    assert queue.leased(1) == held
    queue.settle(1, held[BACKLOG_LEAST - 1 :], "ack", ended)
    queue.offer(ended, {})
    assert len(queue.leased(1)) <= 2 * BACKLOG_LEAST


@pytest.mark.parametrize(("asked", "allowed"), [(9, 0), (0, 9), (9, 20), (20, 9)])
def test_a_prefetch_that_was_chosen_stays(asked: int, allowed: int) -> None:
    queue = filled(100_000, max_per_subscription=allowed)
    assert queue.join(1, "ann", asked, False, NOW) == 9
    assert worked(queue, 300) == [9]


def test_a_prefetch_that_adapts_stays_within_the_backlog_of_the_queue() -> None:
    queue = filled(100_000, max_per_subscription=0, max_backlog=200)
    granted = [queue.join(key, "c", 0, False, NOW) for key in (1, 2, 3)]
    held = worked(queue, 300)
    assert (granted, max(held) <= 200 >= queue.consumers.held()) == ([200] * 3, True)


def test_at_most_once_few_messages_are_sent_ahead() -> None:
    queue = filled(100_000, max_per_subscription=0, semantics="at-most-once", lease=0)
    queue.join(1, "ann", 0, False, NOW)
    queue.offer(NOW, {})
    for now_ms in range(1, 300):
        queue.settle(1, queue.consumers.by_key[1].held, "ack", Now(now_ms, NOW.wall_ns))
        queue.offer(Now(now_ms, NOW.wall_ns), {})
        assert queue.held_by(1)[:2] == (BACKLOG_LEAST, BACKLOG_LEAST)


def test_who_has_no_credit_is_offered_nothing() -> None:
    queue = filled(10)
    queue.join(1, "ann", 0, False, NOW)
    queue.join(2, "bob", 0, False, NOW)
    assert {offer.consumer for offer in queue.offer(NOW, {1: False, 2: True})} == {2}


def test_altered_settings_count_from_then_on() -> None:
    queue = filled(10, lease=1_000)
    queue.join(1, "ann", 1, False, NOW)
    queue.offer(NOW, {})
    queue.config = config(lease=0, max_deliveries=1)
    (outcome,) = queue.tick(Now(2_000, NOW.wall_ns))
    assert outcome.why == "max_deliveries"
    queue.offer(NOW, {})
    assert queue.next_wake(NOW) is None


def test_held_by_tells_the_first_end() -> None:
    queue = filled(10, lease=1_000)
    queue.join(1, "ann", 4, False, NOW)
    queue.offer(NOW, {})
    queue.settle(1, BitMap64([100, 101]), "extend", NOW, lease_ms=10_000)
    assert queue.held_by(1) == (4, 4, 1_001)
    assert queue.held_by(9) == (0, 0, None)


def test_a_filter_is_never_compared_twice_with_a_message() -> None:
    queue = filled(1_000)
    queue.join(1, "ann", 8, True, NOW)
    queue.join(2, "bob", 8, False, NOW)
    seen: set[int] = set()
    for _ in range(100):
        queue.offer(NOW, {})
        part = queue.unlooked(1, 50, NOW)
        assert seen.isdisjoint(part)
        seen |= set(part)
        queue.looked(1, part, BitMap64())
        outcomes = queue.settle(2, BitMap64(list(queue.leased(2))[::2]), "release", NOW).outcomes
        for outcome in outcomes:
            queue.failed(outcome.positions, outcome.why, 0)
    assert len(seen) > 900


def test_what_is_compared_is_bounded_by_what_is_wanted() -> None:
    queue = filled(1_000)
    queue.join(1, "ann", 8, True, NOW)
    part = queue.unlooked(1, 50, NOW)
    queue.looked(1, part, part)
    assert len(part) == 50
    assert not queue.unlooked(1, 50, NOW)


def test_an_answer_of_a_filter_may_come_after_the_message_went() -> None:
    queue = filled(10)
    queue.join(1, "ann", 8, True, NOW)
    part = queue.unlooked(1, 50, NOW)
    queue.gone(BitMap64([100]))
    queue.looked(1, part, part)
    queue.check()
    assert 100 not in queue.offer(NOW, {})[0].positions
