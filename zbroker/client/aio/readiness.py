"""Has the event loop tell of what comes on a link.

ZeroMQ's descriptor tells of a change, not of a state: it stays silent about what was there when the
socket was used last, for receiving or for sending. So whoever is called reads until nothing is
left, and does so again after each send.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable

import zmq

from zbroker.client.link import Link


class Watch:
    """Calls `on_socket` when answers may be there, `on_monitor` when events may be."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        link: Link,
        on_socket: Callable[[], None],
        on_monitor: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._fds = [int(one.getsockopt(zmq.FD)) for one in (link.socket, link.monitor)]
        for fd, function in zip(self._fds, (on_socket, on_monitor), strict=True):
            loop.add_reader(fd, function)

    def close(self) -> None:
        """Before the link is closed: its descriptors may be others' then."""
        for fd in self._fds:
            self._loop.remove_reader(fd)
