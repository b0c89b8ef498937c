"""The log on Spark: ranges planned on the driver, replayed in the executors, no jar.

from zbroker.spark import plan_ranges, replay

ranges = plan_ranges("tcp://127.0.0.1:9101", since="epoch", until="now", min_partitions=8)
spark.sparkContext.parallelize(ranges, len(ranges)).foreachPartition(work)
"""

from zbroker.spark.local_session import java_home, session
from zbroker.spark.log_hold import NotHeldWarning, held
from zbroker.spark.plan_runner import foreach_partition, read_ranges
from zbroker.spark.ranges import LogRange, plan_ranges
from zbroker.spark.replay import replay, replay_arrow, replay_batches

#: the name of `LogRange` in programs that were written before
Range = LogRange

__all__ = [
    "LogRange",
    "NotHeldWarning",
    "foreach_partition",
    "held",
    "java_home",
    "plan_ranges",
    "read_ranges",
    "replay",
    "replay_arrow",
    "replay_batches",
    "session",
]
