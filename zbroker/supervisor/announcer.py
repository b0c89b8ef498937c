"""Says that an instance runs, and where: in run/instance.json, the log, and to what started it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from zbroker.clock import SystemClock
from zbroker.config import Config
from zbroker.paths import Paths
from zbroker.supervisor import directory
from zbroker.supervisor.core import Announce

log: Final = logging.getLogger("supervisor")


class Announcer:
    """Performs Announce. ready: called with the URL once every process is ready.

    began_ms: when the start of the instance began.
    """

    def __init__(
        self, config: Config, paths: Paths, ready: Callable[[str], None], began_ms: int
    ) -> None:
        self._config, self._paths, self._ready, self._began_ms = config, paths, ready, began_ms
        self._started = datetime.now(UTC).isoformat(timespec="seconds")

    def announce(self, effect: Announce) -> None:
        """Where the processes are reached that listen by now; that they serve, if all do."""
        url = directory.write_running(self._paths, self._config, self._started, effect.endpoints)
        if effect.ready:
            what = {"took_ms": SystemClock().mono_ms() - self._began_ms, "url": url}
            log.info("ready in %(took_ms)d ms: %(url)s", what, extra={"code": "supervisor.ready"})
            self._ready(url)
