"""Where a consumer of a replayable queue begins: a point, a selector, or both. Pure.

    consume --since and until looked up--> --selector compared, slice by slice--> opened
                  \\--not in the log-----------------\\--fits nothing--> refused

The search reads EXAMINE_MAX messages at a time, so that it holds nobody up. Source: seed 003.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

from zbroker.errors import ClientError
from zbroker.filters import Filter, compile_at_once
from zbroker.ids import EPOCH, NOW
from zbroker.limits import U63_MAX
from zbroker.queues.clients import Connection, Consumer
from zbroker.queues.replayable import Replayable
from zbroker.queues.running import Running
from zbroker.queues.shared import Shared
from zbroker.queues.work.sets import lowest
from zbroker.wire import queueing as q
from zbroker.wire.internal import Located

EXAMINE_MAX: Final = 1_000
POINT: Final = "point:"


@dataclass(slots=True)
class Opening:
    """A consumer on its way to its first message. until: before this position it ends."""

    command: q.Consume
    one: Running
    queue: Replayable
    consumer: Consumer
    selector: Filter | None
    start: int = 0
    until: int = U63_MAX


def check(command: q.Consume) -> None:
    """Raises: ClientError bad_field."""
    if command.since is None and command.selector is None:
        text = "a replayable queue is read from somewhere: give `since` or `selector`"
        raise ClientError("bad_field", f"key `since`: {text}")
    if command.filter:
        raise ClientError("bad_field", "key `filter`: a replayable queue is read whole")


class Openings:
    """Of the room. opened, refused: what follows."""

    def __init__(
        self,
        shared: Shared,
        opened: Callable[[Opening], None],
        refused: Callable[[Opening, ClientError], None],
    ) -> None:
        self._shared = shared
        self._opened = opened
        self._refused = refused

    def begin(self, connection: Connection, one: Running, command: q.Consume, it: Consumer) -> None:
        """Raises: ClientError, for what can be said at once."""
        assert isinstance(one.queue, Replayable)
        selector = compile_at_once(command.selector) if command.selector else None
        opening = Opening(command, one, one.queue, it, selector)

        def begun(start: int) -> None:
            opening.start = start
            if command.until is None:
                self._search(opening, start)
            else:
                self._place(opening, command.until, ended)

        def ended(until: int) -> None:
            opening.until = until
            self._search(opening, opening.start)

        self._place(opening, command.since or EPOCH, begun)

    def _place(self, opening: Opening, text: str, then: Callable[[int], None]) -> None:
        """The position that a point is."""
        manager = self._shared.manager
        if text in (EPOCH, "epoch"):
            then(manager.floor)
        elif text in (NOW, "now"):
            then(manager.following.persisted)
        elif text.startswith(POINT):
            point = manager.points.get(text.removeprefix(POINT))
            if point is None:
                raise ClientError("unknown_point", f"there is no point {text[len(POINT) :]!r}")
            then(point.position)
        else:
            self._shared.locate(text, lambda found: self._found(opening, found, then))

    def _found(self, opening: Opening, found: Located, then: Callable[[int], None]) -> None:
        if self._gone(opening):
            return
        try:
            if found.code:
                raise ClientError(found.code, found.reason)
            then(found.position)
        except ClientError as error:
            self._refused(opening, error)

    def _gone(self, opening: Opening) -> bool:
        return opening.consumer.key not in self._shared.consumers

    def _search(self, opening: Opening, start: int) -> None:
        """The first message that the selector is true for; without one, what stands at `start`."""
        if opening.selector is None:
            self._opened(opening)
            return
        part = lowest(opening.queue.here, EXAMINE_MAX, opening.until, start)
        if not part:
            text = f"no message of {opening.command.queue!r} fits the selector"
            self._refused(opening, ClientError("bookmark_not_found", text))
            return

        def examined(matching: BitMap64) -> None:
            if self._gone(opening):
                return
            if matching:
                opening.start = matching.min()
                self._opened(opening)
            else:
                self._search(opening, part.max() + 1)

        self._shared.examine(part, opening.selector, examined)
