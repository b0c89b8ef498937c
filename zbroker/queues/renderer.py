"""Messages for consumers, made of what was read: the body as it is, or packed anew. Pure.

Only who may see everything (no access rules) gets a body with more in it than what counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from pyroaring import BitMap64

from zbroker.blocks.frame_builder import Frame, FrameBuilder, Projection
from zbroker.engine.effects import Send
from zbroker.filters import Filter
from zbroker.log.format import Batch
from zbroker.queues.effects import Give, InspectedMessage
from zbroker.queues.message_finder import FoundMessages
from zbroker.wire import bodies
from zbroker.wire.queue_messages import Job


def _plain(topic: str) -> str:
    raise AssertionError(f"nothing is rewritten of {topic}")


class Renderer:
    """For one origin. sees_all: no access rules hold."""

    def __init__(self, maker: FrameBuilder) -> None:
        self._maker = maker

    def parts(self, give: Give, found: FoundMessages, *, sees_all: bool) -> tuple[Frame, ...]:
        """The messages of one batch for a consumer."""
        dress = None
        if give.barrier or give.deliveries is not None or give.acked is not None:
            dress = _dress(give, found.batch)
        look = Projection(_plain, give.to.zstd, dress=dress)
        return self._maker.picked(found.block, found.at, found.picks, look, sees_all=sees_all)


def sends(give: Give, parts: Sequence[Frame]) -> list[Send]:
    """The frames of parts for a consumer."""
    sid, rid = give.to.sid_packed, give.to.rid
    return [Send(rid, part.before + sid + part.after, part.body) for part in parts]


def _dress(give: Give, batch: Batch) -> Callable[[Any, Sequence[int]], None]:
    """What is said of messages besides what they are."""
    first = batch.position - batch.skip

    def dress(job: Job, picks: Sequence[int]) -> None:
        job.barrier = give.barrier
        positions = [first + pick for pick in picks]
        if give.deliveries is not None:
            at = give.positions.rank(positions[0] - 1)
            counts = give.deliveries[at : at + len(positions)]
            if max(counts) > 1:
                job.deliveries = bodies.to_little(array("H", [min(n, 65_535) for n in counts]))
        if give.acked is not None and give.acked:
            job.acked = bytes(position in give.acked for position in positions)

    return dress


def matching(
    found: FoundMessages,
    content: Filter,
    type_of: Callable[[str], str],
    payloads: Callable[..., Any],
) -> BitMap64:
    """The positions of messages that a filter is true for."""
    batch, about = found.batch, found.block.about(found.at)
    first = batch.position - batch.skip
    by_type: dict[str, list[int]] = {}
    for pick in found.picks:
        by_type.setdefault(type_of(about.topic(pick)), []).append(pick)
    hits = BitMap64()
    for type_, picks in by_type.items():
        data = payloads(type_, found.block.unpacked(found.at))
        for pick in content.test(type_).picks(data, picks, about):
            hits.add(first + pick)
    return hits


def looked(found: FoundMessages) -> list[InspectedMessage]:
    """The messages one by one, as they were published."""
    batch, about = found.batch, found.block.about(found.at)
    messages, columns = found.block.unpacked(found.at), batch.columns
    headers = found.block.headers(found.at)
    keys = None
    if columns is not None and columns.keys is not None:
        keys = bodies.keys(columns.keys, batch.count)
    return [
        InspectedMessage(
            batch.position - batch.skip + pick, about.topic(pick), batch.publisher,
            batch.sequence + pick - batch.skip, about.time_ns(pick), messages[pick],
            keys[pick] if keys is not None else None,
            headers.of(pick),
        )
        for pick in found.picks
    ]  # fmt: skip
