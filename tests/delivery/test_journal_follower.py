"""zbroker/delivery/journal_follower.py: what delivery hears of the journal, and reports to it."""

from __future__ import annotations

from typing import Any

from tests.delivery.world import ANN, World, ready
from zbroker.delivery.contract import CloseFiles, PlanRanges
from zbroker.delivery.journal_follower import HOLDS_MS, LET_GO_MS
from zbroker.engine.effects import JOURNAL, WATERMARKS, ForgetBlocks, Reconnect, Say
from zbroker.engine.events import Gone
from zbroker.wire import messages as m
from zbroker.wire.internal import Hello, Holds


def reports(world: World) -> list[Holds]:
    said = [effect.message for effect in world.done if isinstance(effect, Say)]
    return [message for message in said if isinstance(message, Holds)]


def of(world: World, *kinds: type) -> list[Any]:
    """Effects of these kinds since the last call."""
    found = [effect for effect in world.done if isinstance(effect, kinds)]
    world.done.clear()
    return found


def filled(count: int = 10) -> World:
    world = ready()
    for _ in range(count):
        world.publish("t")
    world.persist()
    world.done.clear()
    return world


def test_nothing_is_reported_before_a_journal_welcomed_it() -> None:
    world = World()
    world.say_watermarks()
    world.pass_time(10 * HOLDS_MS)
    assert reports(world) == []
    hellos = [said.message for said in of(world, Say)]
    assert all(isinstance(message, Hello) for message in hellos)
    world.welcome()
    world.pass_time(0)
    assert len(reports(world)) == 1


def test_what_is_needed_is_reported_on_each_beat() -> None:
    world = filled()
    world.subscribe(credit=1)
    world.done.clear()
    world.pass_time(HOLDS_MS)
    assert [(one.lowest, one.incarnation) for one in reports(world)] == [(2, world.incarnation)]
    world.pass_time(1)
    assert len(reports(world)) == 1
    assert world.core.next_wake_ms() <= world.now_ms + HOLDS_MS


def test_a_new_log_start_is_acted_on_and_reported_in_the_same_turn() -> None:
    """The journal removes segments as soon as it hears of it."""
    world = filled()
    world.log_start = 4
    world.say_watermarks()
    world.pump()
    assert [one.log_start for one in reports(world)] == [4]
    assert of(world, CloseFiles) == [CloseFiles()], "files that were removed take space"


def test_who_wants_messages_before_they_are_durable_is_reported_in_the_same_turn() -> None:
    world = filled()
    world.subscribe(bookmark="0|1|", options=m.Options(delivery="live"))
    assert [one.eager for one in reports(world)] == [True]
    assert of(world, CloseFiles) == []
    world.hear(Gone(ANN))
    world.pump()
    assert [one.eager for one in reports(world)] == [False]


def test_files_are_closed_once_in_a_while() -> None:
    world = filled()
    world.wake_until(world.now_ms + 2 * LET_GO_MS + HOLDS_MS)
    assert len(of(world, CloseFiles)) == 2


def test_what_was_read_is_forgotten_with_another_journal() -> None:
    world = filled()
    world.incarnation += 1
    world.say_watermarks()
    assert of(world, ForgetBlocks, Reconnect) == [Reconnect(JOURNAL), ForgetBlocks()]
    world.welcome()
    assert of(world, ForgetBlocks, Reconnect) == [Reconnect(WATERMARKS)], "once"


def test_plans_begin_again_with_another_journal() -> None:
    world = filled()
    world.send(m.Ranges("r"))
    plans = list(world.plans)
    assert len(plans) == 1
    world.incarnation += 1
    world.say_watermarks()
    assert world.plans == plans * 2
    assert all(isinstance(plan, PlanRanges) for plan in world.plans)


def test_a_welcome_to_the_process_before_this_one_changes_nothing() -> None:
    world = filled()
    other = world.greeting()
    other.echo, other.incarnation = 99, world.incarnation + 1
    world.hear(other)
    assert of(world, ForgetBlocks, Reconnect) == []
    assert world.core.cursors.incarnation == world.incarnation
