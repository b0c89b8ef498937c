"""Bugs planted in the replication of the simulated instances: each must be found by some seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.sim import many_generation_bugs
from tests.sim.two_nodes import plant_core
from zbroker.delivery.core import DeliveryCore
from zbroker.delivery.points import Point
from zbroker.delivery.replay import Replay
from zbroker.delivery.subscription import SubscriptionState
from zbroker.ids import format_vector, parse_vector, raise_to
from zbroker.journal.core import JournalCore
from zbroker.replication import outgoing_link as o
from zbroker.replication.core import ReplicationCore
from zbroker.replication.effects import Effect, FindStart
from zbroker.replication.incoming_link import IncomingLink
from zbroker.replication.log_port import LinkLog
from zbroker.wire import replication as w
from zbroker.wire.internal import Located, Record
from zbroker.wire.replicas import AskOrigins, OriginRows
from zbroker.wire.replication import OriginPosition

Links = Sequence[o.OutgoingLink]


def _each(change: Callable[[Any], None]) -> Callable[[ReplicationCore], None]:
    def plant(core: ReplicationCore) -> None:
        for link in core.outgoing.values():
            change(link)

    return plant


def _sent_is_stored(link: Any) -> None:
    units = link._units

    def and_stored(records: Sequence[tuple[Record, bytes]]) -> Effect:
        effect = units(records)
        for sent in link._sent:
            if sent.last:
                link.peer.received(sent.origin, sent.last, 0)
        return effect

    link._units = and_stored


def _refusals_count(link: Any) -> None:
    receipt = link._receipt

    def without(message: w.LinkReceipt, now_ms: int) -> list[Effect]:
        message.refused = []
        return receipt(message, now_ms)

    link._receipt = without


def _after_is_held(link: Any) -> None:
    selection = link.selection
    given = selection._given_as

    def as_held(batch: Any, last: int, after: int, crc: int | None) -> Record:
        held = max(link.peer.position(batch.origin, 0), 0)
        return given(batch, last, min(after, held), crc)

    selection._given_as = as_held


def _names_once(link: Any) -> None:
    class Kept(set[int]):
        def clear(self) -> None:
            pass

    link._named = Kept()


def _never_again(link: Any) -> None:
    states = link._states

    def without(statement: w.Statement, now_ms: int) -> list[Effect]:
        effects = states(statement, now_ms)
        link._again_ms = None
        return effects

    link._states = without


def _refused_for_good(link: Any) -> None:
    receipt = link._receipt

    def without(message: w.LinkReceipt, now_ms: int) -> list[Effect]:
        effects = receipt(message, now_ms)
        link._again_ms = None
        return effects

    link._receipt = without


def _mark_is_where_it_reads(link: Any) -> None:
    moved = link._moved

    def without() -> list[Effect]:
        link.selection.pending.clear()
        return moved()

    link._moved = without


def _mark_without_third(link: Any) -> None:
    selection = link.selection
    judged = selection.judged

    def without(batch: Any) -> Record | None:
        before = len(selection.pending)
        record = judged(batch)
        if batch.origin_instance != link._mine.instance and len(selection.pending) > before:
            selection.pending.pop()
        return record

    selection.judged = without


def _others_need_no_bodies(link: Any) -> None:
    unsent = link._headers._unsent
    own = link._own.instance
    link._headers._unsent = lambda: {
        origin: 1 << 62 if origin.instance != own else at for origin, at in unsent().items()
    }


def _sessions_outlive(core: ReplicationCore) -> None:
    core.sources._end_all = lambda reason: []  # type: ignore[method-assign]


def _losses_unseen(core: ReplicationCore) -> None:
    sources: Any = core.sources

    def lost(link: IncomingLink) -> list[Effect]:
        return []

    sources._lost = lost

    def hello(event: Any, message: w.LinkHello, now: Any) -> Sequence[Effect]:
        effects: Sequence[Effect] = real(event, message, now)
        link = sources.links.get(event.rid)
        if link is not None:

            def follows(units: w.SendUnits) -> bool:
                link._next = units.ordinal + len(units.records)
                return True

            link.follows = follows
        return effects

    real = sources._hello
    sources._hello = hello


def begins_at_the_newest(log: LinkLog) -> None:
    """Of a log: whatever the destination has, it begins at the newest snapshot."""
    find = log.find

    def newest(effect: FindStart) -> Any:
        class Everything(dict[Any, int]):
            def get(self, _key: Any, _default: Any = None) -> int:
                return 1 << 62

        return find(FindStart(effect.link, effect.session, Everything()))

    log.find = newest  # type: ignore[method-assign]


CORES: Final[dict[str, Callable[[ReplicationCore], None]]] = {
    "what is sent counts as stored": _each(_sent_is_stored),
    "what is refused counts as stored": _each(_refusals_count),
    "after is what the destination has": _each(_after_is_held),
    "names are sent once": _each(_names_once),
    "a silent source is never made up for": _each(_never_again),
    "what was refused is not sent again": _each(_refused_for_good),
    "the mark is where it reads": _each(_mark_is_where_it_reads),
    "records of others hold no mark": _each(_mark_without_third),
    "records of others are read by headers, whoever sends them": _each(_others_need_no_bodies),
    "sessions outlive the journal": _sessions_outlive,
    "what is lost on the way is not noticed": _losses_unseen,
}
LOGS: Final = {"it begins at the newest snapshot": begins_at_the_newest}


def _not_raised(core: JournalCore) -> None:
    core.raise_generation = lambda known=0: None  # type: ignore[method-assign]


def _control_records_count(core: JournalCore) -> None:
    commit = core.commit

    def rows(ask: AskOrigins) -> OriginRows:
        found = [
            OriginPosition(row.instance, row.generation, row.position)
            for row in commit.sessions.origins.rows() if row.position
        ]  # fmt: skip
        return OriginRows(ask.cid, commit.generation, 0, found)

    commit._answers._by_type[AskOrigins] = rows


GENERATIONS: Final[dict[str, Callable[[JournalCore], None]]] = {
    "generation not raised": _not_raised,
    "what does not travel counts": _control_records_count,
}


def _others_as_at_its_begin(core: DeliveryCore) -> None:
    """Resume points name other origins as far as the log had them when the subscription began."""
    progress: Any = core._progress
    real = progress._vector

    def vector(replay: Replay, position: int) -> str:
        found = parse_vector(real(replay, position))
        for one in replay.members:
            raise_to(found, {o: at for o, at in one.at_target.items() if o != core.cursors.here})
        return format_vector(found)

    progress._vector = vector


def _seen_comes_again(core: DeliveryCore) -> None:
    """A start in the middle: what was seen of it elsewhere is sent."""
    add: Any = core.cursors.add

    def without(one: SubscriptionState, at: Point) -> Replay:
        one.cover = None
        replay: Replay = add(one, at)
        return replay

    core.cursors.add = without  # type: ignore[method-assign]


def _marks_ignored(core: DeliveryCore) -> None:
    core.cursors._replicated.on = False


DELIVERIES: Final[dict[str, Callable[[DeliveryCore], None]]] = {
    "resume points name what comes of other origins": _others_as_at_its_begin,
    "what was seen elsewhere comes again": _seen_comes_again,
    "fully durable is durable here": _marks_ignored,
}
TIES: Final = "ties are not counted at a resume"
STARTS: Final = "a start names what is durable later"


def located(bug: str, found: Located) -> Located:
    """A bug of the look-ups."""
    if bug == TIES:
        found.tied = []
    elif bug == STARTS:
        found.passed = [(instance, generation, at + 1) for instance, generation, at in found.passed]
    return found


JOURNALS: Final = ("no ties", "no chain of an origin", "late not flagged")
WRITERS: Final = ("ack before sync",)
ALL: Final = (
    *CORES, *LOGS, *GENERATIONS, *DELIVERIES, TIES, STARTS, *JOURNALS, *WRITERS,
    *many_generation_bugs.ALL,
)  # fmt: skip


def plant_journal(bug: str, core: JournalCore) -> None:
    """A bug of the journal that stores records of others."""
    if bug in JOURNALS:
        plant_core(bug, core.commit)
    elif bug in GENERATIONS:
        GENERATIONS[bug](core)
    elif bug in many_generation_bugs.JOURNALS:
        many_generation_bugs.JOURNALS[bug](core)
    elif bug in many_generation_bugs.REBOOTS:
        many_generation_bugs.REBOOTS[bug](core)
