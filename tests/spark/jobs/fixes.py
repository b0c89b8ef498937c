"""Functions for the tests of reprocessing; executors import them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zbroker.spark.jobs.reprocess import FunctionRow


def doubled(messages: list[FunctionRow]) -> Iterator[tuple[str, bytes]]:
    for message in messages:
        yield f"{message.topic}.doubled", message.data * 2


def counted(batch: Any) -> Iterator[tuple[str, str]]:
    yield "counted", str(batch.num_rows)


def wrong(messages: list[FunctionRow]) -> Iterator[object]:
    yield messages[0].data
