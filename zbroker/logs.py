"""Where log lines go and what they look like: `[log]` of the settings.

A line says what happened, what it means for the data, what comes next.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys

from zbroker.config import LogConfig
from zbroker.errors import ConfigError


class JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{record.msecs:03.0f}",
            "level": record.levelname.lower(),
            "room": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


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
