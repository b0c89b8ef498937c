"""One publisher whose messages alternate at random between 16 topics, next to one topic."""

from __future__ import annotations

import statistics

from perf.harness import Result, Setup, payloads
from perf.publish import Series, measure

TOPICS = 16


def interleaved(setup: Setup) -> list[Result]:
    """Both in the same run, in turn; the ratio of the two is the target."""
    bodies = payloads(setup.messages)
    names = [f"perf.{number}" for number in range(TOPICS)]
    one = Series("publish, 1 topic", "", ["perf"] * len(bodies))
    mixed = setup.random.choices(names, k=len(bodies))
    many = Series(f"publish, {TOPICS} topics at random", ">= 50 % of one topic", mixed)
    measure(setup, bodies, [one, many])
    shares = (mine / other for mine, other in zip(many.ours, one.ours, strict=True))
    many.notes["share_of_one_topic"] = round(statistics.median(shares), 2)
    return [one.result(), many.result()]
