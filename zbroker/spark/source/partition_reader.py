"""What a task does: one range as record batches, in an executor."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from zbroker.errors import ZBrokerError
from zbroker.spark.arrow import record_batches
from zbroker.spark.ranges import LogRange
from zbroker.spark.source.options import SourceOptions
from zbroker.spark.source.places import SourceLog
from zbroker.spark.workers import settle

_LOG = logging.getLogger(__name__)


def read(part: LogRange | None, schema: pa.Schema, options: SourceOptions) -> Iterator[Any]:
    """Record batches of a range; none for None, which stands for a plan without ranges.

    Raises: ZBrokerError, as `replay`; what was removed since the plan is skipped, with a line in
    the log, where failOnDataLoss is false.
    """
    settle()
    if part is None:
        return
    begun = False
    try:
        for batch in record_batches(part, schema, options.rows):
            begun = True
            yield batch
    except ZBrokerError as error:
        if options.fail_on_data_loss or begun or error.code != "bookmark_expired":
            raise
        rest = _rest(part, options)
        _LOG.warning("%s; it is skipped, because failOnDataLoss is false", error.reason)
        if rest is not None:
            yield from record_batches(rest, schema, options.rows)


def _rest(part: LogRange, options: SourceOptions) -> LogRange | None:
    place = SourceLog(options)
    try:
        floor = place.state().floor
    finally:
        place.close()
    return replace(part, first=max(part.first, floor)) if floor < part.end else None
