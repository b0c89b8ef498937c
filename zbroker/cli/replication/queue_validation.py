"""What a queue of several instances needs of their configs, before any of them runs. Pure.

    its table    the same on all of them: scope, owner, topic, filter, order
    its links    from each of them a way to each other one, of links without `topics` and `filter`:
                 only these carry acknowledgements and changes of owner. Instances in between pass
                 them on, whatever their groups
    its owner    of a group-local queue: an instance that has it

An instance that gets the topics of a queue, and has not the queue, is a copy: no rule is about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Final

from zbroker.cli.replication.validation import ERROR, WARNING, ConfigMismatch, Host
from zbroker.config import DestinationConfig, QueueConfig
from zbroker.definitions.validation import FIXED
from zbroker.link_topics import LinkTopics

Tables = Mapping[str, QueueConfig]  # of one queue, by instance

_LOCAL: Final = (
    "a local queue cannot be replicated; write the same `scope` everywhere, or give one of them "
    "another name"
)


def queue_mismatches(hosts: list[Host]) -> list[ConfigMismatch]:
    """All that is wrong with queues that are not local on all of these instances."""
    by_name = {host.name: host for host in hosts}
    shared = sorted(
        {one.name for host in hosts for one in host.config.queue if one.scope != "local"}
    )
    found: list[ConfigMismatch] = []
    for queue in shared:
        tables = {
            host.name: one for host in hosts for one in host.config.queue if one.name == queue
        }
        found += _settings(tables)
        having = [name for name, table in tables.items() if table.scope != "local"]
        found += _ways(queue, having, by_name)
        found += _without(queue, tables, having, by_name)
        found += _owners(tables, by_name)
    return found


def _settings(tables: Tables) -> Iterator[ConfigMismatch]:
    """Each key that would make another queue of it, once for each instance that differs."""
    (first, table), *others = tables.items()
    for name, other in others:
        for key in FIXED:
            mine, theirs = getattr(table, key), getattr(other, key)
            if mine == theirs:
                continue
            text = f"`{key}` of queue {table.name} is {mine!r} at {first} and {theirs!r} at {name}"
            fix = f"write the same `{key}` at both; an instance with another one does not start"
            if key == "scope" and "local" in (mine, theirs):
                fix = _LOCAL
            yield ConfigMismatch(ERROR, name, text, fix)


def _ways(queue: str, having: list[str], by_name: Mapping[str, Host]) -> Iterator[ConfigMismatch]:
    """Whether what is acknowledged at one of them is known at each other one."""
    reach = {name: _reached(name, by_name) for name in having}
    for one, other in permutations(having, 2):
        rule = _rule(by_name[one], other)
        if rule is not None and not _is_whole(rule):
            yield _cut_link(queue, one, rule)
        elif other not in reach[one]:
            text = (
                f"queue {queue}: nothing leads from {one} to {other}, so {other} never knows what "
                f"is acknowledged at {one}, and would offer it again after a takeover"
            )
            fix = (
                f"add a [[destination]] for {other} at {one}, without `topics`, or at an instance "
                f"that gets everything from {one}"
            )
            yield ConfigMismatch(ERROR, one, text, fix)


def _cut_link(queue: str, name: str, rule: DestinationConfig) -> ConfigMismatch:
    text = (
        f"queue {queue} is on {name} and {rule.name}, and this link has {_kind(rule)}: it carries "
        f"no acknowledgements, and only messages of {LinkTopics(rule.topics, rule.filter)}"
    )
    fix = (
        f"take {_kind(rule)} away at {name}, or the [[queue]] at {rule.name}, which is a copy then"
    )
    return ConfigMismatch(ERROR, name, text, fix)


def _without(
    queue: str, tables: Tables, having: list[str], by_name: Mapping[str, Host]
) -> Iterator[ConfigMismatch]:
    """Instances that get a queue with the log."""
    for name in by_name.keys() - tables.keys():
        sources = [one for one in having if name in _reached(one, by_name)]
        if sources:
            text = f"{name} has no [[queue]] {queue}, and gets that queue with the log of "
            fix = f"write the table at {name}, too; for a copy without queues use `topics`"
            yield ConfigMismatch(WARNING, name, text + ", ".join(sorted(sources)), fix)


def _owners(tables: Tables, by_name: Mapping[str, Host]) -> Iterator[ConfigMismatch]:
    for name, table in tables.items():
        owner = table.initial_owner
        known = {one.name for host in by_name.values() for one in host.config.destination}
        if not owner or owner in tables:
            continue
        text = f"`initial_owner` of queue {table.name} is {owner}, and "
        if owner in by_name:
            fix = f"write the [[queue]] at {owner}, too, or name an instance that has it"
            yield ConfigMismatch(WARNING, name, f"{text}{owner} has no such table", fix)
        elif owner in known:
            fix = "name its config, too"
            yield ConfigMismatch(WARNING, name, f"{text}it is not among these files", fix)
        else:
            fix = f"write the `instance.name` of one of {', '.join(sorted(tables))}"
            yield ConfigMismatch(
                ERROR, name, f"{text}no instance has that name: nothing is offered", fix
            )


def _rule(host: Host, destination: str) -> DestinationConfig | None:
    return next((rule for rule in host.config.destination if rule.name == destination), None)


def _kind(rule: DestinationConfig) -> str:
    """Which settings leave something out."""
    return " and ".join(f"`{key}`" for key in ("topics", "filter") if getattr(rule, key))


def _is_whole(rule: DestinationConfig) -> bool:
    return LinkTopics(rule.topics, rule.filter).is_everything


def _reached(name: str, by_name: Mapping[str, Host]) -> set[str]:
    """Instances that get everything that this one has; it is not among them by itself."""
    reached: set[str] = set()
    open_ = [name]
    while open_:
        host = by_name.get(open_.pop())
        for rule in host.config.destination if host is not None else ():
            if _is_whole(rule) and rule.name not in reached:
                reached.add(rule.name)
                open_.append(rule.name)
    return reached - {name}
