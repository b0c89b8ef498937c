"""Roles x commands x topics x paths against a real instance: no one gets or does more, or less.

What is expected is worked out in entitlements.py, from the page about the access file.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.process.entitlements import (
    ROLES,
    TOPICS,
    Cells,
    corpus,
    may,
    payload,
    possible,
    publish_corpus,
    recorded,
    toml,
)
from tests.process.load import until
from tests.process.raw import Raw
from tests.process.secured import Secured, token_of
from zbroker import aio
from zbroker.client.stage_commits import abort, commit
from zbroker.client.subscriber.subscription import Subscription
from zbroker.client.sync import Client
from zbroker.errors import Timeout, ZBrokerError
from zbroker.ids import format_bookmark, parse_bookmark
from zbroker.spark import plan_ranges
from zbroker.spark.source.options import parse as parse_options
from zbroker.spark.source.places import SourceLog as SparkPlace

QUEUES = ("open", "shut")  # replayable ones, each of the topic of its name
READS = ("/status", "/topics", "/clients", "/subscriptions", "/journal", "/holders", "/actions",
         "/history", "/metrics", "/audit")  # fmt: skip
WRITES = {
    "/journal/archive": {"through": 0, "dry_run": True},
    "/journal/compress": {"through": 0, "dry_run": True},
    "/journal/remove": {"through": 0, "dry_run": True},
    "/journal/hold": {"who": "x", "what": "y", "position": 1, "ttl_s": 0},
    "/clients/disconnect": {"client": "nobody-of-that-name"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place: Path = tmp_path_factory.mktemp("entitlements")
    queues = [{"name": name, "topic": name, "kind": "replayable"} for name in QUEUES]
    with Secured(place, {role: [role] for role in ROLES}, toml(), queue=queues) as made:
        yield made


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
    """The same listeners, the same rights."""

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


# -- points and look-ups ----------------------------------------------------------------------


class Marked(NamedTuple):
    """A log with two points: tags of what is before, between and after them."""

    morning: int
    evening: int
    found: dict[str, tuple[str, int]]  # by topic: the bookmark of a message, and its position
    origin: str


@pytest.fixture(scope="module")
def marked(broker: Secured) -> Marked:
    with broker.connect() as root:
        token = token_of(root)
        places = []
        for tag, point in (("dawn", "morning"), ("day", "evening"), ("night", "")):
            publish_corpus(root, tag)
            if point:
                status, answer = broker.http("/points", token, {"name": point})
                assert status == 200
                places.append(json.loads(answer)["position"])
        everything = root.subscribe(".*", regex=True, since="point:morning", until="now")
        found = {one.topic: (one.bookmark, one.position) for one in everything}
        origin = root.subscribe("open", since="now").vector.rpartition(".")[0]
    return Marked(places[0], places[1], found, origin)


#: kinds of places, and the tags of what a replay between them brings, or the error
BY_POINTS: dict[str, tuple[dict[str, Any], set[str] | str]] = {
    "since": ({"since": "point:morning", "until": "now"}, {"day", "night"}),
    "between": ({"since": "point:morning", "until": "point:evening"}, {"day"}),
    "range": ({"since": "[point:morning:point:evening)"}, {"day"}),
    "no since": ({"since": "point:noon", "until": "now"}, "unknown_point"),
    "no until": ({"since": "point:morning", "until": "point:noon"}, "unknown_point"),
    "no end": ({"since": "[point:morning:point:noon)"}, "unknown_point"),
}


@pytest.mark.long
def test_replays_between_points(broker: Secured, marked: Marked) -> None:
    """By the client library, which looks an end up before it subscribes."""
    cells = Cells()
    for role in ROLES:
        with broker.connect(role) as client:
            for topic in (*TOPICS, ".*"):
                topics = TOPICS if topic == ".*" else (topic,)
                for path, (options, result) in BY_POINTS.items():
                    wanted: object = "not_entitled"
                    if possible(role, "replay", topics):
                        known = isinstance(result, str)
                        wanted = result if known else recorded(role, topics, set(result))
                    found = read(client, topic, regex=topic == ".*", **options)
                    cells.expect((role, path, topic), found, wanted)
    cells.tell("points")
    assert cells.wrong == []
    assert cells.count >= 700


class Place(NamedTuple):
    """A text of the wire and the code that its look-up ends with, as a begin and as an end.

    end: None, if it is not written there. first: the position at which ranges from it on begin.
    """

    text: str
    begin: str = ""
    end: str | None = ""
    first: int = 0


def places_of(marked: Marked, topic: str) -> dict[str, Place]:
    """What docs/reference/bookmarks.md says of each kind of place."""
    bookmark, position = marked.found[topic]
    publisher, sequence = parse_bookmark(bookmark)
    later = format_bookmark(publisher, sequence + 1_000_000)
    other, there = marked.found["shut"]
    return {
        "found": Place(bookmark, first=position + 1),
        "of another topic": Place(other, first=there + 1),
        "unknown": Place("77|1|", "bookmark_not_found", "bookmark_not_found"),
        "not here yet": Place(later, "bookmark_pending", "bookmark_pending"),
        "list": Place(f"77|1|,{bookmark}", end="bad_bookmark", first=position + 1),
        "range": Place(f"[{bookmark}:0|1|]", end=None, first=position),
        "time": Place("20000101T000000Z"),
        "time to come": Place("20990101T000000Z"),
        "vector": Place(f"{marked.origin}.{position}", first=position + 1),
        "vector of another": Place("00000000000000aa.1.5", *["bookmark_not_found"] * 2),
        "NOW": Place("0|1|"),
        "EPOCH": Place("0", end=None),
        "misspelt": Place("no bookmark", "bad_bookmark", "bad_bookmark"),
        "point": Place("point:morning", first=marked.morning),
        "no point": Place("point:noon", "unknown_point", "unknown_point"),
    }


def look_ups_of(place: Place, topic: str) -> dict[str, tuple[dict[str, Any], str]]:
    """Each command of the delivery endpoint that looks this place up, and the code it ends with."""
    what = {"topic": topic, "regex": topic == ".*"}
    one = {"cmd": "subscribe", "credit": 1, **what}
    made: dict[str, tuple[dict[str, Any], str]] = {
        "from": ({**one, "sid": "from", "bookmark": place.text}, place.begin),
        "ranges": ({"cmd": "ranges", "bookmark": place.text, **what}, place.begin),
    }
    if place.end is not None:
        until_ = {"bookmark": "0", "until": place.text}
        made["until"] = ({**one, "sid": "until", **until_}, place.end)
        made["ranges until"] = ({"cmd": "ranges", **until_, **what}, place.end)
    return made


def answers_of(raw: Raw, commands: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The direct answer to each of them; subscriptions and consumers end again."""
    for cid, command in commands.items():
        raw.send({"cid": cid, **command})
    found: dict[str, dict[str, Any]] = {}
    while len(found) < len(commands):
        answer = raw.get()
        assert answer, "each command has an answer"
        if answer.get("cid") in commands:
            found[answer["cid"]] = answer
    for command in commands.values():
        if (
            over := {"subscribe": "unsubscribe", "consume": "cancel"}.get(command["cmd"])
        ) is not None:
            raw.send({"cmd": over, "sid": command["sid"]})
    return found


def logged_on(broker: Secured, role: str, endpoint: str) -> Raw:
    with broker.connect(role) as client:
        raw = Raw(broker, role, endpoint)
        assert raw.ask({"cmd": "logon", "token": token_of(client)})["cmd"] == "ack"
        return raw


def said(answer: dict[str, Any]) -> tuple[object, ...]:
    """All that a refusal tells."""
    return answer.get("code", ""), answer.get("reason"), answer.get("hint")


@pytest.mark.long
def test_look_ups(broker: Secured, marked: Marked) -> None:
    """Whoever may not replay a topic has the same answer, whatever is there or is not."""
    cells = Cells()
    for role in ROLES:
        with logged_on(broker, role, "delivery") as raw:
            for topic in (*TOPICS, ".*"):
                good = possible(role, "replay", TOPICS if topic == ".*" else (topic,))
                refusals = set()
                for kind, place in places_of(marked, "open" if topic == ".*" else topic).items():
                    tried = look_ups_of(place, topic)
                    answers = answers_of(raw, {cid: command for cid, (command, _) in tried.items()})
                    for cid, (_, code) in tried.items():
                        wanted = code if good else "not_entitled"
                        cell = role, cid, topic, kind
                        cells.expect(cell, answers[cid].get("code", ""), wanted)
                    refusals |= set(map(said, answers.values()))
                    if good and place.first:
                        cell = role, "begins", topic, kind
                        cells.expect(cell, answers["ranges"].get("first"), place.first)
                if not good:
                    cells.expect((role, "the same answer", topic), len(refusals), 1)
            for text, code in (("0", ""), ("point:noon", "unknown_point")):
                wanted = code if possible(role, "replay", TOPICS) else "not_entitled"
                answer = answers_of(raw, {"r": {"cmd": "ranges", "bookmark": text}})["r"]
                cells.expect((role, "ranges of any topic", text), answer.get("code", ""), wanted)
    cells.tell("look-ups")
    assert cells.wrong == []
    assert cells.count >= 6_000


def test_look_ups_of_queues(broker: Secured, marked: Marked) -> None:
    """A queue that is not there is answered as one that may not be consumed."""
    cells = Cells()
    bookmark, _ = marked.found["open"]
    from_places = {
        "point:morning": "", "point:noon": "unknown_point", "77|1|": "bookmark_not_found",
        bookmark: "", "20000101T000000Z": "", "no bookmark": "bad_bookmark",
    }  # fmt: skip
    for role in ROLES:
        with logged_on(broker, role, "queues") as raw:
            for queue in (*QUEUES, "gone"):
                tried: dict[str, tuple[dict[str, Any], str]] = {
                    f"from {place}": ({"cmd": "consume", "sid": place, "queue": queue,
                                       "since": place}, code)
                    for place, code in from_places.items()
                }  # fmt: skip
                tried["browse"] = {"cmd": "browse", "queue": queue}, ""
                for one in (bookmark, "77|1|"):
                    command = {"cmd": "ack", "queue": queue, "bookmarks": [one]}
                    tried[f"ack {one}"] = command, ""
                refusals = set()
                for cid, (command, code) in tried.items():
                    answer = answers_of(raw, {"q": command})["q"]
                    wanted = "unknown_queue" if queue == "gone" else code
                    if not may(role, "consume", queue, 0):
                        wanted = "not_entitled"
                        refusals.add(said(answer))
                    cells.expect((role, queue, cid), answer.get("code", ""), wanted)
                cells.expect((role, queue, "the same answer"), len(refusals) in (0, 1), True)
    cells.tell("look-ups of queues")
    assert cells.wrong == []


def test_points_by_the_admin(broker: Secured, marked: Marked) -> None:
    cells = Cells()
    reads, writes = "admin_read", "admin_write"
    with broker.connect() as root:
        before = broker.http("/points", token_of(root))[1]
    for role in ("", *ROLES):
        name = f"of {role}"
        tried = [
            ("list", "/points", None, reads, 200),
            ("set", "/points", {"name": name}, writes, 200),
            ("move", "/points", {"name": name, "at": 1}, writes, 200),
            ("look at", "/points/remove", {"name": name, "dry_run": True}, writes, 200),
            ("remove", "/points/remove", {"name": name}, writes, 200),
            ("remove again", "/points/remove", {"name": name}, writes, 404),
            ("look at none", "/points/remove", {"name": "noon", "dry_run": True}, writes, 404),
            ("misspell", "/points/remove", {"nmae": "morning"}, writes, 400),
        ]
        if role and not may(role, writes, "", 0):  # those of others, for whom may not
            tried += [
                ("move", "/points", {"name": "morning"}, writes, 403),
                ("look at", "/points/remove", {"name": "morning", "dry_run": True}, writes, 403),
                ("remove", "/points/remove", {"name": "morning"}, writes, 403),
            ]
        token = ""
        if role:
            with broker.connect(role) as client:
                token = token_of(client)
        refusals = set()
        for what, path, body, action, status in tried:
            found, answer = broker.http(path, token, body)
            wanted = status if role and may(role, action, "", 0) else 403 if role else 401
            cells.expect((role, what, body), found, wanted)
            refusals |= {answer} if wanted in (401, 403) and action == writes else set()
        cells.expect((role, "the same answer"), len(refusals) in (0, 1), True)
    with broker.connect() as root:
        assert broker.http("/points", token_of(root))[1] == before
    cells.tell("points by the admin")
    assert cells.wrong == []


def test_ranges_for_spark(broker: Secured, marked: Marked) -> None:
    """Plans, and what the data source asks first, before it looks up where to begin."""
    cells = Cells()
    for role in ROLES:
        credentials = broker.credentials(role)
        with broker.connect(role) as client:
            for topic in TOPICS:
                good = possible(role, "replay", (topic,))
                wanted = "" if good else "not_entitled"
                found = _code_of(partial(plan_ranges, broker.url, topic=topic), credentials)
                cells.expect((role, "plan", topic), found, wanted)
                options = {"endpoint": broker.url, "topics": topic}
                source = SparkPlace(parse_options(options))
                source._client = client  # one connection for all topics
                found = _code_of(lambda here, credentials: here.state(), source, credentials)
                cells.expect((role, "data source", topic), found, wanted)
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
            until(lambda: _refusal(star) == "auth_failed", "who is not known any more is informed")
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
