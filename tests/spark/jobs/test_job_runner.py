"""Claims about running a job: what ends it is one error with a code."""

from __future__ import annotations

import pytest

from zbroker.errors import ClientError, ZBrokerError
from zbroker.spark.jobs.job_runner import said, translated

TRACE = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 times
  File "replay.py", line 3, in replay
zbroker.errors.NotInLog: bookmark_expired: the range begins at 1, the oldest kept is 9 (begin later)
\tat org.apache.spark.scheduler.DAGScheduler
"""


def failed(error: Exception) -> ZBrokerError:
    with pytest.raises(ZBrokerError) as caught, translated():
        raise error
    return caught.value


def from_spark(text: str) -> Exception:
    kind = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    error: Exception = kind(text)
    return error


def test_an_error_of_ours_in_a_task_is_that_error() -> None:
    error = failed(from_spark(TRACE))
    assert error.code == "bookmark_expired"
    assert error.reason == "the range begins at 1, the oldest kept is 9"
    assert error.hint == "begin later"


def test_an_error_of_ours_on_the_driver_stays_what_it_is() -> None:
    error = ClientError("gap", "positions 1 to 2 are damaged")
    assert failed(error) is error


def test_another_failure_of_spark_is_reported_in_one_line() -> None:
    error = failed(from_spark(": [DATA_SOURCE_NOT_FOUND] Failed to find it.\n\tat org.apache\n"))
    assert (error.code, error.reason) == (
        "spark_failed", "[DATA_SOURCE_NOT_FOUND] Failed to find it."
    )  # fmt: skip
    assert said("") == "no reason"


def test_a_bug_of_ours_stays_one() -> None:
    with pytest.raises(KeyError), translated():
        raise KeyError("x")
