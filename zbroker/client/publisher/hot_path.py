"""What publishing does once per message: compiled where that can be, else in Python.

_hot_path.pyx is built when the package is installed, if there is a compiler; pure_python.py is the
reference, and does the same. ZBROKER_PURE_PYTHON=1 chooses it. So does a Python without the
interpreter lock: several threads append to the inbox and one takes out of it, without a lock.
"""

from __future__ import annotations

import os
import sys
from typing import Final


def _may_be_compiled() -> bool:
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    return has_lock and os.environ.get("ZBROKER_PURE_PYTHON", "") in ("", "0")


try:
    if not _may_be_compiled():
        raise ImportError("Python is asked for")
    from zbroker.client.publisher._hot_path import (  # noqa: I001 - exported, each on a line
        Inbox as Inbox,
        MappedRecords as MappedRecords,
        QueuedMessage as QueuedMessage,
        StagingArea as StagingArea,
        gated as gated,
        number as number,
        payloads as payloads,
        receipts as receipts,
        untracked as untracked,
    )
except ImportError:
    from zbroker.client.publisher.pure_python import (  # noqa: I001 - exported, each on a line
        Inbox as Inbox,
        MappedRecords as MappedRecords,
        QueuedMessage as QueuedMessage,
        StagingArea as StagingArea,
        gated as gated,
        number as number,
        payloads as payloads,
        receipts as receipts,
        untracked as untracked,
    )

COMPILED: Final = not Inbox.__module__.endswith("pure_python")
