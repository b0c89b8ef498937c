"""From what `subscribe` is given to the command for the broker. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from zbroker.client.bookmark_stores import memory
from zbroker.client.subscriber import points
from zbroker.client.subscriber.options import (
    Clock,
    Delivery,
    Duration,
    Rate,
    filter_text,
    options_of,
)
from zbroker.wire.messages import Subscribe


def wanted(  # noqa: PLR0913 - every option by its name
    topic: str,
    *,
    since: points.Point | None,
    until: points.Point | None,
    regex: bool,
    filter: str | None,  # noqa: A002 - the word of the field
    delivery: Delivery,
    rate: Rate | None,
    rate_max_gap: Duration | None,
    conflation: Duration | None,
    conflation_key: str | Sequence[str] | None,
    conflation_clock: Clock | None,
    select: str | None,
    limit: int | None,
    paused: bool,
    bookmark_not_found: Literal["fail", "epoch", "now"],
    bookmark_wait: Duration,
    unrecorded: bool | None,
    credit: int,
    name: str | None,
    discard: memory.Discard,
) -> tuple[Subscribe, memory.StoreOptions]:
    """The command, and what is wanted of the bookmark store. Raises: ZBrokerError bad_field, ..."""
    recent = since == points.RECENT
    options = options_of(
        delivery=delivery, rate=rate, rate_max_gap=rate_max_gap, conflation=conflation,
        conflation_key=conflation_key, conflation_clock=conflation_clock, select=select,
        limit=limit, paused=paused, bookmark_wait=bookmark_wait,
    )  # fmt: skip
    command = Subscribe(
        "", topic, regex=regex, filter=filter_text(filter), options=options, credit=credit,
        bookmark=None if since is None or recent else points.since_text(since),
        until=None if until is None else points.until_text(until),
        bookmark_not_found=bookmark_not_found, unrecorded=unrecorded,
    )  # fmt: skip
    return command, memory.StoreOptions(name, recent, discard)
