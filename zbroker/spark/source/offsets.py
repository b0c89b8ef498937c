"""What a checkpoint keeps of a query, and what it means for the log that is there now. Pure.

    {"v": 1, "journal": "0123456789abcdef", "generation": 1, "next": 42}

Half-open: `next` is the position of the first message that was not delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.ids import Origin, format_vector

VERSION: Final = 1
_REMEDY: Final = "start the query with a new checkpoint, or set failOnDataLoss to false"


@dataclass(frozen=True, slots=True)
class Offset:
    """The first position of a log that was not delivered."""

    origin: Origin
    next: int

    def as_json(self) -> dict[str, int | str]:
        """As Spark keeps it."""
        return {
            "v": VERSION,
            "journal": f"{self.origin.instance:016x}",
            "generation": self.origin.generation,
            "next": self.next,
        }


def parse(given: Mapping[str, object]) -> Offset:
    """Raises: ClientError bad_bookmark."""
    version = given.get("v")
    if version != VERSION:
        text = f"the checkpoint has an offset of version {version!r}, this is {VERSION}"
        hint = "use the zbroker that wrote it, or a new checkpoint"
        raise ClientError("bad_bookmark", text, hint)
    try:
        instance = int(str(given["journal"]), 16)
        return Offset(Origin(instance, int(str(given["generation"]))), int(str(given["next"])))
    except (KeyError, ValueError):
        text = f"{dict(given)} is not an offset of a zbroker checkpoint"
        raise ClientError("bad_bookmark", text, _REMEDY) from None


class LogState(NamedTuple):
    """A log as it is now: positions [log_start, head) can be read, all of them are durable."""

    origin: Origin
    log_start: int
    head: int

    def vector_before(self, position: int) -> str:
        """The vector from which on messages have `position` or a later one."""
        return format_vector({self.origin: position - 1})


def loss(offset: Offset, state: LogState, kept: int | None = None) -> ClientError | None:
    """The reason why messages from `offset` on cannot be read any more; None if they can.

    kept: as in `resumed`. Up to where its generation ended here, an offset is as good as ever.
    """
    here, there = state.origin, offset.origin
    if here.instance != there.instance:
        text = f"the checkpoint is of log {there.instance:016x}, but {here.instance:016x} is there"
        hint = f"name the log of the checkpoint, or {_REMEDY}"
        return ClientError("bookmark_not_found", text, hint)
    if here.generation != there.generation and kept != offset.next:
        text = (
            f"the checkpoint is of generation {there.generation} of the log, now it has "
            f"{here.generation}, and the older one ended before position {offset.next}"
        )
        return ClientError("bookmark_not_found", text, _REMEDY)
    if offset.next < state.log_start:
        text = (
            f"positions {offset.next} to {state.log_start - 1} were removed before they were read"
        )
        hint = f"name their archive as `journal`, or {_REMEDY}"
        return ClientError("bookmark_expired", text, hint)
    return None


def resumed(offset: Offset, state: LogState, kept: int | None = None) -> int:
    """Where to go on after a loss that was accepted: with as much as there is.

    kept: for an offset of another generation, the position from which on the log has what comes
    after it; None if that is not known.
    """
    at = offset.next if offset.origin == state.origin else kept
    return state.log_start if at is None else max(state.log_start, min(at, state.head))
