"""How many histories a run plays: scripts/test fewer than scripts/test-all."""

from __future__ import annotations

import os
from typing import Final

#: in the environment of a run with `--long` (tests/conftest.py)
LONG: Final = "ZB_LONG"


def seed_count(short: int, long: int) -> int:
    """short: of scripts/test. long: of scripts/test-all. ZB_SEEDS says another number."""
    return int(os.environ.get("ZB_SEEDS", long if os.environ.get(LONG) else short))
