"""What no queue can be: settings that contradict each other, each with the reason. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from zbroker.config.queues import QueueConfig
from zbroker.errors import Refused

RETRY_DELAYS_MAX: Final = 100  # the last one holds for all that follow

_DEFAULT: Final = QueueConfig("-")

#: keys that a replayable queue has no use for, and why
_OF_WORK: Final = {
    "semantics": "nothing goes when it is read",
    "lease": "nothing is leased",
    "max_backlog": "nothing is leased",
    "max_per_subscription": "nothing is leased; credit limits what is sent",
    "fairness": "it has one consumer",
    "leasing": "nothing is leased",
    "priority": "it is read in the order of the log",
    "barrier": "it is read in the order of the log",
    "group_key": "it is read in the order of the log",
    "expiration": "nothing goes until it is purged",
    "expiration_model": "nothing goes until it is purged",
    "max_deliveries": "reading again is not a failure",
    "max_cancels": "nothing can be given back",
    "retry_delay": "nothing can be given back",
    "dead_letter": "nothing is given up",
}
#: likewise of a queue that sends each message once
_OF_MANY_DELIVERIES: Final = {
    "max_deliveries": "each message is delivered once",
    "max_cancels": "a message is gone once it was sent, and cannot be given back",
    "retry_delay": "nothing is sent again",
}


class BadQueue(Refused):
    """The table with this index, from 0, makes no queue, because of what `key` says."""

    index = 0
    key = "name"


def bad_queue(key: str, reason: str, hint: str = "") -> BadQueue:
    """The error of a key."""
    error = BadQueue("bad_queue", reason, hint)
    error.key = key
    return error


def refuse_impossible(config: QueueConfig) -> None:
    """Raises: BadQueue, for the first contradiction."""
    for key, reason, hint in _contradictions(config):
        raise bad_queue(key, f"queue {config.name[:64]!r}: {reason}", hint)


class _Contradiction(NamedTuple):
    key: str
    reason: str
    hint: str = ""


def _contradictions(config: QueueConfig) -> Iterator[_Contradiction]:
    if config.kind == "replayable":
        yield from _of_replayable(config)
        return
    if config.semantics == "at-most-once":
        yield from _of_at_most_once(config)
    yield from (found for found in map(_judged(config), _RULES) if found is not None)


def _of_replayable(config: QueueConfig) -> Iterator[_Contradiction]:
    for key, why in _OF_WORK.items():
        if getattr(config, key) != getattr(_DEFAULT, key):
            reason = f"a replayable queue has no `{key}`: {why}"
            yield _Contradiction(
                key, reason, f'leave it out, or write kind = "work" ({key} is its)'
            )


def _of_at_most_once(config: QueueConfig) -> Iterator[_Contradiction]:
    hint = 'leave it out, or write semantics = "at-least-once"'
    for key, why in _OF_MANY_DELIVERIES.items():
        if getattr(config, key):
            yield _Contradiction(key, f"at-most-once does not go with `{key}`: {why}", hint)
    if config.fairness not in ("", "round-robin"):
        reason = f"at-most-once does not go with fairness {config.fairness!r}: it asks who has how "
        yield _Contradiction("fairness", reason + "much leased, and nothing is", hint)
    if config.lease not in (0, _DEFAULT.lease):
        reason = "at-most-once does not go with `lease`: a message is gone before it is sent"
        yield _Contradiction("lease", reason, hint)


def _judged(config: QueueConfig) -> Callable[[_QueueRule], _Contradiction | None]:
    return lambda rule: rule.says if rule.holds(config) else None


class _QueueRule(NamedTuple):
    holds: Callable[[Any], object]
    says: _Contradiction


_RULES: Final = (
    _QueueRule(
        lambda config: config.max_hold,
        _Contradiction(
            "max_hold",
            "a work queue has no `max_hold`: a message stays until somebody has done it",
            'leave it out, or write kind = "replayable"; `expiration` gives up what is old',
        ),
    ),
    _QueueRule(
        lambda config: config.priority and config.barrier,
        _Contradiction(
            "priority",
            "`priority` does not go with `barrier`: it would let messages pass the barrier",
            "leave one of them out",
        ),
    ),
    _QueueRule(
        lambda config: config.priority and config.group_key,
        _Contradiction(
            "priority",
            "`priority` does not go with `group_key`: messages of a key stay in order",
            "leave one of them out",
        ),
    ),
    _QueueRule(
        lambda config: 0 < config.max_backlog < config.max_per_subscription,
        _Contradiction(
            "max_per_subscription",
            "`max_per_subscription` is more than `max_backlog`, which no consumer can reach",
            "write a max_per_subscription of max_backlog at most",
        ),
    ),
    _QueueRule(
        lambda config: config.expiration_model != "default" and not config.expiration,
        _Contradiction(
            "expiration_model",
            "this `expiration_model` needs an `expiration`",
            "write one, or leave out the model: then each message's own expiry holds",
        ),
    ),
    _QueueRule(
        lambda config: len(config.retry_delay) > RETRY_DELAYS_MAX,
        _Contradiction(
            "retry_delay",
            f"`retry_delay` has more than {RETRY_DELAYS_MAX} delays",
            "the last one holds for all that follow",
        ),
    ),
)
