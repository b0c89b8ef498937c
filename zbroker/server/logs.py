"""Where log lines go and what they look like: `[log]` of the settings.

A line says what happened, what it means for the data, what comes next. One that a program may look
for begins with its code, `journal.removed: ...`; its numbers have names:

    log.info("journal.removed: segments up to %(through)d are gone", {"through": 7})
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from zbroker.config import LogConfig
from zbroker.errors import ConfigError

_CODE: Final = re.compile(r"([a-z_]+\.[a-z0-9_]+): ")


class JsonLines(logging.Formatter):
    """One JSON object per record: `time` (UTC, RFC 3339), `level`, `room`, `code`, `message`, and
    what the message names, with its type. `code` is "" for a line that has none."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        found = _CODE.match(message)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "room": record.name,
            "code": getattr(record, "code", found[1] if found else ""),
            "message": message,
        }
        line["time"] = line["time"].replace("+00:00", "Z")
        if isinstance(record.args, Mapping):
            line = {**record.args, **line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(settings: LogConfig, room: str) -> None:
    """Sends what this process logs where the settings say. Raises: ConfigError."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if settings.file:
        try:
            handler = logging.handlers.WatchedFileHandler(settings.file, encoding="utf-8")
        except OSError as error:
            reason = f"`log.file`: {settings.file}: {error.strerror}"
            raise ConfigError("bad_config", reason, "name a file in a folder that exists") from None
    text = f"%(asctime)s %(levelname).1s {room}: %(message)s"
    handler.setFormatter(JsonLines() if settings.format == "json" else logging.Formatter(text))
    logging.basicConfig(handlers=[handler], level=settings.level.upper(), force=True)
