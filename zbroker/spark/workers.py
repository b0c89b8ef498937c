"""What a Python worker of Spark does once, before its first task.

Spark collects the garbage of a worker after every task, and walks all modules of Spark and Arrow
for it: 45 ms, as long as the reading of 300,000 messages takes.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """What is loaded by now is not walked any more; what tasks leave behind still is."""
    gc.freeze()
