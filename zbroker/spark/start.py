"""A local Spark session with the settings that a replay wants, and with a Java found for it.

Nothing is installed or downloaded: see zbroker.spark.java.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from zbroker.errors import ZBrokerError
from zbroker.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: of the JVM, which copies each row of a table: it counts as much as reading them in Python
_JAVA: Final = " ".join(
    (
        "-Darrow.enable_unsafe_memory_access=true",  # no check of bounds for each value
        "-Darrow.enable_null_check_for_get=false",
        "-XX:+UseParallelGC",  # rows die young
    )
)
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",  # saves 40 ms for each Python task
    # 15 s are not enough for a JVM on a busy machine, and a worker that gives up is a failed task
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
}


def session(app_name: str, master: str = "local[2]", **conf: object) -> SparkSession:
    """A running SparkSession on this machine; call its `.stop()` when done.

    conf: further settings, by their Spark names: `session("job", **{"spark.task.maxFailures": 1})`.
    Sets JAVA_HOME, PYSPARK_PYTHON and SPARK_LOCAL_IP of this process: the JVM is its child.
    Raises: ZBrokerError no_java, no_spark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ZBrokerError("no_spark", str(error), "install the `spark` extra") from None
    os.environ["JAVA_HOME"] = java_home()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers take whatever `python3` is on PATH
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**_SETTINGS, **conf}.items():
        builder = builder.config(
            name, str(value).lower() if isinstance(value, bool) else str(value)
        )
    return builder.getOrCreate()
