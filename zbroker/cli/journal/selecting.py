"""Which segments archive, compress and remove are about: always the oldest ones, up to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from zbroker.cli.journal import points
from zbroker.clock import format_time, parse_time
from zbroker.errors import ZBrokerError

Command = Callable[..., None]
Find = Callable[[str], int]  # the position of the point with this name


def selection_options(command: Command) -> Command:
    """`--through`, `--before`, `--point`, `--all-sealed`: one of them has to be given."""
    for option in (
        click.option("--all-sealed", is_flag=True, help="All segments but the open one."),
        click.option(
            "--point", metavar="NAME",
            help="Segments that end before the place with this name (see `point ls`).",
        ),
        click.option(
            "--before", metavar="TIME",
            help="Segments whose last message is older: YYYYmmddTHHMMSS in UTC, or -7d.",
        ),
        click.option(
            "--through", metavar="SERIAL", type=click.IntRange(min=1),
            help="The segments up to this one, which is one of them.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection. Raises: click.UsageError unless it is exactly one of the four."""

    through: int | None
    before: str | None
    point: str | None
    all_sealed: bool

    def __post_init__(self) -> None:
        named = [one for one in (self.through, self.before, self.point) if one is not None]
        if len(named) + self.all_sealed != 1:
            raise click.UsageError(
                "give one of --through SERIAL, --before TIME, --point NAME, --all-sealed"
            )
        self.before_ns()

    def last(self, segments: Sequence[dict[str, Any]], find: Find) -> int:
        """The newest serial that is meant; 0 if none is.

        segments: rows as `journal ls --json` has them, oldest first.
        Raises: ZBrokerError not_found for a serial that is not there; what `find` raises.
        """
        sealed = [row for row in segments if not row["open"]]
        if self.through is not None:
            self._check(segments)
            return self.through
        if self.all_sealed:
            return int(sealed[-1]["serial"]) if sealed else 0
        if self.point is not None:
            return ending_before(sealed, find(self.point))
        before, last = self.before_ns(), 0
        assert before is not None, "one of the four is given"
        for row in sealed:
            if row["last_time"] is None or parse_time(row["last_time"]) >= before:
                break
            last = int(row["serial"])
        return last

    def before_ns(self) -> int | None:
        """The time of `--before`."""
        if self.before is None:
            return None
        found = points.time_ns(self.before)
        if found is None:
            raise click.UsageError(
                f"{self.before!r} is not a time: write YYYYmmddTHHMMSS in UTC, or -7d"
            )
        return found

    def __str__(self) -> str:
        """Its text for people."""
        if self.through is not None:
            return f"through segment {self.through}"
        if self.point is not None:
            return f"before point {self.point}"
        before = self.before_ns()
        return "all sealed segments" if before is None else f"before {format_time(before)}"

    def _check(self, segments: Sequence[dict[str, Any]]) -> None:
        serials = [int(row["serial"]) for row in segments]
        if self.through not in serials:
            there = f"there are {serials[0]} to {serials[-1]}" if serials else "there are none"
            reason = f"there is no segment {self.through}"
            raise ZBrokerError("not_found", reason, f"{there}: see `journal ls`")


def ending_before(sealed: Sequence[dict[str, Any]], position: int) -> int:
    """The newest of the oldest segments that hold nothing from this position on; 0: none."""
    last = 0
    for row in sealed:
        if row["end"] is None or row["end"] > position:
            break
        last = int(row["serial"])
    return last
