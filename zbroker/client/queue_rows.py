"""`browse`: the messages of a queue and what became of each, without taking any.

After a lost connection it is asked for again from its beginning.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.questions import NOT_READY, QuestionLink, ask
from zbroker.client.subscriber.options import TIMEOUT_S, filter_text, queue_name, whole_number
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.wire.queue_messages import BROWSED_MAX, Browse, Rows

_AGAIN: Final = TEMPORARY | NOT_READY


class BrowsedMessage(NamedTuple):
    """A message of a queue. position: at the instance that answered. size: of the payload.

    state: ready, leased, delayed, going, waiting or elsewhere; of a replayable queue acked or kept.
    owner: the client that has it. due_ms: until its lease ends, or its delay is over.
    """

    position: int
    bookmark: str
    topic: str
    time_ns: int
    size: int
    state: str
    deliveries: int
    failures: int
    owner: str = ""
    due_ms: int | None = None


class BrowseOptions(NamedTuple):
    """What `browse` is given."""

    command: Browse
    limit: int
    timeout: float


def browse_options(
    queue: str,
    *,
    after: int = 0,
    limit: int = 100,
    filter: str | None = None,  # noqa: A002 - the word of the field
    state: str | None = None,
    timeout: float = TIMEOUT_S,
) -> BrowseOptions:
    """See `Client.browse`. Raises: ZBrokerError bad_field; TypeError."""
    if not isinstance(after, int) or after < 0:
        raise ZBrokerError("bad_field", f"after={after!r} is not a position")
    command = Browse(queue_name(queue), after=after, filter=filter_text(filter), state=state)
    return BrowseOptions(command, whole_number("limit", limit), timeout)


def browse(listeners: ListenerEndpoints, options: BrowseOptions) -> list[BrowsedMessage]:
    """Raises: ZBrokerError with the broker's code, or "timeout"."""
    command, limit = options.command, options.limit
    after = command.after

    def browse_it(to: QuestionLink) -> list[BrowsedMessage]:
        rows: list[BrowsedMessage] = []
        following: int | None = after
        while following is not None and len(rows) < limit:
            command.after, command.limit = following, min(BROWSED_MAX, limit - len(rows))
            answer = to.ask(command)
            assert isinstance(answer, Rows)
            rows += [
                BrowsedMessage(
                    row.position, row.bookmark, row.topic, row.time_ns, row.size, row.state,
                    row.deliveries, row.failures, row.owner, row.due_ms,
                ) for row in answer.rows
            ]  # fmt: skip
            following = answer.next
        return rows

    return ask(listeners, options.timeout, f"browse({command.queue!r})", browse_it, _AGAIN)
