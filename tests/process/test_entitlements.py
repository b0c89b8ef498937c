"""Roles x commands x topics x paths against a real instance: nobody gets or does more, or less.

What is expected is worked out here, message by message, from the same tables that the access file
is written from; nothing of zbroker.access is used for it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.process.load import until
from tests.process.secured import Secured, token_of
from zbroker import aio
from zbroker.client.committing import abort, commit
from zbroker.client.subscribing.subscription import Subscription
from zbroker.client.sync import Client
from zbroker.errors import Timeout, ZBrokerError
from zbroker.spark import plan_ranges

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
READS = ("/status", "/topics", "/clients", "/subscriptions", "/journal", "/holders", "/actions",
         "/history", "/metrics", "/audit")  # fmt: skip
WRITES = {
    "/journal/archive": {"through": 0, "dry_run": True},
    "/journal/compress": {"through": 0, "dry_run": True},
    "/journal/remove": {"through": 0, "dry_run": True},
    "/journal/hold": {"who": "x", "what": "y", "position": 1, "ttl_s": 0},
    "/clients/disconnect": {"client": "nobody-of-that-name"},
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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place: Path = tmp_path_factory.mktemp("entitlements")
    with Secured(place, {role: [role] for role in ROLES}, toml()) as made:
        yield made


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


def read(client: Client, topic: str, **options: Any) -> object:
    try:
        with client.subscribe(topic, **options) as subscription:
            return sorted(bytes(message.data) for message in subscription)
    except ZBrokerError as error:
        return error.code


PATHS: dict[str, dict[str, Any]] = {
    "replay": {"since": "epoch", "until": "now"},
    "replay to its end": {"until": "now", "since": "20000101T000000Z"},
    "filtered": {"since": "epoch", "until": "now", "filter": "/n > 0"},
    "selected": {"since": "epoch", "until": "now", "select": "-/nothing"},
    "limited": {"since": "epoch", "until": "now", "limit": 1_000},
    "conflated": {"since": "epoch", "until": "now", "conflation": 1e-6, "conflation_clock": "log"},
}


def test_replays(broker: Secured) -> None:
    cells = Cells()
    with broker.connect() as root:
        publish_corpus(root, "log")
        whole = [bytes(one.data) for one in root.subscribe(".*", regex=True, since="epoch",
                                                           until="now")]  # fmt: skip
        tags = {json.loads(data)["tag"].removesuffix("-many") for data in whole}
    for role in ROLES:
        with broker.connect(role) as client:
            for topic in TOPICS:
                wanted: object = "not_entitled"
                if possible(role, "replay", (topic,)):
                    wanted = recorded(role, (topic,), tags)
                for path, options in PATHS.items():
                    found = read(client, topic, **options)
                    if path == "conflated" and isinstance(found, list) and found:
                        found = (
                            wanted if set(found) <= set(recorded(role, (topic,), tags)) else found
                        )
                    cells.expect((role, path, topic), found, wanted)
            everything: object = "not_entitled"
            if possible(role, "replay", TOPICS):
                everything = recorded(role, TOPICS, tags)
            found = read(client, ".*", regex=True, since="epoch", until="now")
            cells.expect((role, "pattern"), found, everything)
    cells.tell("replays")
    assert cells.wrong == []
    assert cells.count >= 600


def test_live(broker: Secured) -> None:
    cells = Cells()
    with broker.connect() as root:
        clients = {role: broker.connect(role) for role in ROLES}
        subscriptions: dict[tuple[str, str], Subscription] = {}
        try:
            for role, client in clients.items():
                for topic in (*TOPICS, ".*"):
                    action, topics = "subscribe", TOPICS if topic == ".*" else (topic,)
                    try:
                        one = client.subscribe(topic, regex=topic == ".*")
                        subscriptions[role, topic] = one
                        found = True
                    except ZBrokerError as error:
                        found = error.code != "not_entitled"
                    cells.expect((role, "live", topic), found, possible(role, action, topics))
            publish_corpus(root, "live")
            for (role, topic), one in subscriptions.items():
                topics = TOPICS if topic == ".*" else (topic,)
                wanted = corpus(role, "subscribe", topics, "live")
                cells.expect((role, "live", topic), _all_of(one, len(wanted)), wanted)
        finally:
            for client in clients.values():
                client.close()
    cells.tell("live subscriptions")
    assert cells.wrong == []


def _all_of(one: Subscription, count: int) -> list[bytes]:
    """What comes until it has `count` messages, and a moment more."""
    found: list[bytes] = []
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            message = one.next(timeout=0.02 if len(found) >= count else 0.5)
        except Timeout:
            if len(found) >= count:
                break
        else:
            assert message is not None
            found.append(bytes(message.data))
    return sorted(found)


def test_publishing(broker: Secured) -> None:
    cells = Cells()
    wanted: set[bytes] = set()
    for role in ROLES:
        with broker.connect(role) as client:
            for topic in TOPICS:
                for n in (1, 9):
                    data = payload(topic, n, f"{role}-one")
                    found = _published(client.publish(topic, data))
                    good = may(role, "publish", topic, n)
                    wanted |= {data} if good else set()
                    cells.expect((role, "publish", topic, n), found, good)
                many = [payload(topic, n, f"{role}-batch") for n in (1, 9)]
                found = _published(client.publish_many(topic, many))
                good = all(may(role, "publish", topic, n) for n in (1, 9))
                wanted |= set(many) if good else set()
                cells.expect((role, "publish_many", topic), found, good)
    with broker.connect() as root:
        everything = root.subscribe(".*", regex=True, since="epoch", until="now")
        log = {bytes(message.data) for message in everything}
    tried = {data for data in log if json.loads(data)["tag"].rsplit("-", 1)[-1] in ("one", "batch")}
    assert tried == wanted, "what is in the log is what was acknowledged"
    cells.tell("publishing")
    assert cells.wrong == []


def _published(receipt: Any) -> bool:
    try:
        receipt.wait(10)
    except ZBrokerError as error:
        return error.code != "not_entitled"  # anything else is wrong, too
    return True


def test_staging(broker: Secured) -> None:
    """What is staged is committed and aborted by its principal only, and needs all of a topic."""
    cells, wanted, numbers = Cells(), set[bytes](), count(1)
    for role in ROLES:
        mine = broker.credentials(role)
        theirs = broker.credentials("star" if role != "star" else "all-but")
        for topic in TOPICS:
            token, data = secrets.token_hex(8), payload(topic, 1, f"{role}-staged")
            with broker.connect(role, stage=token) as client:
                found = _published(client.publish(topic, data))
            good = all(may(role, "publish", topic, n) for n in (1, 9))
            cells.expect((role, "stage", topic), found, good)
            if good:
                stages = [(token, 1)]
                found = _code_of(commit, broker.url, "app", next(numbers), stages, theirs)
                cells.expect((role, "commit of another", topic), found, "stage_unknown")
                _code_of(abort, broker.url, [token], theirs)
                found = _code_of(commit, broker.url, "app", next(numbers), stages, mine)
                cells.expect((role, "commit", topic), found, "")
                wanted.add(data)
        entitled = any(may(role, "publish", topic, 1) for topic in (*TOPICS, "never"))
        for what in ("commit", "abort"):
            if what == "commit":
                found = _code_of(commit, broker.url, "app", 1 << 62, [("none", 1)], mine)
            else:
                found = _code_of(abort, broker.url, ["none"], mine)
            good_code = "stage_unknown" if what == "commit" else ""
            cells.expect((role, what), found, good_code if entitled else "not_entitled")
    with broker.connect() as root:
        everything = root.subscribe(".*", regex=True, since="epoch", until="now")
        log = [bytes(message.data) for message in everything]
    shown = [data for data in log if json.loads(data)["tag"].endswith("-staged")]
    assert sorted(shown) == sorted(wanted), "each once"
    cells.tell("staging")
    assert cells.wrong == []


def _code_of(verb: Callable[..., object], *args: object) -> str:
    *rest, credentials = args
    try:
        verb(*rest, credentials=credentials)
    except ZBrokerError as error:
        return error.code
    return ""


def test_the_asynchronous_client(broker: Secured) -> None:
    """The same doors, the same rights."""

    async def replays(role: str) -> list[bytes]:
        credentials = broker.credentials(role)
        async with aio.connect(broker.url, role, credentials=credentials) as client:
            replay = client.subscribe(".*", regex=True, since="epoch", until="now")
            return sorted([bytes(message.data) async for message in replay])

    with broker.connect() as root:
        publish_corpus(root, "async")
    found = [data for data in asyncio.run(replays("small")) if b'"async' in data]
    assert found == corpus("small", "replay", TOPICS, "async")
    with pytest.raises(ZBrokerError, match="not_entitled"):
        asyncio.run(replays("listener"))


def test_ranges_for_spark(broker: Secured) -> None:
    cells = Cells()
    for role in ROLES:
        for topic in TOPICS:
            try:
                plan_ranges(broker.url, topic=topic, credentials=broker.credentials(role))
                found = True
            except ZBrokerError as error:
                found = error.code != "not_entitled"
            cells.expect((role, "ranges", topic), found, possible(role, "replay", (topic,)))
    cells.tell("ranges")
    assert cells.wrong == []


def test_admin(broker: Secured) -> None:
    cells = Cells()
    for path in (*READS, *WRITES):
        status, _ = broker.http(path, "", WRITES.get(path))
        cells.expect(("nobody", path), status, 401)
    for role in ROLES:
        with broker.connect(role) as client:
            token = token_of(client)
            for path in READS:
                good = may(role, "admin_read", "", 0)
                cells.expect((role, path), broker.http(path, token)[0], 200 if good else 403)
            for path, body in WRITES.items():
                good = may(role, "admin_write", "", 0)
                status = broker.http(path, token, body)[0]
                served = status not in (401, 403) and status < 500
                cells.expect((role, path), served if good else status, True if good else 403)
    cells.tell("the admin")
    assert cells.wrong == []


def test_rights_that_are_taken_away_hold_within_a_second(broker: Secured) -> None:
    """Sessions stay open; what they may do changes."""
    with broker.connect() as root, closing(broker.connect("star")) as star:
        live = star.subscribe("open")
        root.publish("open", b"before").wait(10)
        assert _all_of(live, 1) == [b"before"]
        people = {**broker.people, "star": ["nothing"]}
        begun = time.monotonic()
        broker.write(broker.rules(toml(), people))
        try:
            until(lambda: not _published(star.publish("open", b"after")), "publishing is refused")
            until(lambda: _is_over(live), "the subscription ends")
            sys.stderr.write(f"\nrevoked after {time.monotonic() - begun:.2f} s\n")
            assert read(star, "open", since="epoch", until="now") == "not_entitled"
            del people["star"]
            broker.write(broker.rules(toml(), people))
            until(lambda: _refusal(star) == "auth_failed", "who is not known any more is told")
            star.close(flush=False)
        finally:
            broker.write(broker.rules(toml()))


def _refusal(client: Client) -> str:
    try:
        client.publish("open", b"gone").wait(10)
    except ZBrokerError as error:
        return error.code
    return ""


def _is_over(live: Subscription) -> bool:
    try:
        live.next(timeout=0.01)
    except ZBrokerError as error:
        return error.code == "not_entitled"
    return False
