"""Found by Spark itself: every module `pyspark_*` is asked for a `DefaultSource`.

It is imported whenever Spark meets a format that it does not know, so it has to stay light.
"""

from zbroker.spark.source.datasource import ZBrokerSource


class DefaultSource(ZBrokerSource):
    """The format `zbroker`."""
