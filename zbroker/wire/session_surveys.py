"""Questions of the admin about sessions to the queues process, and its answers. Pure.

AskSessionRows{principal, session, limit}   ->  SessionsSurveyed{rows, left_out}
EndSession{principal, session, dry_run}     ->  Changed
"""

from __future__ import annotations

from msgspec import Struct, field

from zbroker.wire.internal import Correlated, Refusable


class AskSessionRows(Correlated, tag="ask_session_rows"):
    """admin -> queues. principal, session: only of these names; "" is all. limit: rows at most."""

    principal: str = ""
    session: str = ""
    limit: int = 0


class SurveyedSession(Struct, array_like=True, gc=False):
    """A session. epoch, instance: of its last begin. committed, number: of its last transaction, 0:
    none; messages, position: that it showed, in this log. client: that has it attached here, "".
    timeout_ms: 0: none. state: attached, waiting (for that, with a time-out), ended; "": it is not
    attached, or that is known elsewhere. ended, code, text: why it ended."""

    principal: str
    session: str
    epoch: int
    instance: int
    committed: int
    number: int
    messages: int
    position: int
    client: str = ""
    timeout_ms: int = 0
    state: str = ""
    ended: str = ""
    code: str = ""
    text: str = ""


class SessionsSurveyed(Refusable, tag="sessions_surveyed"):
    """queues -> admin. By principal and name. left_out: how many more there are."""

    rows: list[SurveyedSession] = field(default_factory=list)
    left_out: int = 0


class EndSession(Correlated, tag="end_session"):
    """admin -> queues. No client commits in the session before it is attached again.
    Answered by Changed, durable; `count`: how many connections here had it attached."""

    principal: str
    session: str
    dry_run: bool = False


SessionQuestion = AskSessionRows | EndSession
SessionAnswer = SessionsSurveyed
