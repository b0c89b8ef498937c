"""run/disconnects.json: the admin writes which clients an operator disconnected, others read it.

It is there so that a process that is restarted refuses the same tokens as before. It need not
survive a power cut: that ends the instance, and with it every token.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from zbroker import durable_files
from zbroker.errors import StorageError
from zbroker.wire import disconnects
from zbroker.wire.disconnects import Disconnects


def read(path: Path) -> Disconnects:
    """The known disconnects; empty before the first one. Raises: StorageError."""
    try:
        return disconnects.decode(path.read_bytes())
    except FileNotFoundError:
        return disconnects.NONE
    except ValueError as error:
        hint = "start the instance again: that ends all tokens, and this file with them"
        raise StorageError("damaged", f"{path}: {error}", hint) from None
    except OSError as error:
        raise StorageError("io", f"{path}: {error.strerror}") from None


class DisconnectsFile:
    """Its only writer. Thread-safe. Raises: StorageError."""

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self._path = path
        self._log = log
        self._lock = threading.Lock()
        self.known = read(path)

    def add(self, client: str) -> int:
        """Numbers a disconnect of `client`, before anybody acts on it."""
        with self._lock:
            number = self.known.number + 1
            self.known = self.known.add(client, number)
            self._save(client)
            return number

    def _save(self, client: str) -> None:
        try:
            durable_files.replace(self._path, disconnects.encode(self.known))
        except OSError as error:
            # on a full disk it must be possible to disconnect whoever fills it
            self._log.warning(
                "%s: older tokens of %s count again in a process that is restarted, "
                "until the next disconnect: %s",
                self._path.name, client, error,
            )  # fmt: skip
