"""Keeps a session attached that has a time-out: a thread that looks at its connection.

The program may work on a message for longer than the time-out, and says nothing to the broker
meanwhile. So its session is attached again as soon as its connection is lost, not with the next
transaction. What its consumers hold stays theirs.
"""

from __future__ import annotations

import threading
from typing import Final

from zbroker.client.session_link import SessionLink

LOOK_MAX_S: Final = 1.0  # between two looks
LOOKS: Final = 8  # in the time for which a session is kept
ATTACH_S: Final = 5.0  # one try


class SessionKeeper:
    """The thread, of one link. It ends with that, or by `close`."""

    def __init__(self, link: SessionLink) -> None:
        self._link, self._closed = link, threading.Event()
        self._every_s = min(LOOK_MAX_S, link.timeout_ms / 1_000 / LOOKS)
        self._thread = threading.Thread(
            target=self._run, name=f"zbroker session {link.name}", daemon=True
        )

    def start(self) -> None:
        """The session was attached."""
        self._thread.start()

    def close(self) -> None:
        """It is not attached again."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._every_s) and self._link.keep(ATTACH_S):
            pass
