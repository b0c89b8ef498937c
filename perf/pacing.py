"""How exactly a replay keeps to the rate that was asked for, as its subscriber sees it.

The log's own pace is known: its times are the publisher's, PACE messages to the second. Message
number k of a replay is due k / rate seconds after the first one. The lead is how many messages a
subscriber had before they were due; what lets one look early is also a first one that came late.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import zbroker
from perf.harness import Result, Setup, payloads

PACE: Final = 5_000  # messages per second of log time
RATES: Final[dict[str | int, float]] = {1: 1, 100: 100, 10_000: 10_000, 50_000: 50_000}
MULTIPLES: Final[dict[str | int, float]] = {"2X": 2 * PACE, ".5X": PACE / 2}
SECONDS_MAX: Final = 10.0
SECONDS_MIN: Final = 2.0
MIN_MESSAGES: Final = 4  # for the slowest, however short the run is
FLUSH_S: Final = 120.0
T0_NS: Final = 1_600_000_000_000_000_000
SETTINGS: Final = {"journal": {"time": "publisher", "segment_size": "256MiB"}}


class Arrivals(NamedTuple):
    """Per batch: when it came, and how many messages had come by then."""

    at_s: list[float]
    counts: list[int]


def rates(setup: Setup) -> list[Result]:
    """Measured rate next to the one asked for; the worst lead over the schedule."""
    asked = {**RATES, **MULTIPLES}
    seconds = min(SECONDS_MAX, max(SECONDS_MIN, setup.messages / max(asked.values())))
    measured: dict[str | int, list[Arrivals]] = {rate: [] for rate in asked}
    with _broker(setup) as broker, zbroker.connect(broker.url, name="perf-pacing") as client:
        _fill(client, round(seconds * max(asked.values())) + 1)
        for _ in setup.each_round("rates"):
            for rate, wanted in asked.items():
                count = max(MIN_MESSAGES, round(seconds * wanted))
                measured[rate].append(_replay(client, rate, count))
    return [_result(rate, wanted, measured[rate]) for rate, wanted in asked.items()]


@contextmanager
def _broker(setup: Setup) -> Iterator[zbroker.LocalBroker]:
    """As `Setup.broker`, with the publisher's times."""
    data_dir = Path(tempfile.mkdtemp(prefix="broker-", dir=setup.directory))
    try:
        with zbroker.LocalBroker(data_dir, settings=SETTINGS) as broker:
            yield broker
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _fill(client: zbroker.client.Client, count: int) -> None:
    step_ns = 1_000_000_000 // PACE
    client.publish_many("pace", payloads(count), times=[T0_NS + k * step_ns for k in range(count)])
    client.flush(timeout=FLUSH_S)


def _replay(client: zbroker.client.Client, rate: str | int, count: int) -> Arrivals:
    """The first `count` messages at a rate."""
    arrivals = Arrivals([], [])
    have = 0
    with client.subscribe("pace", since="epoch", rate=rate) as subscription:
        for batch in subscription.batches(timeout=FLUSH_S):
            have += len(batch)
            arrivals.at_s.append(time.perf_counter())
            arrivals.counts.append(have)
            if have >= count:
                break
    return arrivals


def rate_of(arrivals: Arrivals) -> float:
    """Messages per second from the first one to the last."""
    return (arrivals.counts[-1] - 1) / (arrivals.at_s[-1] - arrivals.at_s[0])


def lead_of(arrivals: Arrivals, rate: float) -> float:
    """The most messages that had come before they were due; the first one is no lead."""
    begun = arrivals.at_s[0]
    return max(
        count - 1 - (at - begun) * rate
        for at, count in zip(arrivals.at_s, arrivals.counts, strict=True)
    )


def _result(rate: str | int, wanted: float, measured: list[Arrivals]) -> Result:
    ours = [rate_of(arrivals) for arrivals in measured]
    lead = max(lead_of(arrivals, wanted) for arrivals in measured)
    notes: dict[str, Any] = {
        "worst_error_percent": round(max(abs(one / wanted - 1) for one in ours) * 100, 2),
        "worst_lead_messages": round(lead, 1),
        "worst_lead_ms": round(lead / wanted * 1e3, 2),
        "batches": len(measured[-1].at_s),
    }
    unit = "messages/s"
    name = f"replay, rate={rate}" + ("" if isinstance(rate, str) else "/s")
    target = "within 2 %, 1 message ahead at most"
    return Result(name, unit, ours, [wanted] * len(ours), "asked for", target, notes=notes)
