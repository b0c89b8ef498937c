"""Bugs that can be planted in the world of single active consumers: each breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyroaring import BitMap64

from tests.sim import queues_bugs
from zbroker.queues.core import QueuesCore
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.consumers import QueueConsumer, QueueConsumers
from zbroker.queues.work.queue import Queue


def _with_consumers(change: Callable[[Any], None]) -> Callable[[QueuesCore], None]:
    """Changes what queues know of their consumers."""

    def planting(core: QueuesCore) -> None:
        def changed(one: QueueState) -> None:
            if isinstance(one.queue, Queue):
                change(one.queue.consumers)

        queues_bugs._made_with(core, "_made", changed)

    return planting


def _all_take(consumers: Any) -> None:
    consumers.taking = lambda _config: consumers.current()


def _lost_are_over(consumers: Any) -> None:
    """What a lost consumer holds is not waited for."""
    consumers.taking = lambda _config: _first(consumers.current())


def _newest_first(consumers: Any) -> None:
    def taking(_config: Any) -> list[QueueConsumer]:
        many = consumers.by_key.values()
        return [one for one in _first([*many][-1:]) if not one.lost]

    consumers.taking = taking


def _first(many: list[QueueConsumer]) -> list[QueueConsumer]:
    return sorted(many, key=lambda one: one.number)[:1]


def _comes_last(consumers: QueueConsumers) -> None:
    """One that is back has a new place."""
    consumers.replace = lambda old, _new, _config: consumers.forget(old)  # type: ignore[method-assign]


def _waited_for_ever(consumers: QueueConsumers) -> None:
    """A lost one that holds nothing is waited for, too."""
    consumers.forget_lost = lambda _now_ms: None  # type: ignore[method-assign]


def _ahead_of_what_comes_back(core: QueuesCore) -> None:
    """Later messages are offered while a record says that earlier ones come back."""

    def changed(one: QueueState) -> None:
        if not isinstance(one.queue, Queue):
            return
        offering, places = one.queue._offering, one.queue.places
        offer = offering.offer

        def without_a_look(*given: Any) -> Any:
            failing, places.failing = places.failing, BitMap64()
            try:
                return offer(*given)
            finally:
                places.failing = failing

        offering.offer = without_a_look  # type: ignore[method-assign]

    queues_bugs._made_with(core, "_made", changed)


def _passes_what_cannot_be_read(core: Any) -> None:
    """A message that could not be read comes later, and others meanwhile."""
    dispatcher, send = core._dispatcher, core._dispatcher._send

    def at_once(one: QueueState, give: Any) -> None:
        one.line.clear()
        send(one, give)

    dispatcher._send = at_once


#: each is found within SEEDS_OF_BUG seeds, or this world proves nothing
BUGS: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "all consumers are active": _with_consumers(_all_take),
    "what a lost active one holds is not waited for": _with_consumers(_lost_are_over),
    "the newest consumer is active": _with_consumers(_newest_first),
    "an active one that is back comes last": _with_consumers(_comes_last),
    "an active one that has ended is waited for": _with_consumers(_waited_for_ever),
    "later ones go before what comes back": _ahead_of_what_comes_back,
    "later ones go before what could not be read": _passes_what_cannot_be_read,
}
