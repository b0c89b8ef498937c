"""Writes a DataFrame to an instance with the sink, once for each publishId."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zbroker.client.connect_types import Credentials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: options must not hold a password; the process that asks for it is a child of this one
PASSWORD: Final = "ZBROKER_SPARK_PASSWORD"


class JobTarget(NamedTuple):
    """Where to; topic "": the column of that name says it."""

    url: str
    topic: str = ""
    credentials: Credentials | None = None

    def options(self) -> dict[str, str]:
        """Of the sink."""
        topic = {"topic": self.topic} if self.topic else {}
        return {"endpoint": self.url, **topic, **login(self.credentials)}


def login(credentials: Credentials | None) -> dict[str, str]:
    """Credentials as options of the data source."""
    if credentials is None:
        return {}
    found = {"keyFile": str(credentials.key), "serverKey": str(credentials.server)}
    if credentials.user is not None:
        found["user"] = credentials.user
    if credentials.password is not None:
        found["passwordVariable"] = PASSWORD
    return found


def announce(credentials: Credentials | None) -> None:
    """Sets the variable that `login` names; has to come before the session is made."""
    if credentials is not None and credentials.password is not None:
        os.environ[PASSWORD] = credentials.password


def register(spark: Any) -> None:  # noqa: ANN401 - a SparkSession
    """Makes the format known, also where only a source tree is."""
    from zbroker.spark.source.datasource import ZBrokerSource

    spark.dataSource.register(ZBrokerSource)


def write(frame: DataFrame, to: JobTarget, publish_id: str) -> int:
    """How many rows were given to the sink. Raises: what Spark says: see `translated`."""
    from pyspark.sql import Observation, functions

    register(frame.sparkSession)
    counted = Observation(f"rows of {publish_id}")
    observed = frame.observe(counted, functions.count(functions.lit(1)).alias("rows"))
    writer = observed.write.format("zbroker").mode("append").options(**to.options())
    writer.option("publishId", publish_id).save()
    rows: int = counted.get["rows"]
    return rows
