"""Bugs that can be planted in the world of queues with limits and ends: each breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyroaring import BitMap64

from tests.sim import queues_bugs
from zbroker.queues.core import QueuesCore
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work import length_limit
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Outcome


def _dropping(choose: Callable[[Queue, int], BitMap64]) -> Callable[[QueuesCore], None]:
    """By number: those that `choose` gives of a queue that has so many too many."""

    def dropping(core: Any) -> None:
        right = core._give_up

        def give_up(one: QueueState) -> None:
            queue, config = one.queue, one.definition.config
            most = config.max_length
            if not isinstance(queue, Queue) or not most or config.max_bytes or not one.offers:
                right(one)
                return
            places = queue.places
            waiting = len(places.ready.standing) + len(places.delays.waiting)
            found = choose(queue, waiting - most)
            if found:
                queue._take_out(found, None)
                places.going_to_go(found)
                letter = "max_length" if queue.config.dead_letter else ""
                one.entries.append((Outcome(found, "gone", "max_length", letter=letter), None))

        core._give_up = give_up

    return dropping


def _newest(queue: Queue, over: int) -> BitMap64:
    waiting = queue.places.ready.standing | queue.places.delays.waiting
    return waiting[-over:] if over > 0 else BitMap64()


def _with_leased(queue: Queue, over: int) -> BitMap64:
    places = queue.places
    many = places.ready.standing | places.delays.waiting | places.leases.leased
    return many[:over] if over > 0 else BitMap64()


def _leased_count(queue: Queue, over: int) -> BitMap64:
    over += len(queue.places.leases.leased)
    return queue.places.ready.standing[:over] if over > 0 else BitMap64()


def _before_offers(core: Any) -> None:
    dispatch, give_up = core._dispatcher.dispatch, core._give_up

    def late(one: QueueState) -> None:
        core._give_up(one)
        dispatch(one)

    core._dispatcher.dispatch = late
    core._give_up = give_up


def _without_a_record(core: Any) -> None:
    give_up = core._give_up

    def at_once(one: QueueState) -> None:
        count = len(one.entries)
        give_up(one)
        for outcome, _ in one.entries[count:]:
            one.queue.gone(outcome.positions)
        del one.entries[count:]

    core._give_up = at_once


def _sizes_forgotten(core: Any) -> None:
    def forget(one: QueueState) -> None:
        if isinstance(one.queue, Queue):
            one.queue.places.sizes.drop(one.queue.here)

    queues_bugs._made_with(core, "_restored", forget)


def _altered_unnoticed(core: Any) -> None:
    changed = core.manager.alter

    def alter(one: QueueState, definition: Any) -> None:
        queue = one.queue
        before = queue.config if isinstance(queue, Queue) else None
        changed(one, definition)
        if isinstance(queue, Queue) and before is not None:
            queue.config = before

    core.manager.alter = alter


def _from_its_begin(core: Any) -> None:
    """The time of a queue does not begin again when it is left."""
    look, begun = core._ends.look, dict[int, int]()

    def looks(one: QueueState) -> None:
        look(one)
        if one.used_ms is not None:
            one.used_ms = begun.setdefault(id(one), one.used_ms)
            name = one.name
            if name in core._ends._due_ms and one.definition.config.expires:
                core._ends._put(name, one.used_ms + one.definition.config.expires)

    core._ends.look = looks


def _before_a_consumer(core: Any) -> None:
    look = core._ends.look

    def looks(one: QueueState) -> None:
        one.consumed = True
        look(one)

    core._ends.look = looks


def _lost_are_over(core: Any) -> None:
    core._ends._is_used = lambda one: bool(core.shared.of.get(one.name))


def _used_for_ever(core: Any) -> None:
    """A queue that had a consumer is never left."""
    core._ends._is_used = lambda one: one.consumed


def _never_full(core: Any) -> None:
    core._full.look = lambda one: None


def _full_for_ever(core: Any) -> None:
    core._full._forget = lambda name: None


def _altered_unsaid(core: Any) -> None:
    """A queue that is full is not looked at before it is free."""
    look = core._full.look

    def looks(one: QueueState) -> None:
        if not (one.full and isinstance(one.queue, Queue) and length_limit.is_full(one.queue)):
            look(one)

    core._full.look = looks


def _full_before_offers(core: Any) -> None:
    """A queue whose consumers have room is said to be full."""
    dispatch, look = core._dispatcher.dispatch, core._full.look

    def early(one: QueueState) -> None:
        look(one)
        dispatch(one)

    core._dispatcher.dispatch = early
    core._full.look = lambda one: None


def _known_at_once(core: Any) -> None:
    core._full._is_known = True


def _full_drops(core: Any) -> None:
    def give_up(one: QueueState) -> None:
        queue = one.queue
        if isinstance(queue, Queue) and one.offers and not core.manager.commits.full:
            one.entries += [(outcome, None) for outcome in length_limit.give_up(queue)]

    core._give_up = give_up


#: each is found within SEEDS_OF_BUG seeds, or this world proves nothing
BUGS: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "the newest are dropped": _dropping(_newest),
    "what consumers have is dropped": _dropping(_with_leased),
    "what consumers have counts": _dropping(_leased_count),
    "limits come before offers": _before_offers,
    "what is dropped is not recorded": _without_a_record,
    "bytes are forgotten by the tables": _sizes_forgotten,
    "a new limit is not noticed": _altered_unnoticed,
    "a queue expires by its age": _from_its_begin,
    "a queue ends before its first consumer": _before_a_consumer,
    "consumers that may come back do not count": _lost_are_over,
    "a queue that was used is never left": _used_for_ever,
    "no queue is said to be full": _never_full,
    "a queue that was full stays so": _full_for_ever,
    "other limits of a full queue are not said": _altered_unsaid,
    "a queue is looked at before its offers": _full_before_offers,
    "a start says that nothing is full": _known_at_once,
    "a full queue drops": _full_drops,
}
