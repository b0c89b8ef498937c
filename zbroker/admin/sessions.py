"""/sessions: which there are, and the end of one."""

from __future__ import annotations

from typing import Any

from zbroker.admin import requests as asking
from zbroker.admin.process_link import QueueLink
from zbroker.clock import format_time
from zbroker.wire import session_surveys as y

Document = dict[str, Any]


class SessionReports:
    """Answers from any thread. All methods raise ClientError."""

    def __init__(self, link: QueueLink) -> None:
        self._link = link

    def sessions(self, wanted: asking.SessionsQuery) -> Document:
        """By principal and name."""
        ask = y.AskSessionRows(0, wanted.principal, wanted.session, wanted.limit)
        answer = self._link.look(y.SessionsSurveyed, ask)
        return {"left_out": answer.left_out, "sessions": [_session(row) for row in answer.rows]}

    def end(self, ask: asking.EndSessionRequest) -> Document:
        """Nothing that was attached before commits any more when this returns."""
        question = y.EndSession(0, ask.principal, ask.session, ask.dry_run)
        done = self._link.change(question)
        return {
            "principal": ask.principal, "session": ask.session, "dry_run": ask.dry_run,
            "attached": done.count,
        }  # fmt: skip


def _session(row: y.SurveyedSession) -> Document:
    return {
        "principal": row.principal, "session": row.session, "client": row.client,
        "begun": format_time(row.epoch), "epoch": str(row.epoch),
        "instance": f"{row.instance:016x}", "number": row.number,
        "committed_in": str(row.committed), "messages": row.messages, "position": row.position,
        "timeout_ms": row.timeout_ms, "state": row.state, "ended": row.ended, "code": row.code,
        "text": row.text,
    }  # fmt: skip
