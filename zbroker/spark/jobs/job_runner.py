"""What jobs have in common: a stretch of the log, a session, tasks with progress, and a sink."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from zbroker.client.connect_types import Credentials
from zbroker.client.subscriber.points import Point
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, format_vector
from zbroker.limits import MIB
from zbroker.recording import TYPE_DEFAULT
from zbroker.spark.local_session import session, session_class
from zbroker.spark.ranges import LogRange, plan_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_BYTES: Final = 64 * MIB  # of the log; a task costs 50 ms before its first row
#: options must not hold a password; the process that asks for it is a child of this one
PASSWORD: Final = "ZBROKER_SPARK_PASSWORD"
_POLL_S: Final = 0.2
_SAID_MAX: Final = 500
#: code, reason, hint: as an error of ours is printed
_OURS: Final = re.compile(r"zbroker\.errors\.\w+: (\w+): ([^\n]*?)(?: \(([^()\n]*)\))?(?:\n|$)")

Step = Callable[[str, int, int], None]  # the step, how much of it is done, of how much
I = TypeVar("I")  # noqa: E741 - item
O = TypeVar("O")  # noqa: E741 - outcome


class Stretch(NamedTuple):
    """As `plan_ranges` takes it. source: the URL of an instance, or a directory."""

    source: str
    since: Point = "epoch"
    until: Point = "now"
    topic: str | None = None
    regex: bool = False
    filter: str = ""
    filter_type: str = TYPE_DEFAULT
    journal: str | None = None
    archive: str | None = None
    credentials: Credentials | None = None

    def ranges(self, parts: int) -> list[LogRange]:
        """At least so many parts. Raises: ZBrokerError, as `plan_ranges`."""
        return plan_ranges(**self._asdict(), min_partitions=parts)

    def sized(self, parts: int, size: int = TASK_BYTES) -> list[LogRange]:
        """The same, with at most about `size` bytes of the log in each."""
        ranges = self.ranges(parts)
        wanted = -(-sum(part.bytes for part in ranges) // size)
        return ranges if wanted <= len(ranges) else self.ranges(wanted)

    def positions(self, origin: Origin, first: int, end: int | None = None) -> Stretch:
        """The same from a position on; `end`: to that position."""
        since = format_vector({origin: first - 1})
        until = self.until if end is None else format_vector({origin: end - 1})
        return self._replace(since=since, until=until)


# -- tasks ---------------------------------------------------------------------------------------


@contextmanager
def spark_session(name: str, master: str = "") -> Iterator[SparkSession]:
    """The session that is active, or that of `spark-submit`; else a local one, stopped at the end.

    master: of a new one; "": all cores of this machine.
    Raises: ZBrokerError no_java, no_spark.
    """
    known = session_class()
    active = known.getActiveSession()
    if active is not None:
        yield active
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has made the settings
        spark = known.builder.appName(name).getOrCreate()
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
    """A report of Spark in one line, without its trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("at ", "An error occurred", "File "))]
    return (reasons or lines or ["no reason"])[0].removeprefix(": ")[:_SAID_MAX]


# -- the sink ------------------------------------------------------------------------------------


class JobTarget(NamedTuple):
    """The broker and the topic; "" for the column of that name."""

    url: str
    topic: str = ""
    credentials: Credentials | None = None

    def options(self) -> dict[str, str]:
        """Options of the sink."""
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
    return int(counted.get["rows"])
