"""To whom messages of a replicated queue belong, in names and sentences of people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from zbroker.admin import words
from zbroker.admin.documents import seconds_since, time_text
from zbroker.admin.link_alarms import is_up
from zbroker.wire.queue_surveys import OwnedMessages
from zbroker.wire.replicas import ReplicationRow


class LinkedInstance(NamedTuple):
    """An instance that a link leads to, or comes from. up: one of them has a session."""

    name: str
    up: bool


Linked = Mapping[int, LinkedInstance]


def linked(rows: Iterable[ReplicationRow]) -> Linked:
    """By instance: those of which any link has heard. The names are those of the config."""
    found: dict[int, LinkedInstance] = {}
    for row in rows:
        if row.instance:
            known = found.get(row.instance)
            up = is_up(row) if row.direction == "out" else row.state == "receiving"
            name = row.name if row.direction == "out" or known is None else known.name
            found[row.instance] = LinkedInstance(name, up or (known is not None and known.up))
    return found


def document(row: OwnedMessages, known: Linked, now_ns: int) -> dict[str, Any]:
    """One row as JSON. up: None if no link leads there."""
    instance, there = _found(row, known)
    since_ns = row.since_ns
    return {
        "instance": f"{instance:016x}" if instance else "",
        "name": row.name or (there.name if there is not None else ""),
        "here": row.mine,
        "up": True if row.mine else None if there is None else there.up,
        "depth": row.depth,
        "first": row.first,
        "since": time_text(since_ns),
        "since_s": seconds_since(since_ns, now_ns),
        "number": row.number,
    }


def _found(row: OwnedMessages, known: Linked) -> tuple[int, LinkedInstance | None]:
    """The initial owner is known by its name alone, until a link has heard of it."""
    if row.instance:
        return row.instance, known.get(row.instance)
    named = [(instance, one) for instance, one in known.items() if one.name == row.name]
    return named[0] if named else (0, None)


def sentences(
    queue: str, rows: Sequence[OwnedMessages], known: Linked, now_ns: int, *, single: bool
) -> list[str]:
    """What waits for whom, since when, and what to do. single: it is about one message."""
    found = []
    for row in rows:
        said = document(row, known, now_ns)
        who = _who(said)
        since = "" if said["since"] is None else (
            f", here since {said['since']} ({words.duration(int(said['since_s'] * 1_000))})"
        )  # fmt: skip
        if single:
            number = f", under ownership number {row.number}" if row.number else ""
            found.append(f"it belongs to {who}{number}{since}")
        else:
            many = "message belongs" if row.depth == 1 else "messages belong"
            oldest = since.replace(", here", ", the oldest here", 1)
            found.append(f"{row.depth} {many} to {who}{oldest}")
        found.append(_next(queue, said))
    return found


def _who(said: Mapping[str, Any]) -> str:
    name, instance = said["name"], said["instance"]
    return f"{name} ({instance})" if name and instance else name or f"instance {instance}"


def _next(queue: str, said: Mapping[str, Any]) -> str:
    who = said["name"] or said["instance"]
    way = f"zbroker-admin queue takeover {queue} --from {who}"
    if said["up"]:
        return f"{who} is connected, and offers them there: zbroker-admin queue explain says more"
    if said["up"] is None:
        return f"no link of this instance knows {who}; if it is gone for long: {way}"
    return f"{who} is not connected: that waits until it is back; if that takes long: {way}"
