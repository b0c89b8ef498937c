"""What the state of a link means for the data, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Link = Mapping[str, Any]

_STATES: Final = {
    "down": "{name}: there is no session. It is tried again by itself, every 16 s at least. "
    "Nothing is lost: the log here is kept from position {mark} on. Look whether the instance "
    "there runs, and whether this host reaches {to}",
    "greeting": "{name}: Hello was said, and the instance there has not answered yet. If that "
    "lasts, look whether it runs, and whether this host reaches {to}",
    "finding": "{name}: it is looked up where the destination has to go on in this log",
    "stating": "{name}: its log is empty, and it gets the state of this one first",
    "paused": "{name}: an operator paused it, and nothing is sent. The log here is kept from "
    "position {mark} on. Go on with: zbroker-admin replication resume {name}",
    "opening": "from {name}: it has said Hello, and the journal here is asked how much it holds",
    "receiving": "from {name}: it sends its log, and messages from there are stored here",
}
_STOPPED: Final = {
    "expired": "{name} lacks messages that were removed from the log here, or never were in it. "
    "Another instance that has them sends them by itself. If none has: zbroker-admin replication "
    "skip {name}",
    "fork": "the generation was closed without what one of the two has, or they have different "
    "messages under one name; the reason is in the log, under replication.record_refused. In the "
    "first case, on the instance that owns the origin: zbroker-admin replication fork. Else one is "
    "a copy: keep both data directories, and start the wrong one again on a new one",
    "digest_differs": "{name} holds it under other topics or another filter than this link has, or "
    "this log does. It goes there over one link, or over links with the same ones. To have {name} "
    "take it from here from now on: zbroker-admin replication skip {name} ORIGIN",
    "gap": "the log here is damaged before this place: zbroker-admin journal verify. {name} has to "
    "get these messages from another instance",
}
_REFUSED: Final = (
    "{name} refuses a record of it; the log of this instance has the reason under "
    "replication.record_refused. It is tried again each second"
)


def explained(link: Link, needed: int | None) -> list[str]:
    """A line for each thing that is to be known of a link, the state first.

    needed: how many synchronous destinations acknowledgements wait for.
    """
    if link["direction"] == "in":
        return [_STATES[link["state"]].format_map(link)]
    return [
        _state(link), *_topics(link), *_problem(link), *_waiting(link, needed), *_stopped(link)
    ]  # fmt: skip


def _state(link: Link) -> str:
    if link["paused"] and link["state"] != "paused":
        return (
            f"{link['name']}: an operator paused it; {link['on_the_way_bytes']} bytes that were "
            "sent are awaited before it is closed"
        )
    if link["state"] != "sending":
        return _STATES[link["state"]].format_map({**link, "to": " or ".join(link["to"])})
    if not link["lag"]:
        return f"{link['name']}: it holds everything that it wants of this log"
    return (
        f"{link['name']}: it lacks {link['lag']} positions of this log, from {link['mark']} on; "
        "they are being sent"
    )


def _topics(link: Link) -> Iterator[str]:
    topics, content = ", ".join(link.get("topics") or ()), link.get("filter")
    if topics or content:
        which = f"these topics only: {topics}" if topics else "all topics"
        if content:
            which += f"; of their messages those for which this is true: {content}"
        yield (
            f"{link['name']} gets {which}. Staged batches go there message by message, so readers "
            "there may see a part of a commit"
        )


def _problem(link: Link) -> Iterator[str]:
    if link["problem"]:
        yield f"{link['name']} refused the last Hello: {link['problem']}"


def _waiting(link: Link, needed: int | None) -> Iterator[str]:
    name = link["name"]
    if link["mode"] != "sync":
        yield f"{name} is asynchronous: messages are acknowledged before it has them"
    elif link["by_hand"]:
        yield (
            f"{name} is downgraded by hand: messages are acknowledged before it has them, and may "
            f"be lost with this host. End it with: zbroker-admin replication upgrade {name}"
        )
    elif link["downgraded"]:
        yield (
            f"{name} is downgraded, since it lagged for longer than its downgrade_after: messages "
            "are acknowledged before it has them, and may be lost with this host. It is waited for "
            "again by itself when it has caught up"
        )
    else:
        yield (
            f"{name} is synchronous: acknowledgements wait until {needed} of such destinations "
            "have a message"
        )


def _stopped(link: Link) -> Iterator[str]:
    for origin, code in link["stopped"].items():
        why = _STOPPED.get(code, _REFUSED).format_map(link)
        yield (
            f"origin {origin} is not sent to {link['name']} ({code}): {why}. Its messages are "
            "stored here"
        )
