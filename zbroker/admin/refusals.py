"""What rooms with doors refused for want of rights, as lines of the audit log: asked each second.

A thread of its own: a room that hangs keeps nobody else waiting.
"""

from __future__ import annotations

import threading
from typing import Final

from zbroker.admin.audit import Audit, AuditedRequest
from zbroker.admin.process_link import ProcessLink
from zbroker.errors import ClientError
from zbroker.wire.surveys import AskRefusals, RefusalRows

EVERY_S: Final = 1.0


class RefusalReports:
    """Begins with `start`."""

    def __init__(self, desks: ProcessLink, audit: Audit) -> None:
        self._desks = desks
        self._audit = audit
        self._seen = dict.fromkeys(desks.rooms, 0)  # the newest number of each room
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refusals", daemon=True)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def stop(self) -> None:
        """At the latest when a question that is under way is given up."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for room in self._seen:
                self.look(room)

    def look(self, room: str) -> None:
        """Asks one room, and writes down what is new."""
        try:
            told = self._desks.ask(RefusalRows, AskRefusals(0, self._seen[room]), [room])[room]
        except ClientError:
            return  # others ask, or the admin stops: what is new is asked for again
        if told is None:
            return
        for row in told.rows:
            self._audit.refuse(AuditedRequest(row.who, row.origin, f"{room}: {row.what}"), row.code)
        if told.left_out:
            self._audit.refuse(
                AuditedRequest("", "", f"{room}: {told.left_out} more requests"), "refused"
            )
        self._seen[room] = told.last
