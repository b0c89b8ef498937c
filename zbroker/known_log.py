"""What a data directory knows of its log, beside it: how far it was durable, in which generation.

    journal.json    {"version": 1, "instance": "<16 hex digits>", "generation": 1, "position": 100}

Everything below `position` was durable when it was written. So a start finds out that the journal
directory is not the one that was there: an empty one, as where a disk is not mounted, or an older
copy. There is one in the data directory, and one beside the tables of queues.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from zbroker import durable_files
from zbroker.ids import Origin

NAME: Final = "journal.json"
VERSION: Final = 1


class KnownLog(NamedTuple):
    """Positions below `position` of this generation were durable."""

    generation: int
    position: int


def read(directory: Path, instance: int) -> KnownLog | None:
    """The last known state of the log of `instance`; None if it is unknown or cannot be read.

    It only adds to what the log proves by itself, so damage of it stops nothing.
    """
    try:
        found = json.loads((directory / NAME).read_bytes())
        if int(found["version"]) != VERSION or int(found["instance"], 16) != instance:
            return None
        return KnownLog(int(found["generation"]), int(found["position"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(directory: Path, origin: Origin, position: int) -> None:
    """The old text or the new one, also after a power cut. Raises: OSError."""
    fields = {
        "version": VERSION, "instance": f"{origin.instance:016x}",
        "generation": origin.generation, "position": position,
    }  # fmt: skip
    durable_files.write(directory / NAME, f"{json.dumps(fields)}\n".encode())
