"""Where dead letters to exchanges go: by the bindings that are known when their unit is made. Pure.

    letters --topic is an exchange--> queues of each, but for those that it passed --> route column

A letter may come back to the queue that gave it up, by a binding. A queue that gives a message up
by itself (time_limit, max_deliveries, max_cancels) notes its name in the header PASSED, and this
letter and later ones of that message are not routed to it; a consumer or an operator that gives it
up begins the list again. So no message goes round for ever unless a program has it do so. RabbitMQ
has the same rule, by a longer header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.exchanges.route_column import encode
from zbroker.exchanges.router import QueueSet, Router, numbered
from zbroker.queues.known_exchanges import KnownExchanges

PASSED: Final = "zb-passed"  # queues that gave it up by themselves, a line each
SAID: Final = frozenset({"rejected", "forced"})  # reasons that somebody had
PASSED_MAX: Final = 16  # with more it goes to no queue: it is in the topic

_NOWHERE: Final[QueueSet] = frozenset()


class RoutableLetter(NamedTuple):
    """A message for a dead letter topic. passed: queues that it does not go to."""

    topic: str
    data: bytes
    key: bytes | None
    headers: dict[str, Any]
    passed: Sequence[str]


def passed_by(before: object, queue: str) -> list[str]:
    """The queues that a message has passed, with this one. before: its header PASSED."""
    names = before.split("\n") if isinstance(before, str) and before else []
    return list(dict.fromkeys([*names, queue]))[: PASSED_MAX + 1]


def text_of(passed: Sequence[str]) -> str:
    """The header PASSED; names of queues are printable, so none has an end of line."""
    return "\n".join(passed)


def routed(
    letters: Sequence[RoutableLetter], exchanges: KnownExchanges
) -> list[tuple[Sequence[RoutableLetter], bytes]]:
    """In batches, each with its column; b"" without an exchange."""
    if not letters:
        return []
    if not any(exchanges.table.exchange(letter.topic) for letter in letters):
        return [(letters, b"")]
    return list(_numbered(letters, _find(letters, exchanges.router)))


def _find(letters: Sequence[RoutableLetter], router: Router) -> list[QueueSet]:
    found = [_NOWHERE] * len(letters)
    for topic in {letter.topic for letter in letters}:
        if topic not in router:
            continue
        at = [number for number, letter in enumerate(letters) if letter.topic == topic]
        mine = [letters[number] for number in at]
        headers = [each.headers for each in mine] if router.asks_headers(topic) else None
        queues = router.find(topic, [each.key for each in mine], headers)
        for number, letter, each in zip(at, mine, queues, strict=True):
            found[number] = _without_passed(each, letter.passed)
    return found


def _without_passed(queues: QueueSet, passed: Sequence[str]) -> QueueSet:
    if len(passed) > PASSED_MAX:
        return _NOWHERE
    return frozenset(queue for queue in queues if queue.name not in passed) if passed else queues


def _numbered(
    letters: Sequence[RoutableLetter], found: Sequence[QueueSet]
) -> list[tuple[Sequence[RoutableLetter], bytes]]:
    try:
        return [(letters, encode(numbered(found)))]
    except ClientError:  # too many queues for one batch
        if len(letters) == 1:
            return [(letters, encode(numbered([_NOWHERE])))]
        half = len(letters) // 2
        return _numbered(letters[:half], found[:half]) + _numbered(letters[half:], found[half:])
