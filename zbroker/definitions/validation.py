"""Whether queues can be: alone, beside each other, with what is recorded; and what may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zbroker.config.queues import QueueConfig
from zbroker.config.tree import fields
from zbroker.definitions.definition import OWN_ENDS, BadQueue, bad_queue, compile_queue
from zbroker.recording import Recording
from zbroker.toml_source import did_you_mean, split_error

#: What a declaration of a queue keeps: with another value the log would be read as another queue.
FIXED: Final = (
    "name", "topic", "regex", "bound", "kind", "filter", "recovery_point", "priority", "group_key",
    "barrier", "semantics", "scope", "initial_owner", "exclusive",
)  # fmt: skip

#: of these, what a local queue gets when it is to be on several instances
_MIGRATES: Final = ("scope", "initial_owner")
#: what other brokers call a setting, and what to write here
_ELSEWHERE: Final = dict.fromkeys(
    ("ttl", "message_ttl", "x-message-ttl"), "the time limit of messages is `expiration`"
)
_NEW_QUEUE: Final = (
    'create another queue with recovery_point = "now", let consumers do what is left here, then '
    "delete this one"
)


def check_queues(configs: Sequence[QueueConfig], recording: Recording) -> None:
    """All queues of a config. Raises: BadQueue, for the first that cannot be."""
    known: dict[str, int] = {}
    for index, config in enumerate(configs):
        try:
            first = known.setdefault(config.name, index)
            if first != index:
                reason = f"queue {config.name[:64]!r} is defined by table {first + 1}, too"
                raise bad_queue("name", reason, "a name means one queue: choose another")
            check_queue(config, recording)
            _check_stays(config)
        except BadQueue as error:
            error.index = index
            raise


def _check_stays(config: QueueConfig) -> None:
    for key in OWN_ENDS:
        if getattr(config, key):
            reason = f"queue {config.name[:64]!r}: `{key}` is not for queues of the config"
            hint = "they are there as long as their table is; let a program declare it"
            raise bad_queue(key, reason, hint)


def check_queue(config: QueueConfig, recording: Recording) -> None:
    """One queue, where these topics are recorded. Raises: BadQueue."""
    compile_queue(config)
    topic = config.topic or config.name
    if not config.regex and not config.bound and recording.kind(topic) is False:
        _not_recorded(config, "topic", topic, "so nothing of it can be in a queue")
    if config.dead_letter and recording.kind(config.dead_letter) is False:
        _not_recorded(config, "dead_letter", config.dead_letter, "so dead letters would be lost")


def _not_recorded(config: QueueConfig, key: str, topic: str, so: str) -> None:
    reason = f"queue {config.name[:64]!r}: the topic {topic[:64]!r} is not recorded, {so}"
    raise bad_queue(key, reason, "name it in a [[record]] table of the config, or choose another")


def changed(old: QueueConfig, new: Mapping[str, Any] | QueueConfig) -> QueueConfig:
    """`old` with other values for the keys in `new`, which are written as in a [[queue]] table.

    new: all settings may be given instead; what it leaves out is meant to have its default then.
    Raises: BadQueue, also for what a declaration of a queue keeps.
    """
    made = new if isinstance(new, QueueConfig) else altered(old, new)
    if old.scope != made.scope != "local" != old.scope:
        reason = f"`scope` of queue {old.name[:64]!r} cannot change any more: it has owners by now"
        raise bad_queue("scope", reason, _NEW_QUEUE)
    if old.scope != "local" == made.scope:
        reason = (
            f"queue {old.name[:64]!r} is on several instances and cannot be local again: each of "
            "them would have a queue of its own, and deliver what is left, too"
        )
        raise bad_queue("scope", reason, _NEW_QUEUE)
    return _checked(old, made, FIXED)


def migrated(old: QueueConfig, new: QueueConfig) -> QueueConfig:
    """The settings that a local queue gets, to be on several instances. Raises: BadQueue, also for
    what a declaration of a queue keeps."""
    if old.kind == "replayable":
        reason = (
            f"`scope` of the replayable queue {old.name[:64]!r} cannot change: its purges are "
            "known by their places in this log alone, and other instances have other places"
        )
        hint = (
            'create another queue with scope = "distributed", which has all messages of the log '
            "from its recovery_point on, and delete this one"
        )
        raise bad_queue("scope", reason, hint)
    if old.bound:
        reason = f"`scope` of queue {old.name[:64]!r} cannot change: it is bound as a local queue"
        raise bad_queue("scope", reason, "declare another one on several instances, and bind that")
    return _checked(old, new, [key for key in FIXED if key not in _MIGRATES])


def _checked(old: QueueConfig, new: QueueConfig, fixed: Sequence[str]) -> QueueConfig:
    for key in fixed:
        if getattr(new, key) != getattr(old, key):
            reason = f"`{key}` of queue {old.name[:64]!r} cannot change"
            raise bad_queue(
                key, reason, "delete the queue and create it again, or create another one"
            )
    compile_queue(new)
    return new


def altered(old: QueueConfig, new: Mapping[str, Any]) -> QueueConfig:
    """`old` with other values, whether they may change or not. Raises: BadQueue."""
    return read_table(msgspec.to_builtins(old) | dict(new))


def read_table(table: Mapping[str, Any]) -> QueueConfig:
    """The settings in a map with the keys of a [[queue]] table; "30s" is taken as in the file.

    Raises: BadQueue, naming the key; whether there can be such a queue is not asked.
    """
    known = {one.name: one for one in fields(QueueConfig)}
    read = {}
    for key, value in table.items():
        if key not in known:
            reason = f"unknown key `{str(key)[:64]}` of a queue"
            raise bad_queue("name", reason, _ELSEWHERE.get(key) or did_you_mean(str(key), known))
        try:
            read[key] = known[key].read(value)
        except ValueError as error:
            raise bad_queue(key, f"`{key}`: {error}", known[key].hint) from None
    try:
        return msgspec.convert(read, QueueConfig)
    except msgspec.ValidationError as error:
        path, reason = split_error(error)
        found = str(path[0]) if path and path[0] in known else "name"
        raise bad_queue(found, f"`{found}`: {reason}", known[found].description) from None
