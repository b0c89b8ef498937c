"""The public ports of an instance, held while it runs, so that a restarted process finds its own.

A held port is bound and not listened on. The process binds and listens beside it (both set
SO_REUSEADDR); no other program gets the port while the process is down, and the system does not
give it to an outgoing connection (a client that tries again and again would in the end connect to
itself).
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable
from typing import Final

from zbroker import endpoints
from zbroker.config import Config, listen_endpoints, setting_of
from zbroker.errors import ConfigError

_ANY: Final = {"*": "0.0.0.0"}
_TAKEN: Final = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES})
#: A killed process may listen a moment longer than it holds the lock of its directory, since the
#: kernel closes its descriptors one by one: a restart right after a kill is not a wrong config.
PAUSES_MAX: Final = 40
PAUSE_S: Final = 0.05


class HeldPorts:
    """Holds ports until closed."""

    def __init__(self, pause: Callable[[float], None] = time.sleep) -> None:
        self._held: list[socket.socket] = []
        self._pause = pause

    def hold_listeners(self, config: Config) -> dict[str, str]:
        """Where each process with a listener will be reached. Raises: ConfigError."""
        return {
            name: self.hold(f"listen.{setting_of(name)}", endpoint)
            for name, endpoint in listen_endpoints(config).items()
        }

    def hold(self, key: str, endpoint: str) -> str:
        """`endpoint` with a concrete port, which is held; `key` is its setting.

        An interface's name is left to the process, which can resolve it.
        Raises: ConfigError: another program listens there, or this address is not of this host.
        """
        at = endpoints.split(endpoint)
        family = socket.AF_INET6 if at.host.startswith("[") else socket.AF_INET
        holder = socket.socket(family, socket.SOCK_STREAM)
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._bind(holder, (_ANY.get(at.host, at.host.strip("[]")), at.port))
        except OSError as error:
            holder.close()
            if error.errno not in _TAKEN:
                return endpoint
            reason = f"`{key}`: cannot listen on {endpoint}: {error.strerror}"
            hint = "stop what uses it, or choose another port; 0 picks a free one"
            raise ConfigError("bad_config", reason, hint) from None
        self._held.append(holder)
        return str(at._replace(port=holder.getsockname()[1]))

    def _bind(self, holder: socket.socket, address: tuple[str, int]) -> None:
        """Raises: OSError: another program goes on listening there."""
        for left in reversed(range(PAUSES_MAX)):
            try:
                holder.bind(address)
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not left:
                    raise
            self._pause(PAUSE_S)

    def close(self) -> None:
        """Gives them back."""
        for holder in self._held:
            with contextlib.suppress(OSError):  # nothing is lost: the process ends
                holder.close()
        self._held.clear()
