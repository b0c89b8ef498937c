"""The delivery core's side of the journal: what that says, and what it hears of delivery. Pure.

    Welcome, or watermarks of another journal --> what was read is forgotten, plans begin again
    Welcome                                   --> look-ups without an answer are asked again
    on a beat, and when it changes            --> Holds: which part of the log is needed

Reads go on by the watermarks of another journal, before that has welcomed this process.
"""

from __future__ import annotations

from typing import Final

from zbroker.delivery.cursors import Cursors
from zbroker.delivery.effects import CloseFiles, DeliveryStats, Effect
from zbroker.delivery.holds import LogNeeds
from zbroker.delivery.lookups import Locating
from zbroker.delivery.plans import Plans
from zbroker.engine.contract import MS_NS, Now
from zbroker.engine.effects import JOURNAL, ForgetBlocks, Note, Say
from zbroker.engine.journal_session import JournalSession
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS
from zbroker.wire.internal import Watermarks, Welcome

HOLDS_MS: Final = BEAT_MS  # how often the journal hears of it
LET_GO_MS: Final = 30_000  # how long a file that was removed or moved may be kept open


class JournalFollower:
    """session: tells which journal listens. needs: what is reported to it."""

    def __init__(
        self, session: JournalSession, cursors: Cursors, locating: Locating,
        needs: LogNeeds, plans: Plans, counts: DeliveryStats,
    ) -> None:  # fmt: skip
        self._session, self._cursors, self._locating = session, cursors, locating
        self._needs, self._plans, self._counts = needs, plans, counts
        self._holds_ms = self._close_ms = 0
        self._reported = (0, False)  # log start, and whether any subscription is eager

    def watermarks(self, marks: Watermarks, now_ms: int) -> list[Effect]:
        """How far the log is durable; or that another journal is there."""
        if marks.incarnation != self._cursors.incarnation:
            self._locating.lost()
        return [*self._session.watermarks(marks.incarnation, now_ms), *self._heard(marks)]

    def welcome(self, welcome: Welcome) -> list[Effect]:
        """A journal listens."""
        renewed = self._session.welcome(welcome)
        if renewed is None:
            return []
        self._holds_ms = 0
        return [*renewed, *self._heard(welcome), *self._locating.again()]

    def _heard(self, said: Watermarks | Welcome) -> list[Effect]:
        another = said.incarnation != self._cursors.incarnation
        here = Origin(said.instance, said.generation)
        rewound = self._cursors.heard(
            said.incarnation, here, said.floor, said.written, said.persisted
        )
        effects: list[Effect] = [ForgetBlocks(), *self._plans.open] if another else []
        if rewound:
            self._counts.rewound += rewound
            text = (
                f"the log ends at position {said.persisted}, before {rewound} subscriptions; "
                "what they had seen behind it is not in the log; they go on from its end"
            )
            effects.append(Note("delivery.rewound", text))
        return effects

    def tick(self, now_ms: int) -> list[Effect]:
        """Says Hello, if that is due."""
        return [*self._session.tick(now_ms)]

    def report(self, now: Now) -> list[Effect]:
        """Which part of the log is needed, if it is another one or a beat is due."""
        journal = self._session.welcomed_by
        to_report = self._cursors.floor, self._cursors.eager
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
        """When `tick` or `report` has something to do."""
        hello_ms = self._session.next_wake_ms()
        return self._holds_ms if hello_ms is None else hello_ms
