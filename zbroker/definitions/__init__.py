"""What a queue is: a `[[queue]]` table compiled, what cannot be, and what enters. Pure.

    table -> validation -> QueueConfig -> definition -> intake: blocks of the log -> what enters

`intake` is imported by its own name: it reads batches of the log, the rest does not.
"""

from zbroker.definitions.definition import BadQueue, Definition, compile_queue
from zbroker.definitions.validation import (
    changed,
    check_queue,
    check_queues,
    migrated,
    read_table,
)

__all__ = [
    "BadQueue",
    "Definition",
    "changed",
    "check_queue",
    "check_queues",
    "compile_queue",
    "migrated",
    "read_table",
]
