"""Looks how much of each origin is before a place in the log, from a known place on.

The journal knows it at the beginnings of segments and at the end. From there headers are read, as
many at a time as one turn may take.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import Final

from zbroker.delivery.contract import FindPassed
from zbroker.ids import Vector, raise_to
from zbroker.log.cover import passed
from zbroker.log.reader import Gap, Log

SLICE: Final = 256  # headers between two breaks


def find(log: Log, wanted: FindPassed) -> Generator[None, None, Vector]:
    """The vector at its end. Takes a break at each `yield`."""
    log.refresh()
    vector = dict(wanted.vector)
    headers = log.headers(log.seek(wanted.at), wanted.end)
    while items := list(islice(headers, SLICE)):
        batches = [item[0] for item in items if not isinstance(item, Gap)]
        raise_to(vector, passed(batches, wanted.at, wanted.end))
        yield
    return vector
