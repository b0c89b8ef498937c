"""What the matrix of entitlements tries, and what each cell should be.

It is worked out message by message from the same tables that the access file is written from, as
docs/reference/access.md says; nothing of zbroker.access is used for it.
"""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

import msgspec

from zbroker.client.sync import Client

TOPICS = ("open", "half", "shut", "a.b", "a.c", "ab", "a+b", "x[1]")
SMALL = "/n < 5"


class Grant(NamedTuple):
    """One table of a role."""

    kind: str
    actions: str
    topics: str
    filter: str = ""


READ = "subscribe replay"
ROLES: dict[str, list[Grant]] = {
    "nothing": [Grant("allow", "publish", "never")],
    "publisher": [Grant("allow", "publish", "open a.b")],
    "some-publisher": [Grant("allow", "publish", "half", SMALL), Grant("allow", "publish", "open")],
    "listener": [Grant("allow", "subscribe", "open half")],
    "historian": [Grant("allow", "replay", "open half")],
    "small": [Grant("allow", READ, "half", SMALL), Grant("allow", READ, "open")],
    "prefix": [Grant("allow", f"{READ} publish", "a.*")],
    "literal": [Grant("allow", f"{READ} publish", "a+b x[1]")],
    "all-but": [Grant("allow", "*", "*"), Grant("deny", "*", "shut")],
    "all-but-small": [Grant("allow", f"{READ} publish", "*"), Grant("deny", READ, "half", SMALL)],
    "denied": [Grant("allow", READ, "open"), Grant("deny", "*", "*")],
    "star": [Grant("allow", f"{READ} publish", "*")],
    "reader": [Grant("allow", "admin_read", "*")],
    "operator": [Grant("allow", "admin_read admin_write", "*")],
}


def fits(pattern: str, topic: str) -> bool:
    """Only `*` is special, here only at the end."""
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


def may(role: str, action: str, topic: str, n: int) -> bool:
    """What the page says, for one message."""

    def about(kind: str) -> bool:
        return any(
            one.kind == kind
            and (one.actions == "*" or action in one.actions.split())
            and any(fits(pattern, topic) for pattern in one.topics.split())
            and (not one.filter or n < 5)
            for one in ROLES[role]
        )

    return about("allow") and not about("deny")


def toml() -> str:
    tables = []
    for role, grants in ROLES.items():
        for one in grants:
            content = f"filter = {json.dumps(one.filter)}\n" if one.filter else ""
            tables.append(
                f"[[role.{role}.{one.kind}]]\nactions = {json.dumps(one.actions.split())}\n"
                f"topics = {json.dumps(one.topics.split())}\n{content}"
            )
    return "\n".join(tables)


def payload(topic: str, n: int, tag: str) -> bytes:
    return msgspec.json.encode({"n": n, "topic": topic, "tag": tag})


class Cells:
    """What was tried, and what came out otherwise than it should."""

    def __init__(self) -> None:
        self.count = 0
        self.wrong: list[tuple[object, ...]] = []

    def expect(self, cell: tuple[object, ...], found: object, wanted: object) -> None:
        self.count += 1
        if found != wanted:
            self.wrong.append((*cell, f"got {found!r}", f"wanted {wanted!r}"))

    def tell(self, what: str) -> None:
        """How much was tried, for who runs this with -s."""
        sys.stderr.write(f"\n{self.count} cells of {what}\n")


def publish_corpus(client: Client, tag: str) -> None:
    """Each message once alone on its topic, and all topics mixed in the same batches."""
    for n in (1, 4, 5, 9):
        for topic in TOPICS:
            client.publish(topic, payload(topic, n, tag))
    client.flush(10)
    for topic in TOPICS:
        client.publish_many(topic, [payload(topic, n, f"{tag}-many") for n in (2, 7)])
    client.flush(10)


def corpus(role: str, action: str, topics: tuple[str, ...], tag: str) -> list[bytes]:
    found = [payload(t, n, tag) for n in (1, 4, 5, 9) for t in topics if may(role, action, t, n)]
    many = [payload(t, n, f"{tag}-many") for t in topics for n in (2, 7) if may(role, action, t, n)]
    return sorted(found + many)


def recorded(role: str, topics: tuple[str, ...], tags: set[str]) -> list[bytes]:
    return sorted(data for tag in tags for data in corpus(role, "replay", topics, tag))


def possible(role: str, action: str, topics: tuple[str, ...]) -> bool:
    """False where a subscription is refused: a topic that no grant allows at all."""
    return any(may(role, action, topic, n) for topic in topics for n in (1, 9))
