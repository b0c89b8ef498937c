"""Runs the tasks of a job and tells how far they are; a session that is there is used."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zbroker.errors import ZBrokerError
from zbroker.spark.start import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Step = Callable[[str, int, int], None]  # what is done, how much, of how much
I = TypeVar("I")  # noqa: E741 - item
O = TypeVar("O")  # noqa: E741 - outcome

_POLL_S: Final = 0.2
_SAID_MAX: Final = 500
#: code, reason, hint: as an error of ours is printed
_OURS: Final = re.compile(r"zbroker\.errors\.\w+: (\w+): ([^\n]*?)(?: \(([^()\n]*)\))?(?:\n|$)")


@contextmanager
def spark_session(name: str, master: str = "") -> Iterator[SparkSession]:
    """The one that runs, or that of `spark-submit`; else a local one, stopped at the end.

    master: of a new one; "": all cores of this machine.
    Raises: ZBrokerError no_java, no_spark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ZBrokerError("no_spark", str(error), "install the `spark` extra") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has made the settings
        spark = SparkSession.builder.appName(name).getOrCreate()
    else:
        spark = session(name, master or "local[*]", **{"spark.sql.session.timeZone": "UTC"})
    try:
        yield spark
    finally:
        spark.stop()


def collected(
    spark: SparkSession, items: Sequence[I], work: Callable[[I], O], step: Step, what: str
) -> list[O]:
    """What `work` makes of each item, one task for each, in the order of the items.

    Raises: the ZBrokerError that ended a task, or spark_failed.
    """
    if not items:
        return []
    context, group = spark.sparkContext, f"zbroker-{secrets.token_hex(4)}"

    def run() -> list[O]:
        context.setJobGroup(group, what)
        found: list[O] = context.parallelize(items, len(items)).map(work).collect()
        return found

    with translated(), ThreadPoolExecutor(1) as pool:
        job = pool.submit(run)
        try:
            while not wait([job], _POLL_S).done:
                step(what, _finished(context.statusTracker(), group), len(items))
        except BaseException:
            context.cancelJobGroup(group)
            raise
        step(what, len(items), len(items))
        return job.result()


def _finished(tracker: Any, group: str) -> int:  # noqa: ANN401 - a StatusTracker
    """Tasks of the group that are done."""
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    stages = (tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds)
    return sum(stage.numCompletedTasks for stage in stages if stage)


@contextmanager
def translated() -> Iterator[None]:
    """Raises: the ZBrokerError that made Spark give up, else spark_failed, in place of a trace."""
    try:
        yield
    except ZBrokerError:
        raise
    except Exception as error:
        found = _OURS.search(str(error))
        if found is not None:
            raise ZBrokerError(found[1], found[2], found[3] or "") from error
        if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
            raise ZBrokerError("spark_failed", said(str(error))) from error
        raise


def said(text: str) -> str:
    """What Spark says, in one line: its reports have a trace behind it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "An error occurred", "File "))]
    return (told or lines or ["no reason"])[0].removeprefix(": ")[:_SAID_MAX]
