"""What delivery tells the journal that it needs, and that it begins nothing below the log start."""

from __future__ import annotations

import random

from tests.delivery.world import ANN, World
from zbroker.delivery.contract import PlanRanges
from zbroker.delivery.points import Point
from zbroker.engine.effects import Say
from zbroker.engine.events import Gone
from zbroker.ids import format_bookmark, format_vector
from zbroker.limits import HOLDINGS_MAX, KIB, U63_MAX
from zbroker.wire import messages as m
from zbroker.wire.internal import Holding, Holds, Located

WALL_MS = 5_000


class LateWorld(World):
    """A world whose journal answers when the test wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.late = False
        self.answered: list[Located] = []  # on its way
        self.welcome()
        self.logon()

    def say(self, effect: Say) -> Located | None:
        answer = super().say(effect)
        if answer is None or not self.late:
            return answer
        self.answered.append(answer)
        return None

    def arrive(self, count: int = 1_000) -> None:
        """The journal's answers arrive; what they lead to asking is answered at once."""
        self.late = False
        answers, self.answered = self.answered[:count], self.answered[count:]
        for located in answers:
            self.hear(located)
        self.pump()

    def raise_log_start(self, log_start: int) -> None:
        self.log_start = log_start
        self.say_watermarks()

    def holds(self, *plans: PlanRanges, wall_ms: int = WALL_MS) -> Holds:
        return self.core.needs.holds(self.incarnation, plans, wall_ms)


def filled(count: int = 10) -> LateWorld:
    world = LateWorld()
    for _ in range(count):
        world.publish("t")
    world.persist()
    return world


def test_without_subscriptions_nothing_is_held() -> None:
    world = filled()
    world.raise_log_start(4)
    assert world.holds() == Holds(world.incarnation, 4, U63_MAX, [])


def test_a_subscription_holds_what_it_has_not_sent() -> None:
    world = filled()
    world.subscribe(credit=1)  # one message
    assert world.holds().holdings == [Holding("ann", "t", 2, WALL_MS)]
    assert world.holds().lowest == 2


def test_a_subscription_that_has_caught_up_holds_only_what_comes() -> None:
    world = filled()
    world.subscribe()
    assert world.holds().lowest == world.persisted


def test_an_ended_subscription_holds_nothing() -> None:
    world = filled()
    world.subscribe(credit=1)
    world.send(m.Unsubscribe("s", "1"))
    assert world.holds().lowest == U63_MAX


def test_a_client_that_is_gone_holds_nothing() -> None:
    world = filled()
    world.subscribe(credit=1)
    world.hear(Gone(ANN))
    assert world.holds().lowest == U63_MAX


def test_since_is_when_it_was_reported_first() -> None:
    world = filled()
    world.subscribe(credit=1)
    world.holds(wall_ms=1)
    world.subscribe(credit=1, sid="later")
    assert [one.since_ms for one in world.holds(wall_ms=2).holdings] == [1, 2]


def test_the_lowest_counts_and_only_some_are_named() -> None:
    world = filled()
    numbers = list(range(HOLDINGS_MAX + 50))
    random.Random(1).shuffle(numbers)
    for number in numbers:
        vector = format_vector({world.core.cursors.here: number % 10})
        world.subscribe(sid=str(number), bookmark=vector, credit=0)
    reported = world.holds()
    assert len(reported.holdings) == HOLDINGS_MAX
    assert reported.lowest == reported.holdings[0].position == 1
    assert [one.position for one in reported.holdings] == sorted(n % 10 + 1 for n in numbers)[:100]


def test_ranges_are_held_while_they_are_split() -> None:
    world = filled()
    plan = PlanRanges(ANN, "c", Point(3), 9, 4, 9)
    assert world.holds(plan).holdings == [Holding("ann", "ranges", 3, WALL_MS)]


def test_a_point_that_was_reported_is_held_while_others_are_looked_up() -> None:
    world = filled()
    world.late = True
    bookmarks = f"{format_bookmark(1, 6)},{format_bookmark(1, 4)}"
    world.subscribe(bookmark=bookmarks)
    assert world.holds().lowest == U63_MAX
    world.arrive(1)
    assert world.holds().holdings == [Holding("ann", "t", 7, WALL_MS)]
    world.arrive(1)
    assert world.got() == world.wanted(first=5)


def test_no_subscription_begins_below_a_log_start_that_was_reported() -> None:
    """The answer was given before the log start rose and arrives after it: it is asked again."""
    world = filled()
    world.late = True
    world.subscribe(bookmark=format_bookmark(1, 3))
    world.raise_log_start(6)
    assert world.holds() == Holds(world.incarnation, 6, U63_MAX, [])  # the files may go now
    world.arrive()
    assert world.errors() == ["bookmark_expired"]
    assert world.got() == []
    assert world.holds().lowest == U63_MAX


def test_from_the_beginning_means_the_new_log_start_then() -> None:
    world = filled()
    world.late = True
    world.subscribe()
    world.raise_log_start(6)
    world.arrive()
    assert world.got() == world.wanted(first=6)


def test_ranges_do_not_begin_below_a_log_start_either() -> None:
    world = filled()
    world.late = True
    world.send(m.Ranges(cid="r"))
    world.raise_log_start(6)
    world.arrive()
    assert [plan.start.position for plan in world.plans] == [6]


def test_what_was_reported_below_the_log_start_is_not_held_any_more() -> None:
    world = filled()
    world.late = True
    world.subscribe(bookmark=f"{format_bookmark(1, 2)},{format_bookmark(1, 8)}")
    world.arrive(1)
    world.raise_log_start(6)
    assert world.holds().lowest == U63_MAX
    world.arrive(1)
    assert world.errors() == ["bookmark_expired"]


def test_a_welcome_that_is_older_than_the_marks_does_not_lower_the_log_start() -> None:
    world = filled()
    world.raise_log_start(6)
    world.log_start = 1
    world.welcome()
    assert world.holds().log_start == 6


def test_another_journal_may_know_an_older_log_start() -> None:
    world = filled()
    world.raise_log_start(6)
    world.log_start, world.incarnation = 1, 8
    world.welcome()
    assert world.holds().log_start == 1


def test_what_is_held_below_the_log_start_is_read_to_the_end() -> None:
    world = filled()
    world.subscribe(credit=1)
    world.raise_log_start(6)
    assert world.holds().lowest == 2
    world.send(m.Flow("s", 64 * KIB))
    assert world.got() == world.wanted()
    assert world.holds().lowest == world.persisted


def test_nothing_reported_is_ever_taken_back() -> None:
    """Once informed that nothing is needed below a log start, nothing below it is ever read."""
    for seed in range(150):
        _history(random.Random(seed))


def _history(rng: random.Random) -> None:
    world, gone = filled(), 1
    for step in range(60):
        world.late = rng.random() < 0.7
        match rng.randrange(6):
            case 0:
                world.publish("t")
                world.persist()
            case 1:
                sequence = rng.randint(1, world.next_position - 1)
                marks = format_bookmark(1, sequence), format_bookmark(1, rng.randint(1, sequence))
                world.subscribe(sid=str(step), bookmark=",".join(marks), credit=rng.choice((1, 99)))
            case 2:
                world.log_start = max(world.log_start, rng.randint(1, world.persisted - 1))
                if rng.random() < 0.7:
                    world.say_watermarks()
            case 3:
                reported = world.holds()
                gone = max(gone, min(reported.log_start, reported.lowest))
            case 4:
                world.arrive(rng.randint(0, 3))
            case _ if world.core.cursors.running:
                key = rng.choice(list(world.core.cursors.running))
                sid = world.core.cursors.running[key].members[0].names.sid
                world.send(m.Flow(sid, rng.choice((1, 50))))
        positions = [one.position for one in world.core.cursors.running.values()]
        assert all(position >= gone for position in positions), (positions, gone)
