"""Bugs that can be planted in the queues world: each breaks a promise of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from zbroker.config import QueueConfig
from zbroker.definitions.intake import QueueIntake
from zbroker.engine.turn import Turn
from zbroker.queues.commits import PendingUnit
from zbroker.queues.core import QueuesCore
from zbroker.queues.effects import Give
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import SavedQueue
from zbroker.queues.replayable import Replayable
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Outcome
from zbroker.wire import queue_messages as q


def planted(bug: str, core: QueuesCore) -> None:
    """Makes a core of the process do something wrong; "": nothing."""
    if bug:
        BUGS[bug](core)


def _settled_at_once(core: Any) -> None:
    settlement = core._settlement

    def promise(request: Any, result: Any, before: Any) -> None:
        command = request.command
        answer = q.Settled(command.cid, command.sid, result.taken, result.ignored)
        if request.rid in core.connections:
            core.shared.send(request.rid, answer)
        request.one.entries += [(outcome, None) for outcome in result.outcomes]

    settlement._promise = promise


def _headers_are_enough(core: Any) -> None:
    folding = core.manager.folding
    suffices = folding._suffices
    folding._suffices = lambda *given: suffices(*given) or True


def _horizon_not_waited_for(core: Any) -> None:
    dispatcher = core._dispatcher
    beyond = dispatcher._beyond
    dispatcher._beyond = lambda *given: beyond(*given) and False


def _landed_and_sent_again(core: Any) -> None:
    core.manager.commits.found = lambda *given: None


def _refused_come_last(core: Any) -> None:
    commits, take = core.manager.commits, core.manager.commits.take

    def last(*given: Any) -> Any:
        commits._waiting.extend(commits._refused)
        commits._refused.clear()
        return take(*given)

    commits.take = last


def _definitions_not_looked_for(core: Any) -> None:
    core.manager.folding._found = lambda *given: None


def _purges_unnoticed(core: Any) -> None:
    """A consumer begins after a purge, and nothing says so."""

    def unnoticed(one: QueueState) -> None:
        queue = one.queue
        if isinstance(queue, Replayable):
            queue.purged = lambda before: queue.gone(queue.before(before)) or False  # type: ignore

    _made_with(core, "_made", unnoticed)


def _types_of_the_config(core: Any) -> None:
    """Queues read payloads as the config says now."""
    manager = core.manager

    def changed(one: QueueState) -> None:
        one.entering = QueueIntake(one.definition, manager._recording.type_of)

    _made_with(core, "_made", changed)


def _tables_too_new(core: Any) -> None:
    """What is after the place that the tables name is folded into them already."""
    restore = core.manager.restore

    def older(saved: dict[Any, SavedQueue], noted: Any) -> None:
        older = {k: one._replace(position=max(1, one.position - 8)) for k, one in saved.items()}
        restore(older, noted)

    core.manager.restore = older


def _old_tables(core: Any) -> None:
    """Tables from before the log start: what became of their messages is not in the log."""
    manager, restored = core.manager, core.manager._restored

    def anyway(*made_of: Any) -> QueueState | None:
        log_start, manager.log_start = manager.log_start, 0
        try:
            found: QueueState | None = restored(*made_of)
        finally:
            manager.log_start = log_start
        return found

    manager._restored = anyway


def _horizon_forgotten(core: Any) -> None:
    _made_with(core, "_restored", lambda one: setattr(one, "horizon", 0))


def _failures_forgotten(core: Any) -> None:
    def forget(one: QueueState) -> None:
        if isinstance(one.queue, Queue):
            one.queue.counting.failures.drop(one.queue.here)
            one.queue.counting.cancels.drop(one.queue.here)

    _made_with(core, "_restored", forget)


def _holds_too_high(core: Any) -> None:
    holds = core.journal.holds

    def higher(wall_ms: int) -> Any:
        reported = holds(wall_ms)
        folded = [one.folded for one in core.manager.running.values()]
        reported.lowest = min(folded, default=reported.lowest)
        return reported

    core.journal.holds = higher


def _lost_for_ever(core: Any) -> None:
    def never(one: QueueState) -> None:
        queue = one.queue
        if not isinstance(queue, Queue):
            return
        lose = queue.lose

        def lost(key: int, now: Any) -> None:
            held = queue.leased(key)
            lose(key, now)
            queue.places.leases.move(held, None)

        queue.lose = lost  # type: ignore[method-assign]

    _made_with(core, "_made", never)


def _letters_apart(core: Any) -> None:
    manager, add = core.manager, core.manager.add

    def apart(one: Any, facts: Any, entries: Any, endings: Any = (), letters: Any = ()) -> None:
        add(one, facts, entries, endings)
        if letters:
            number, parts = manager.commits.number(), [part for part, _ in letters]
            manager.commits.add(
                PendingUnit(parts, [body for _, body in letters], lambda *given: None, number)
            )

    manager.add = apart


def _once_sent_at_once(core: Any) -> None:
    dispatcher, hand = core._dispatcher, core._dispatcher.hand

    def at_once(one: QueueState, offer: Any) -> None:
        if not offer.first_commit:
            hand(one, offer)
            return
        core.shared.out.append(Give(core.shared.consumers[offer.consumer], offer.positions))
        one.entries.append((Outcome(offer.positions, "gone", "sent"), None))

    dispatcher.hand = at_once


def _barrier_before_all(core: Any) -> None:
    def early(one: QueueState) -> None:
        if isinstance(one.queue, Queue):
            places = one.queue.places
            places.barrier_due = lambda: places.barrier  # type: ignore[method-assign]

    _made_with(core, "_made", early)


def _unbounded(core: Any) -> None:
    """Each consumer gets whatever there is."""

    def unbounded(one: QueueState) -> None:
        if isinstance(one.queue, Queue):
            join = one.queue.consumers.join
            one.queue.consumers.join = lambda key, client, _most, filtered, **_: join(  # type: ignore
                key, client, 1_000, filtered
            )

    _made_with(core, "_made", unbounded)


def _without(key: str) -> Callable[[QueuesCore], None]:
    """A setting is not looked at."""

    def without(core: QueuesCore) -> None:
        def plain(one: QueueState) -> None:
            config: QueueConfig = one.definition.config
            if isinstance(one.queue, Queue) and getattr(config, key):
                one.queue = Queue(replace(config, **{key: ""}))

        _made_with(core, "_made", plain)

    return without


def _made_with(core: Any, name: str, change: Callable[[QueueState], None]) -> None:
    """Queues that `name` of the manager gives are changed."""
    make = getattr(core.manager, name)

    def made(*given: Any) -> QueueState | None:
        one: QueueState | None = make(*given)
        if one is not None:
            change(one)
        return one

    setattr(core.manager, name, made)


class Nested(Turn[Any, Any]):
    """A completion is decided and done in the middle of the list that it came of."""

    def _perform(self, effects: Any) -> list[Any]:
        for effect in effects:
            for event in super()._perform([effect]):
                self._perform(self._core.handle(event, self._clock()))
        return []


class Queueing(Turn[Any, Any]):
    """Reads are taken from the core two at a time, and done one after the other."""

    def _read(self, now: Any) -> Any:
        for read in [self._core.next_read() for _ in range(2)]:
            event = None if read is None else self._performers[type(read)](read)
            if event is not None:
                self._drain([event], now)
        return now


#: bugs of the turn itself
TURNS: Final[dict[str, type[Turn[Any, Any]]]] = {
    "completions are nested": Nested,
    "reads are queued": Queueing,
}

#: each is found within SEEDS_OF_BUG seeds, or this world proves nothing
BUGS: Final[dict[str, Callable[[QueuesCore], None]]] = {
    **dict.fromkeys(TURNS, lambda core: None),
    "what is sent is noted later": lambda core: None,  # see queues_process
    "settled before it is durable": _settled_at_once,
    "what was read without bodies is folded": _headers_are_enough,
    "the horizon is not waited for": _horizon_not_waited_for,
    "units that landed are sent again": _landed_and_sent_again,
    "what was refused lands after later units": _refused_come_last,
    "definitions that landed are sent again": _definitions_not_looked_for,
    "types are those of the config": _types_of_the_config,
    "purges are not noticed by consumers": _purges_unnoticed,
    "facts are folded twice": _tables_too_new,
    "tables from before the log start are used": _old_tables,
    "the horizon is forgotten": _horizon_forgotten,
    "failures are forgotten": _failures_forgotten,
    "holds are too high": _holds_too_high,
    "leases of lost consumers do not end": _lost_for_ever,
    "letters are apart from their records": _letters_apart,
    "at-most-once is sent before it is gone": _once_sent_at_once,
    "barriers do not wait": _barrier_before_all,
    "backlogs have no bound": _unbounded,
    "priorities are not looked at": _without("priority"),
    "group keys are not looked at": _without("group_key"),
}
