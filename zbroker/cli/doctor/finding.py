"""What the doctor says of one fault. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """check: which check found it. means: for the data and those who use it. fix: a command."""

    check: str
    what: str
    means: str
    fix: str


class LeftOut(Exception):
    """A check that could not be made, and why."""
