"""Which segments archive, compress and remove are about: always the oldest ones, up to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Final

import click

from zbroker.cli.journal import points
from zbroker.cli.options import collecting, count_option, flag_option
from zbroker.clock import parse_time
from zbroker.errors import ZBrokerError

Row = dict[str, Any]  # of a segment, as `journal ls --json` has them
Find = Callable[[str], int]  # the position of the point with this name


class SegmentChoice:
    """The oldest segments up to one. Raises: click.UsageError unless one of the four is given."""

    def __init__(
        self, through: int | None, before: str | None, point: str | None, all_sealed: bool
    ) -> None:
        if [through, before, point, all_sealed or None].count(None) != 3:
            raise click.UsageError(
                "give one of --through SERIAL, --before TIME, --point NAME, --all-sealed"
            )
        self._through, self._point = through, point
        self._before_ns = _time_ns(before) if before is not None else None

    def last(self, segments: Sequence[Row], find: Find) -> int:
        """The newest serial that is meant, of these segments, the oldest first; 0: none is.

        Raises: ZBrokerError not_found for a serial that is not there; what `find` raises.
        """
        sealed = [row for row in segments if not row["open"]]
        before_ns = self._before_ns
        if self._through is not None:
            _check_serial(self._through, [int(row["serial"]) for row in segments])
            return self._through
        if self._point is not None:
            return ending_before(sealed, find(self._point))
        if before_ns is not None:
            return _last_while(
                sealed, lambda row: row["last_time"] and parse_time(row["last_time"]) < before_ns
            )
        return _last_while(sealed, lambda _: True)


def ending_before(sealed: Sequence[Row], position: int) -> int:
    """The newest of the oldest segments that hold nothing from this position on; 0: none."""
    return _last_while(sealed, lambda row: row["end"] is not None and row["end"] <= position)


def _last_while(sealed: Sequence[Row], fits: Callable[[Row], Any]) -> int:
    """The last serial before the first segment that does not fit; 0: none."""
    return max((int(row["serial"]) for row in takewhile(fits, sealed)), default=0)


def _time_ns(text: str) -> int:
    """Raises: click.UsageError."""
    found = points.time_ns(text)
    if found is None:
        raise click.UsageError(f"{text!r} is not a time: write YYYYmmddTHHMMSS in UTC, or -7d")
    return found


def _check_serial(serial: int, serials: Sequence[int]) -> None:
    """Raises: ZBrokerError not_found."""
    if serial not in serials:
        there = f"there are {serials[0]} to {serials[-1]}" if serials else "there are none"
        reason = f"there is no segment {serial}"
        raise ZBrokerError("not_found", reason, f"{there}: see `journal ls`")


#: Adds the options of a SegmentChoice to a command, which gets that as `selection`.
selection_options: Final = collecting(
    "selection",
    SegmentChoice,
    count_option(
        "--through", "The segments up to this one, which is one of them.", metavar="SERIAL"
    ),
    click.option(
        "--before",
        metavar="TIME",
        help="Segments whose last message is older: YYYYmmddTHHMMSS in UTC, or -7d.",
    ),
    click.option(
        "--point",
        metavar="NAME",
        help="Segments that end before the place with this name (see `point ls`).",
    ),
    flag_option("--all-sealed", "All segments but the open one."),
)
