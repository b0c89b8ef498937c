"""The queues core's side of the journal: its messages, and the reports to it. Pure.

    Welcome --AskNamed--> Named --Load--> Loaded: the queues begin
    on a beat, and at once when the log start moves: Holds, which part of the log is needed

Before the queues are known the journal gets no report, and keeps all of the log.

A queue that holds more than its max_hold lets go of its oldest messages, by a purge record. As
retention removes whole segments, it lets go of whole segments: of all before the first segment from
which on the log takes no more than max_hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Final

from zbroker.engine.contract import MS_NS, Now
from zbroker.engine.effects import (
    JOURNAL,
    Follow,
    ForgetBlocks,
    Note,
    Progress,
    Ready,
    Say,
)
from zbroker.engine.journal_session import JournalSession
from zbroker.errors import StorageError
from zbroker.ids import Origin, format_vector
from zbroker.limits import BEAT_MS, HOLDINGS_MAX, U63_MAX
from zbroker.log.format import KIND_PURGE
from zbroker.log.generations import Generations
from zbroker.log.records import PurgeRecord
from zbroker.queues.context import QueuesContext
from zbroker.queues.effects import Effect, ListSegments, Load, Segments, TablesLoaded
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.wire.internal import (
    Confirm,
    Hello,
    Holding,
    Holds,
    Watermarks,
    Welcome,
)
from zbroker.wire.units import AskNamed, NamedRows

HOLDS_MS: Final = BEAT_MS  # how often the journal hears of it
LET_GO_MS: Final = 30_000  # how long a file that was removed or moved may be kept open


class JournalClient:
    """Follows the journal, for the queues core. session: says Hello, and which one listens."""

    def __init__(self, shared: QueuesContext, incarnation: int) -> None:
        self._shared, self._manager = shared, shared.manager
        self.session = JournalSession(
            incarnation, lambda number: Hello("queues", incarnation, number=number)
        )
        self._since: dict[str, int] = {}  # wall clock, ms, since when a queue needs the log
        self._met = 0  # the journal that welcomed last
        self._reported = 0  # how far its generation is durable, as it was reported with that one
        self._named: NamedRows | None = None  # until the tables are loaded
        self._holds_ms = self._let_go_ms = self._log_start_reported = 0
        self._making_reported = False
        self._started = False
        self._definitions = 0  # the newest watermarks that a question was asked for

    def start(self) -> list[Effect]:
        """How far the start is, until all queues are read as far as the log was durable then."""
        if self._started:
            return []
        manager = self._manager
        self._started = manager.ready
        left, text = manager.following.lag, "making queues" if manager.known else ""
        if left:
            text = f"reading the log: {left} positions left"
        return [Ready() if self._started else Progress(text)]

    # -- messages of it -----------------------------------------------------------------------

    def watermarks(self, watermarks: Watermarks) -> Sequence[Effect]:
        """How far the log is durable; or that another journal is there."""
        if watermarks.incarnation == self.session.welcomed_by:
            here = Origin(watermarks.instance, watermarks.generation)
            for begin in watermarks.raised:
                self._manager.history.begin(*begin)
            self._heard(here, watermarks.log_start, watermarks.persisted)
            self._shared.out += self._exchanges(watermarks)
            if watermarks.definitions == self._definitions or not self._manager.known:
                return ()
            self._definitions = watermarks.definitions
            return [Say(JOURNAL, AskNamed(0, watermarks.incarnation))]
        return self.over()

    def _exchanges(self, watermarks: Watermarks) -> list[Effect]:
        """Asks for what has changed; those who wait until ingest routes by theirs go on."""
        exchanges = self._manager.exchanges
        exchanges.routed(watermarks.routed)
        ask = exchanges.follower.watermarks(watermarks)
        return [] if ask is None else [Say(JOURNAL, ask)]

    def over(self) -> Sequence[Effect]:
        """The journal that welcomed this process does not listen to it any more."""
        self._manager.commits.lost()
        return self.session.over(self._shared.now.mono_ms)

    def welcome(self, welcome: Welcome) -> Sequence[Effect]:
        """A journal listens. Raises: StorageError, if it lost what was read."""
        before = self.session.welcomed_by
        renewed = self.session.welcome(welcome)
        if renewed is None:
            return ()
        manager = self._manager
        manager.history = Generations(welcome.generations)
        self._heard(
            Origin(welcome.instance, welcome.generation), welcome.log_start, welcome.persisted
        )
        if welcome.persisted < manager.following.persisted:
            raise StorageError(
                "damaged", "the log ends before what the queues have read; they are read again"
            )
        if welcome.incarnation == before:
            return ()
        manager.folding.welcomed(welcome.incarnation, welcome.written)
        self._shared.promises.journal_begins(welcome.incarnation)
        self._shared.journal = welcome.incarnation
        self._shared.ask_again()
        self._shared.out += [
            Say(JOURNAL, AskNamed(0, welcome.incarnation)),
            Say(JOURNAL, manager.exchanges.follower.welcome(welcome.incarnation)),
        ]
        if welcome.incarnation == self._met:
            return renewed
        self._met, self._holds_ms = welcome.incarnation, 0
        return [ForgetBlocks(), *renewed]

    def _heard(self, here: Origin, log_start: int, persisted: int) -> None:
        manager = self._manager
        if manager.here is not None:
            ended = manager.history.end(manager.here.generation)
            # not `following.persisted`: the answer to AskNamed raises it, and may come before the
            # watermarks of the generation that it is of
            if here.instance != manager.here.instance or self._reported > ended:
                text = f"generation {here.generation} of the log has not all that the queues read"
                raise StorageError("damaged", f"{text}; they are read again")
        manager.here = max(manager.here or here, here)
        manager.announced = manager.announced or here
        manager.raised(log_start)
        manager.following.persisted = max(manager.following.persisted, persisted)
        self._reported = max(self._reported, persisted)

    def named(self, named: NamedRows) -> Sequence[Effect]:
        """The definitions of the log. Raises: ConfigError."""
        if self._manager.known:
            self._begin(named)
            return ()
        manager, self._named = self._manager, named
        assert manager.here is not None, "a Welcome came before"
        assert manager.announced is not None
        persisted = manager.following.persisted
        return [Load(manager.here, persisted, manager.history, manager.announced)]

    def loaded(self, loaded: TablesLoaded) -> None:
        """What the tables hold: the queues begin. Raises: ConfigError."""
        if self._named is not None:
            self._manager.restore(loaded.saved, loaded.noted)
            named, self._named = self._named, None
            self._begin(named)

    def _begin(self, named: NamedRows) -> None:
        self._manager.named(named)
        self._holds_ms = 0

    # -- messages to it -----------------------------------------------------------------------

    def follow(self, now_ms: int) -> list[Follow]:
        """Queues are views of the log, and what is committed holds when it was read there."""
        manager = self._manager
        needed = bool(manager.running) or manager.commits.open > 0
        return self.session.follow(now_ms, needed=needed)

    def commits(self, now: Now) -> list[Effect]:
        """The units that may be sent now."""
        taken: list[Effect] = []
        persisted = self._manager.following.persisted
        while (found := self._manager.commits.take(now.mono_ms, persisted)) is not None:
            taken.append(Say(JOURNAL, *found))
        return taken

    def report(self, now: Now) -> list[Effect]:
        """Which part of the log the queues need, if that is due."""
        log_start, journal = self._manager.log_start, self.session.welcomed_by
        if not journal or not self._manager.known:
            return []  # it keeps all of the log while it hears nothing
        making = bool(self._manager.making)
        news = log_start != self._log_start_reported or making > self._making_reported
        if not news and now.mono_ms < self._holds_ms:
            return []
        let_go = log_start != self._log_start_reported or now.mono_ms >= self._let_go_ms
        if let_go:
            self._let_go_ms = now.mono_ms + LET_GO_MS
        self._log_start_reported, self._holds_ms = log_start, now.mono_ms + HOLDS_MS
        self._making_reported = making
        confirm = Confirm(journal, self._manager.commits.confirmed)
        holds = self.holds(now.wall_ns // MS_NS)
        return [Say(JOURNAL, holds), Say(JOURNAL, confirm), ListSegments(let_go)]

    def next_wake_ms(self) -> int | None:
        """When the session or `report` has something to do."""
        hello_ms = self.session.next_wake_ms()
        return hello_ms if hello_ms is not None or not self._manager.known else self._holds_ms

    # -- the part of the log that is needed ---------------------------------------------------

    def holds(self, wall_ms: int) -> Holds:
        """The part of the log that the queues need."""
        manager, holding, journal = self._manager, self._shared.holding, self.session.welcomed_by
        if not manager.ready:
            # dead letters that were brought back may be before the place that is read from, and a
            # queue that is being made has no place yet
            return Holds(journal, manager.log_start, 0)
        for one in self._shared.dirty.values():  # the tables may have had messages of it
            self._shared.note_use(one)
        many = sorted((one.lowest, one.name) for one in holding.values())
        walks = manager.following.lowest  # also that of units in doubt
        lowest = min((many[0][0] if many else U63_MAX, U63_MAX if walks is None else walks))
        others = (one for one in manager.running.values() if one.name not in holding)
        many += ((one.folded, one.name) for one in islice(others, HOLDINGS_MAX))
        del many[HOLDINGS_MAX:]
        self._since = {name: self._since.get(name, wall_ms) for _, name in many}
        holdings = [Holding("queues", name, position, self._since[name]) for position, name in many]
        return Holds(journal, manager.log_start, lowest, holdings)

    def segments(self, segments: Segments) -> None:
        """Queues that hold more of the log than they may let go of their oldest messages."""
        log = segments.extents
        bounded = [
            one for one in self._shared.holding.values()
            if one.definition.config.max_hold and one.ready
        ]  # fmt: skip
        if not bounded or not log:
            return
        newest_first = log[::-1]
        sums = list(accumulate(extent.bytes for extent in newest_first))
        for one in bounded:
            # the open segment is kept, however large it is: retention could not remove it
            within = max(1, bisect_right(sums, one.definition.config.max_hold))
            self._release_before(one, newest_first[min(within, len(sums)) - 1].first)

    def _release_before(self, one: QueueState, position: int) -> None:
        manager, queue = self._manager, one.queue
        position = min(position, one.folded)
        if not isinstance(queue, Replayable) or manager.here is None:
            return
        count = len(queue.before(position))
        if position <= one.releasing_to or not count:
            return
        one.releasing_to = position

        def done(code: str, reason: str, _: int) -> None:
            if code:
                one.releasing_to = 0  # the next look tries again
                text = f"queue {one.name!r} could not let go of the log: {reason}; nothing changed"
                values: dict[str, object] = {"queue": one.name, "reason": reason}
                manager.notes.append(Note("queues.release_refused", text, values=values))
                return
            values = {"queue": one.name, "messages": count, "position": position}
            text = _released(one, count, position)
            manager.notes.append(Note("queues.released", text, values=values))

        vector = format_vector({manager.here: position - 1})
        life = 0 if one.replicated is None else one.replicated.view.declaration
        record = PurgeRecord(one.name, vector, life=life)
        manager.commits.add_record(KIND_PURGE, record, done)


def _released(one: QueueState, count: int, position: int) -> str:
    most = one.definition.config.max_hold
    return (
        f"queue {one.name!r} held more of the log than its max_hold of {most} bytes: {count} "
        f"messages before position {position} were purged from it; they stay in the log as long "
        "as [retention] keeps them; raise max_hold, or purge earlier"
    )
