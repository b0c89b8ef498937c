"""What the journal is asked in line with what is appended: sessions, names, commits. Pure.

The answer leaves after the sync of what stands before the question, so what it says is durable.
"""

from __future__ import annotations

from typing import Final

from zbroker.errors import ClientError
from zbroker.journal.group_builder import DISK_FULL, NOT_READY, GroupBuilder
from zbroker.journal.stage_commits import CommitPlacer
from zbroker.wire import internal as m
from zbroker.wire.stages import AbortStages, CommitStages, StagesDone
from zbroker.wire.units import AskNamed, NamedRows

ABORTED_MAX: Final = 100  # stages at once, while the disk is nearly full
Question = m.Open | m.Close | AskNamed | CommitStages | AbortStages
Answer = m.Opened | NamedRows | StagesDone


class Answering:
    """Answers from the tables of `to`, and places commits in its group."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._committing = CommitPlacer(to)

    def answer(self, ask: Question) -> Answer | None:
        """None: it is no question that has an answer."""
        sessions = self._to.sessions
        if isinstance(ask, m.Open):
            return self._open(ask)
        if isinstance(ask, AskNamed):
            named = sessions.named
            wiring, points = list(named.wiring.rows()), list(named.points.rows())
            return NamedRows(ask.cid, self._to.next_position, wiring, points)
        if isinstance(ask, CommitStages):
            return self._committing.place(ask)
        if isinstance(ask, AbortStages):
            return self._abort(ask)
        sessions.close(ask.name, ask.session)
        return None

    def _abort(self, ask: AbortStages) -> StagesDone:
        """What is not here needs no record."""
        to = self._to
        keys = to.sessions.stages.known(ask.principal, dict.fromkeys(ask.stages))
        if keys and to.fenced:
            return StagesDone(ask.cid, code="not_ready", reason=NOT_READY)
        if keys and not to.accepting and len(keys) > ABORTED_MAX:
            return StagesDone(ask.cid, code="disk_full", reason=DISK_FULL)
        if keys:
            to.end_stages(keys)
        return StagesDone(ask.cid)

    def _open(self, ask: m.Open) -> m.Opened:
        """`seq` is durable when the answer leaves."""
        try:
            known = self._to.sessions.open(ask.name, ask.principal, self._to.wall_ns)
        except ClientError as error:
            return m.Opened(ask.cid, ask.name, code=error.code, reason=error.reason)
        if known is None:
            reason = f"the name {ask.name!r} has the publisher id of another name"
            return m.Opened(ask.cid, ask.name, code="publisher_collision", reason=reason)
        return m.Opened(ask.cid, ask.name, known.id, known.session, known.high, known.unbroken)
