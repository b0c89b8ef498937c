"""How far an export is: units that were planned, those that are done, where to go on. Pure.

    planned --its files are there--> done --counted in the progress--> gone from the list

A unit is planned before anything of it is written, and keeps its bounds for ever: so whoever does
it again writes the same files under the same names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zbroker.errors import ClientError
from zbroker.ids import Origin

VERSION: Final = 1


class ExportUnit(NamedTuple):
    """Positions [first, end)."""

    first: int
    end: int

    @property
    def name(self) -> str:
        """Sorts as the log does."""
        return f"{self.first:020d}-{self.end:020d}"


class FinishedUnit(Struct, frozen=True):
    """What became of a unit."""

    first: int
    end: int
    messages: int
    payload_bytes: int
    files: int


class Choice(Struct, frozen=True):
    """What an export takes of the log. It never changes, else parts of it would not fit."""

    instance: str
    generation: int
    since: str
    topic: str | None
    regex: bool
    filter: str
    filter_type: str


class ExportProgress(Struct, frozen=True):
    """`_progress.json`: everything from `begin` to `end` is exported but the `units`."""

    choice: Choice
    begin: int
    end: int
    units: list[ExportUnit] = []
    messages: int = 0
    payload_bytes: int = 0
    files: int = 0
    version: int = VERSION

    @property
    def origin(self) -> Origin:
        """Whose positions these are."""
        return Origin(int(self.choice.instance, 16), self.choice.generation)

    @property
    def exported(self) -> int:
        """Everything before this position is exported."""
        return min((unit.first for unit in self.units), default=self.end)


def begun(choice: Choice, first: int) -> ExportProgress:
    """Of an export that begins at `first`."""
    return ExportProgress(choice, first, first)


def with_units(progress: ExportProgress, units: Iterable[ExportUnit]) -> ExportProgress:
    """The same with more of the log planned, which begins where it ended."""
    more = [unit for unit in units if unit.first < unit.end]
    end = more[-1].end if more else progress.end
    return replace(progress, units=[*progress.units, *more], end=end)


def with_done(progress: ExportProgress, done: Iterable[FinishedUnit]) -> ExportProgress:
    """The same once these are done; what is not planned (any more) is counted already."""
    counted = {ExportUnit(one.first, one.end): one for one in done}
    mine = [counted[unit] for unit in progress.units if unit in counted]
    return replace(
        progress,
        units=[unit for unit in progress.units if unit not in counted],
        messages=progress.messages + sum(one.messages for one in mine),
        payload_bytes=progress.payload_bytes + sum(one.payload_bytes for one in mine),
        files=progress.files + sum(one.files for one in mine),
    )


def check_same(known: Choice, wanted: Choice, *, since_given: bool) -> None:
    """Raises: ClientError bad_field, unless this goes on with what was begun."""
    for name in wanted.__struct_fields__:
        here, asked = getattr(known, name), getattr(wanted, name)
        if here != asked and (name != "since" or since_given):
            raise ClientError(
                "bad_field",
                f"this directory has an export with {name} {here!r}, not {asked!r}",
                "choose the same again, or another directory",
            )


def encode(progress: ExportProgress) -> bytes:
    """As it is kept."""
    return msgspec.json.format(msgspec.json.encode(progress), indent=2)


def decode(data: bytes) -> ExportProgress:
    """Raises: ClientError bad_field, for what is none."""
    try:
        found = msgspec.json.decode(data, type=ExportProgress)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClientError("bad_field", f"_progress.json cannot be read: {error}") from None
    if found.version != VERSION:
        raise ClientError(
            "bad_field", f"_progress.json has version {found.version}, this program knows {VERSION}"
        )
    return found
