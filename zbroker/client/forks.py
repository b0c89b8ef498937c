"""After a fork a client belongs to the parent: in the child every use of it is an error.

The child has neither the client's threads nor a right to its sockets and files.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from zbroker.errors import ZBrokerError


class ForkAware(Protocol):
    """An object that has to know that it is a copy in a child."""

    def _forked(self, error: ZBrokerError) -> None: ...


_watched: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()


def watch(client: ForkAware) -> None:
    """Has `client._forked` called in the child of each fork from now on."""
    _watched.add(client)


def _in_child() -> None:
    error = ZBrokerError(
        "forked",
        "this client was made before a fork and belongs to the parent process",
        "connect again in the child; with multiprocessing use the start method 'spawn'",
    )
    for client in list(_watched):
        client._forked(error)
    _watched.clear()


os.register_at_fork(after_in_child=_in_child)
