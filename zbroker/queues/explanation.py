"""Why is nothing delivered? One answer, of a queue or of one message. Pure."""

from __future__ import annotations

from zbroker.queues.queue_state import QueueState
from zbroker.queues.shared import QueuesContext
from zbroker.wire.queue_surveys import Explain, Explained


def explain(shared: QueuesContext, one: QueueState, ask: Explain) -> Explained:
    """The reason first, then what stands around it."""
    if ask.position:
        state, lines = _message(shared, one, ask.position)
    else:
        state, lines = _queue(shared, one)
    return Explained(ask.cid, state, lines)


def _queue(shared: QueuesContext, one: QueueState) -> tuple[str, list[str]]:
    if not one.ready:
        behind = shared.manager.following.persisted - one.folded
        return "reading", [f"it is being read: {behind} positions of the log are left"]
    if shared.manager.commits.full:
        return "journal", ["the journal does not take what is to be committed; see its state"]
    lines = one.queue.why_nothing(shared.now)
    starved = [
        consumer for consumer in shared.consumers.values()
        if consumer.queue == one.name and consumer.credit <= 0
    ]  # fmt: skip
    lines += [
        f"consumer {each.client}/{each.sid} has no credit: it does not read what it was sent"
        for each in starved
    ]
    if one.parked:
        lines.append("what was offered waits for the horizon to be durable")
    return ("waiting" if lines else "delivering"), lines or ["nothing holds it back"]


def _message(shared: QueuesContext, one: QueueState, position: int) -> tuple[str, list[str]]:
    standing = one.queue.where(position)
    lines = [_SENTENCES.get(standing.state, "it is {}").format(standing.state)]
    owner = shared.consumers.get(standing.consumer or 0)
    if owner is not None:
        lines.append(f"consumer {owner.client}/{owner.sid} has it")
    if standing.due is not None:
        left_ms = max(0, standing.due - shared.now.mono_ms)
        lines.append(f"that is over in {left_ms / 1000:.1f} s")
    if standing.deliveries or standing.failures:
        lines.append(f"{standing.deliveries} deliveries, {standing.failures} failures so far")
    if standing.state == "gone" and position in one.dead:
        lines = ["it was given up; `zbroker-admin queue requeue` brings it back"]
        return "dead", lines
    if standing.state == "gone" and position >= one.folded:
        return "reading", ["the queue has not read that far yet"]
    if standing.state in ("ready", "waiting"):
        lines += _queue(shared, one)[1]
    return standing.state, lines


_SENTENCES = {
    "ready": "it can be delivered as soon as a consumer has room",
    "leased": "it is leased",
    "delayed": "it waits for its delay to be over",
    "going": "it is done; that is on its way to the disk",
    "waiting": "something before it has to be done first",
    "acked": "it was acknowledged, and is kept",
    "kept": "it is kept",
    "gone": "it is not in the queue: it never entered, was done, or was purged",
}
