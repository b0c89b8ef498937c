"""What a queue is: a `[[queue]]` table compiled, what cannot be, and what enters. Pure.

    table -> reading -> QueueConfig -> definition -> entering: blocks of the log -> what enters
                            \\--> impossible, checking: why there can be no such queue

`entering` is imported by its own name: it reads batches of the log, the rest does not.
"""

from zbroker.definitions.definition import Definition, compile_queue
from zbroker.definitions.impossible import BadQueue
from zbroker.definitions.table_decoder import read_table
from zbroker.definitions.validation import changed, check_queue, check_queues

__all__ = [
    "BadQueue",
    "Definition",
    "changed",
    "check_queue",
    "check_queues",
    "compile_queue",
    "read_table",
]
