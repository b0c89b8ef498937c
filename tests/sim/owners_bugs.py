"""Bugs planted in the replicated queues of the simulated instances: each must be found.

Barriers, a grant by the instance that loses a tie, and most of a planned stop, are rare or not in
the world: unit tests have them (tests.queues.test_replicated,
tests.queues.replicated.test_ownership, tests.queues.test_hand_over). So is a message that a filter
at the owner fits and that no consumer has yet (tests.queues.test_named_requests), and a fact about
what only a lost host had, which holds the log for ever: two of 2,300 seeds find it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace
from pyroaring import BitMap64

from zbroker.log.queue_records import (
    Carried,
    Moved,
    OriginsGone,
    ReplicatedDefinition,
    steps_of,
)
from zbroker.queues.core import QueuesCore
from zbroker.queues.effects import SayReplication
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replicated.ownership import OwnerClaim
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.selector_stats import NextNames
from zbroker.queues.work.sets import lowest
from zbroker.wire.owner_requests import AskTransfer, TransferRequest
from zbroker.wire.replication import NamedMessages

Change = Callable[[QueueState, ReplicatedQueue, Any], None]


def plant(bug: str, core: QueuesCore) -> None:
    """Makes a core do something wrong; "": nothing."""
    if bug in CORES:
        CORES[bug](core)
    elif bug in QUEUES:
        _made(core, QUEUES[bug])


def _made(core: Any, change: Change) -> None:
    """Each replicated queue is changed before it reads anything."""
    make = core.manager._made

    def made(*given: Any) -> QueueState:
        one: QueueState = make(*given)
        if one.replicated is not None and isinstance(one.queue, Queue):
            change(one, one.replicated, one.queue)
        return one

    core.manager._made = made


# -- numbers and owners -----------------------------------------------------------------------


def _number_of_the_owner(one: QueueState, replicated: Any, queue: Any) -> None:
    """The number counts what an instance gave, not what happened to the message."""
    gave = 0

    def numbers(positions: BitMap64) -> dict[int, BitMap64]:
        nonlocal gave
        gave += 1
        return {gave: positions.copy()}

    replicated.ownership.numbers = numbers


def _equal_numbers(one: QueueState, replicated: Any, queue: Any) -> None:
    """Of equal numbers the one that is read later holds."""
    apply = replicated.ownership.apply
    count = 0

    def later(claim: OwnerClaim, positions: BitMap64) -> BitMap64:
        nonlocal count
        count += 1
        found: BitMap64 = apply(claim._replace(takeover=False, instance=count), positions)
        return found

    replicated.ownership.apply = later
    replicated.ownership.granted = list
    first = replicated.ownership._first
    replicated.ownership._first = lambda positions: _Any(first(positions))


class _Any(dict[int, BitMap64]):
    """Whoever gave it was the owner."""

    def get(self, key: Any, default: Any = None) -> Any:  # type: ignore[override]
        return BitMap64.union(BitMap64(), *self.values())


def _tie_ignored(one: QueueState, replicated: Any, queue: Any) -> None:
    replicated.ownership.tie = lambda instance, positions: BitMap64()


def _believes_its_intention(core: Any) -> None:
    """What is to be given belongs to the other one before it is in the log."""
    commit = core._moves._commit

    def committed(one: QueueState, move: Any, then: Any) -> None:
        commit(one, move, then)
        assert one.replicated is not None
        if not move.takeover:
            claim = OwnerClaim(1, False, one.replicated.me, 1, 1 << 40, move.to)
            one.replicated.ownership.apply(claim, move.positions)

    core._moves._commit = committed


def _offers_what_it_gives(core: Any) -> None:
    """What is being given is offered here, too."""

    def plain(one: QueueState, replicated: Any, queue: Any) -> None:
        grant = queue.grant

        def granted(*given: Any) -> Any:
            outcomes = grant(*given)
            for outcome in outcomes:
                queue.undo(outcome)
            return outcomes

        queue.grant = granted
        queue.disown = lambda positions: BitMap64()

    _made(core, plain)


def _offers_before_it_has_read(core: Any) -> None:
    """Whoever asked for messages offers them at once."""
    wanted = core._moves.request

    def request(event: Any) -> None:
        wanted(event)
        one = core.manager.running.get(event.queue)
        if one is not None and one.replicated is not None:
            one.queue.own(one.queue.places.foreign)

    core._moves.request = request
    core._handlers[TransferRequest] = request


def _nothing_is_asked(core: Any) -> None:
    """No instance says that it could take messages."""
    core._requests.look = lambda one: None


def _only_the_first_owner_is_asked(core: Any) -> None:
    """Of several owners it asks the one with the lowest id, whatever comes of it."""
    made = core.manager._made

    def first(*given: Any) -> QueueState:
        one: QueueState = made(*given)
        if one.replicated is not None:
            others = one.replicated.others
            one.replicated.others = lambda: others()[:1]  # type: ignore[method-assign]
        return one

    core.manager._made = first


# -- consumers with filters -------------------------------------------------------------------


def _filters_ask_for_nothing(one: QueueState, replicated: Any, queue: Any) -> None:
    """No messages are asked for by name."""
    queue.seek = lambda now_ms: NextNames(BitMap64())


def _asks_for_what_does_not_fit(one: QueueState, replicated: Any, queue: Any) -> None:
    """What is late is asked for, whatever filters say."""

    def seek(now_ms: int) -> NextNames:
        late = lowest(queue.places.foreign, 10, queue.late_before)
        return NextNames(late, len(late), now_ms + 200)

    queue.seek = seek


def _asks_by_local_position(core: Any) -> None:
    """Messages are named by their positions in this log."""

    def ask(one: QueueState, _replicated: Any, owner: int, count: int, found: NextNames) -> None:
        here = core.manager.here
        where = [NamedMessages(*here, steps_of(found.names))] if found.names else []
        name = one.definition.config.initial_owner if not owner else ""
        message = AskTransfer(one.name, owner, name, count, where, found.most)
        core.shared.out.append(SayReplication(message))

    core._requests._ask = ask


# -- what is durable --------------------------------------------------------------------------


def _says_what_is_here_only(core: Any) -> None:
    """It answers acknowledgements as soon as they are durable here."""
    core.shared.promises.say = lambda one, position, then: then()


# -- planned stops ----------------------------------------------------------------------------


def _what_is_given_may_go_back(core: Any) -> None:
    """What an instance gave that is to stop goes back if no consumer takes it."""
    give = core._moves.give
    core._moves.give = lambda one, outcome, to, **more: give(one, outcome, to, **(more | NOT_BACK))


NOT_BACK: Final = {"back": False}


def _all_is_given_as_seen(core: Any) -> None:
    """All that is given is flagged."""
    commit = core._moves._commit
    core._moves._commit = lambda one, move, then: commit(
        one, move if move.takeover else move._replace(seen=move.positions), then
    )


# -- facts ------------------------------------------------------------------------------------


def _without(kind: type, when: Callable[[Any, Any], bool]) -> Change:
    """Facts of this kind are not applied in some cases."""

    def change(one: QueueState, replicated: Any, queue: Any) -> None:
        apply = replicated._apply

        def applied(fact: Any, local: BitMap64, *given: Any, **more: Any) -> None:
            if not (isinstance(fact, kind) and when(replicated, fact)):
                apply(fact, local, *given, **more)

        replicated._apply = applied

    return change


def _acknowledgements_fenced(one: QueueState, replicated: Any, queue: Any) -> None:
    """What a consumer says of a message that belongs to another instance does not count."""
    settle = queue.settle

    def fenced(key: Any, positions: BitMap64, *given: Any, **more: Any) -> Any:
        return settle(key, positions - queue.places.foreign, *given, **more)

    queue.settle = fenced


def _early_dropped(one: QueueState, replicated: Any, queue: Any) -> None:
    add = replicated.early.add
    replicated.early.add = lambda origin, early: (
        None if isinstance(early.fact, OriginsGone) else add(origin, early)
    )


def _stopped_is_dropped(one: QueueState, replicated: Any, queue: Any) -> None:
    """An origin that was stopped goes on behind the record that did not fit."""
    record = replicated.record

    def dropped(batch: Any, said: Any, **more: Any) -> bool:
        record(batch, said, **more)
        replicated.stopped.clear()
        return True

    replicated.record = dropped


def _flags_lost(one: QueueState, replicated: Any, queue: Any) -> None:
    """What may have been delivered elsewhere is not flagged."""
    replicated._flag = lambda local: None


def _by_local_position(one: QueueState, replicated: Any, queue: Any) -> None:
    """Facts of peers are taken for positions of this log."""
    replicated.runs.local = lambda origin, positions: positions.copy()


# -- definitions ------------------------------------------------------------------------------


def _two_lives(core: Any) -> None:
    """A queue of the config stays the one that this instance made."""
    replicated = core.manager.replicated
    learn = replicated.learn

    def own(record: ReplicatedDefinition, position: int) -> None:
        if core.manager.here is not None and record.life.instance == core.manager.here.instance:
            learn(record, position)

    replicated.learn = own


# -- a local queue becomes one of several instances (that this is one unit: test_scope_changes) ---


def _scanned(core: Any, change: Callable[[Any], None]) -> None:
    """What is read for the names of messages is changed before it reads anything."""
    begin = core.manager.folding.begin_scan

    def begun(one: QueueState, scan: Any) -> None:
        change(scan)
        begin(one, scan)

    core.manager.folding.begin_scan = begun


def _done_is_left_out(core: Any) -> None:
    def change(scan: Any) -> None:
        scan.done = lambda here: {}

    _scanned(core, change)


def _one_name_of_each(core: Any) -> None:
    """A message that two instances accepted counts as done by its other name."""

    def change(scan: Any) -> None:
        scan.kept = scan.names

    _scanned(core, change)


def _without_facts(core: Any, left_out: Callable[[Any], object]) -> None:
    facts = core._scopes._facts
    core._scopes._facts = lambda *given: [one for one in facts(*given) if not left_out(one)]


def _leased_is_left_out(core: Any) -> None:
    _without_facts(core, lambda fact: isinstance(fact, Carried) and fact.seen)


def _counts_are_left_out(core: Any) -> None:
    _without_facts(core, lambda fact: isinstance(fact, Carried) and fact.failures)


def _nothing_waits(core: Any) -> None:
    """Acknowledgements count for the local queue while it becomes another one."""
    core._scopes.hold = lambda one, then: False


def _is_never_quiet(core: Any) -> None:
    """What was decided may land after the state was written."""
    core._scopes._is_quiet = lambda one: True


QUEUES: Final[dict[str, Change]] = {
    "numbers are of the owner": _number_of_the_owner,
    "of equal numbers the later one holds": _equal_numbers,
    "ties change no owner": _tie_ignored,
    "acknowledgements are fenced": _acknowledgements_fenced,
    "early acknowledgements are dropped": _early_dropped,
    "what may not wait is dropped": _stopped_is_dropped,
    "what others delivered is not flagged": _flags_lost,
    "facts are of local positions": _by_local_position,
    "takeovers do not count at the owner": _without(
        Moved, lambda replicated, fact: fact.takeover and fact.to != replicated.me
    ),
    "transfers do not count at the receiver": _without(
        Moved, lambda replicated, fact: fact.to == replicated.me
    ),
    "filters ask for nothing": _filters_ask_for_nothing,
    "what does not fit is asked for": _asks_for_what_does_not_fit,
}
CORES: Final[dict[str, Callable[[Any], None]]] = {
    "it believes its intention": _believes_its_intention,
    "what is being given is offered": _offers_what_it_gives,
    "it offers after the request": _offers_before_it_has_read,
    "two lives of a queue": _two_lives,
    "nothing is asked for": _nothing_is_asked,
    "it answers what is durable here only": _says_what_is_here_only,
    "only the first owner is asked": _only_the_first_owner_is_asked,
    "messages are named by local positions": _asks_by_local_position,
    "what is given at a stop goes back": _what_is_given_may_go_back,
    "all that is given is flagged": _all_is_given_as_seen,
    "of a local queue what is done is left out": _done_is_left_out,
    "of a local queue what is leased is left out": _leased_is_left_out,
    "of a local queue counts are left out": _counts_are_left_out,
    "messages of a local queue have one name": _one_name_of_each,
    "acknowledgements do not wait for a change": _nothing_waits,
    "a change does not wait for what was decided": _is_never_quiet,
}


def _passes_nothing_on(core: Any) -> None:
    """A request reaches instances with a link only."""
    heard = core._requests.heard
    core.sources.wanted = core._requests.heard = lambda peer, want: heard(
        peer, replace(want, hops=0)
    )


LINKS: Final[dict[str, Callable[[Any], None]]] = {"no request is passed on": _passes_nothing_on}
ALL: Final = (*QUEUES, *CORES, *LINKS)
