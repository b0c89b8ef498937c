"""delivery's session with the journal: watermarks, and which part of the log readers need. Pure.

    Welcome, or watermarks of another journal --> what was read is forgotten, plans begin again
    Welcome                                   --> look-ups without an answer are asked again
    on a beat, and when it changes            --> Holds: which part of the log is needed

Reads go on by the watermarks of another journal, before that has welcomed this process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from heapq import nsmallest
from operator import attrgetter
from typing import Final, NamedTuple

from zbroker.delivery.connections import Connections
from zbroker.delivery.contract import CloseFiles, DeliveryStats, Effect, PlanRanges
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.lookups import Locating, Plans
from zbroker.delivery.pending_lookups import Asking
from zbroker.engine.contract import MS_NS, Now
from zbroker.engine.effects import JOURNAL, ForgetBlocks, Note, Say
from zbroker.engine.journal_session import JournalSession
from zbroker.ids import Origin
from zbroker.limits import HOLDINGS_MAX, IDLE_BEAT_MS, U63_MAX
from zbroker.wire.internal import Holding, Holds, Watermarks, Welcome

HOLDS_MS: Final = IDLE_BEAT_MS  # how often the journal hears of it if the lowest is the same
LET_GO_MS: Final = 30_000  # how long a file that was removed or moved may be kept open


class JournalFollower:
    """session: knows which journal listens. needs: the part of the log that is reported to it."""

    def __init__(
        self, session: JournalSession, cursors: Cursors, locating: Locating,
        needs: LogNeeds, plans: Plans, counts: DeliveryStats,
    ) -> None:  # fmt: skip
        self.session, self._cursors, self._locating = session, cursors, locating
        self._needs, self._plans, self._counts = needs, plans, counts
        self._holds_ms = self._close_ms = 0
        self._reported = (0, False)  # log start, and whether any subscription is eager

    def watermarks(self, watermarks: Watermarks, now_ms: int) -> list[Effect]:
        """How far the log is durable; or that another journal is there."""
        if watermarks.incarnation != self._cursors.incarnation:
            self._locating.lost()
        return [*self.session.watermarks(watermarks.incarnation, now_ms), *self._heard(watermarks)]

    def welcome(self, welcome: Welcome) -> list[Effect]:
        """A journal listens."""
        renewed = self.session.welcome(welcome)
        if renewed is None:
            return []
        self._holds_ms = 0
        return [*renewed, *self._heard(welcome), *self._locating.again()]

    def _heard(self, said: Watermarks | Welcome) -> list[Effect]:
        another = said.incarnation != self._cursors.incarnation
        here = Origin(said.instance, said.generation)
        rewound = self._cursors.heard(
            said.incarnation, here, said.log_start, said.written, said.persisted
        )
        effects: list[Effect] = []
        if another:
            effects += [ForgetBlocks(), *self._plans.open, *self._locating.find_again()]
        if rewound:
            self._counts.rewound += rewound
            text = (
                f"the log ends at position {said.persisted}, before {rewound} subscriptions; "
                "messages that they got after it are not in the log; they go on from its end"
            )
            values = {"position": said.persisted, "subscriptions": rewound}
            effects.append(Note("delivery.rewound", text, values=values))
        return effects

    def report(self, now: Now) -> list[Effect]:
        """Which part of the log is needed, if it is another one or a beat is due."""
        journal = self.session.welcomed_by
        to_report = self._cursors.log_start, self._cursors.eager
        if not journal or (to_report == self._reported and now.mono_ms < self._holds_ms):
            return []
        holds = self._needs.holds(journal, self._plans.open, now.wall_ns // MS_NS)
        effects: list[Effect] = [Say(JOURNAL, holds)]
        if to_report[0] != self._reported[0] or now.mono_ms >= self._close_ms:
            self._close_ms = now.mono_ms + LET_GO_MS
            effects.append(CloseFiles())
        self._reported, self._holds_ms = to_report, now.mono_ms + HOLDS_MS
        return effects

    def next_wake_ms(self) -> int:
        """When the session or `report` has something to do."""
        hello_ms = self.session.next_wake_ms()
        return self._holds_ms if hello_ms is None else hello_ms


class Need(NamedTuple):
    """The log from `position` on, for a connection. `key` stays the same while it is needed."""

    position: int
    key: Hashable
    rid: bytes
    what: str


class LogNeeds:
    """The part of the log that delivery needs, so that the journal removes no segment of it.

    Needed are running subscriptions, also those that wait for credit; located points while others
    of the same question are still looked up; and ranges that are being split. A cursor only moves
    forward, and none is opened below a known log start (Locating asks again), so a report stays
    true: once no cursor is below a log start, none ever will be.
    """

    def __init__(self, connections: Connections, cursors: Cursors, asking: Asking) -> None:
        self._connections, self._cursors, self._asking = connections, cursors, asking
        self._since: dict[Hashable, int] = {}  # wall clock, ms, when a need was first reported

    def holds(self, incarnation: int, plans: Iterable[PlanRanges], wall_ms: int) -> Holds:
        """For the journal with this incarnation."""
        needs = [*self._running(), *self._asked(), *_planned(plans)]
        since = self._since
        self._since = {need.key: since.get(need.key, wall_ms) for need in needs}
        lowest = nsmallest(HOLDINGS_MAX, needs, key=attrgetter("position"))
        holdings = [self._holding(need) for need in lowest]
        first = lowest[0].position if lowest else U63_MAX
        return Holds(incarnation, self._cursors.log_start, first, holdings, self._cursors.eager)

    def _running(self) -> Iterator[Need]:
        for replay in self._cursors.running.values():
            for one in replay.members:
                position = one.safe(replay.position)
                yield Need(position, one.names.key, one.names.rid, one.topic)

    def _asked(self) -> Iterator[Need]:
        """Answers below the log start are left out: those questions are asked again."""
        for question in self._asking.questions():
            located = [one.position for one in question.answers.values() if not one.code]
            if located and min(located) >= self._cursors.log_start:
                key = question.key or ("ranges", question.rid, question.command.cid)
                yield Need(min(located), key, question.rid, question.what)

    def _holding(self, need: Need) -> Holding:
        connection = self._connections.get(need.rid)
        who = connection.token.name if connection is not None else ""
        return Holding(who, need.what, need.position, self._since[need.key])


def _planned(plans: Iterable[PlanRanges]) -> Iterator[Need]:
    for plan in plans:
        yield Need(plan.start.position, ("ranges", plan.rid, plan.cid), plan.rid, "ranges")
