"""One queue on two instances: each offers what was published to it, and both know what is done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from click.testing import CliRunner

from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from tests.process.queue_checker import depth
from zbroker.cli.admin_main import main
from zbroker.client import Client, connect

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SOME: Final = 200
WORK: Final = {"name": "work", "topic": "t", "scope": "distributed"}


def depths(*peers: Peer) -> list[int]:
    return [depth(peer.running, "work") for peer in peers]


def started(instances: Instances) -> list[Peer]:
    """All of them, with the queue: none is ready before it knows that the others are new, too."""
    for peer in instances.peers:
        peer.settings["queue"] = [WORK]
    with ThreadPoolExecutor() as threads:
        list(threads.map(Peer.start, instances.peers))
    return instances.peers


def explained(peer: Peer) -> str:
    """What `queue explain` says there."""
    args = ["--url", peer.url, "queue", "explain", "work"]
    return CliRunner().invoke(main, args, catch_exceptions=False).output


def elsewhere(peer: Peer) -> int:
    """How many messages belong to others there."""
    return int(peer.running.ask("/queues/work")["elsewhere"])


def publish(client: Client, count: int) -> None:
    for n in range(count):
        client.publish("t", b"%d" % n, timeout=WAIT_S)
    client.flush(timeout=WAIT_S)


def take(client: Client, count: int) -> list[Any]:
    """So many messages, each acknowledged."""
    with client.consume("work") as consumer:
        found = []
        for _, message in zip(range(count), consumer, strict=False):
            found.append(message)
            message.ack()
        return found


@pytest.mark.seed("000-12")
@pytest.mark.seed("000-13")
@pytest.mark.seed("000-14")
@pytest.mark.seed("000-09")
def test_each_instance_offers_what_was_published_to_it() -> None:
    with Instances(2, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a, connect(b.url, "pb") as at_b:
            publish(at_a, SOME)
            publish(at_b, SOME)
            until(lambda: depths(a, b) == [2 * SOME, 2 * SOME], "both have all")
            taken = take(at_b, SOME)
            assert not any(message.redelivered for message in taken)
            until(lambda: depths(a, b) == [SOME, SOME], "a knows what b did")
            take(at_a, SOME)
            until(lambda: depths(a, b) == [0, 0], "b knows what a did")


@pytest.mark.seed("000-30")
@pytest.mark.seed("000-31")
@pytest.mark.seed("000-33")
def test_what_an_instance_owns_that_is_away_is_taken_over_by_hand() -> None:
    with Instances(2, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a:
            publish(at_a, SOME)
        until(lambda: depths(a, b) == [SOME, SOME], "both have all")
        a.kill()
        until(lambda: "a is not connected" in explained(b), "b knows that a is away")
        assert f"{SOME} messages belong to a (" in explained(b)
        [owner] = b.running.ask("/queues/work")["owners"]
        assert (owner["name"], owner["up"], owner["depth"]) == ("a", False, SOME)
        args = ["--url", b.url, "queue", "takeover", "work", "--from", "a"]
        planned = CliRunner().invoke(main, [*args, "--dry-run"], catch_exceptions=False)
        assert f"{SOME} messages would be taken over" in planned.output
        assert depths(b) == [SOME]
        done = CliRunner().invoke(main, [*args, "--yes"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        with connect(b.url, "pb") as at_b:
            taken = take(at_b, SOME)
        assert all(message.redelivered for message in taken)
        until(lambda: depths(b) == [0], "all is done")
        a.start()
        with connect(a.url, "pa") as at_a, at_a.consume("work") as consumer:
            until(lambda: depths(a, b) == [0, 0], "a knows it")
            publish(at_a, 1)
            [message] = consumer.fetch(1, timeout=WAIT_S)
            assert (message.data, message.redelivered) == (b"0", False), "nothing before it"
            message.ack()


@pytest.mark.seed("000-19")
@pytest.mark.seed("000-26")
@pytest.mark.parametrize("count", [2, 3])
def test_consumers_at_another_instance_get_what_the_owner_has_no_use_for(count: int) -> None:
    """Three are in a row: the request goes over the one in the middle."""
    with Instances(count, starts=False, row=True) as instances:
        a, *_, last = peers = started(instances)
        with connect(a.url, "pa") as at_a, connect(last.url, "pb") as at_b:
            publish(at_a, SOME)
            taken = take(at_b, SOME)
        assert not any(message.redelivered for message in taken)
        assert len({message.bookmark for message in taken}) == SOME
        until(lambda: depths(*peers) == [0] * count, "all know it")


@pytest.mark.seed("000-32")
def test_a_takeover_is_over_at_once() -> None:
    """It moves what is there. What is published at an instance that is back is its own again."""
    with Instances(2, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a:
            publish(at_a, SOME)
        until(lambda: depths(a, b) == [SOME, SOME], "both have all")
        a.kill()
        args = ["--url", b.url, "queue", "takeover", "--all", "--from", "a", "--yes"]
        done = CliRunner().invoke(main, args, catch_exceptions=False)
        assert done.output == f"work: {SOME} messages taken over\n"
        a.start()
        with connect(a.url, "pa") as at_a:
            publish(at_a, SOME)
            until(lambda: depths(a, b) == [2 * SOME, 2 * SOME], "both have all")
            owners = {one["name"]: one["depth"] for one in b.running.ask("/queues/work")["owners"]}
            assert owners == {"": SOME, "a": SOME}, "b itself has no link to itself"
            until(lambda: elsewhere(a) == SOME, "a has read what b took over")
            taken = take(at_a, SOME)
            assert not any(message.redelivered for message in taken)
            until(lambda: depths(a, b) == [SOME, SOME], "those that b took over are left")


@pytest.mark.seed("000-39")
@pytest.mark.seed("000-40")
@pytest.mark.parametrize("groups", [("one", "two", "three"), ("same", "same", "same")])
def test_an_instance_in_the_middle_passes_everything_on(groups: tuple[str, ...]) -> None:
    """a and c have no link: messages, acknowledgements and a takeover go by b, in any group."""
    with Instances(3, starts=False) as instances:
        a, _, c = instances.peers
        for peer, group, far in zip(instances.peers, groups, (c, None, a), strict=True):
            peer.settings["instance"]["group"] = group
            links = peer.settings["destination"]
            peer.settings["destination"] = [
                one for one in links if far is None or one["name"] != far.name
            ]
        started(instances)
        with connect(a.url, "pa") as at_a, connect(c.url, "pc") as at_c:
            publish(at_a, SOME)
            publish(at_c, SOME)
            until(lambda: depths(*instances.peers) == [2 * SOME] * 3, "all have all")
            take(at_c, SOME)
            until(lambda: depths(*instances.peers) == [SOME] * 3, "all know what c did")
            of_a = str(a.running.status()["instance"])  # no link knows it by its name
            args = ["--url", c.url, "queue", "takeover", "work", "--from", of_a, "--yes"]
            done = CliRunner().invoke(main, args, catch_exceptions=False)
            assert done.exit_code == 0, done.output
            assert len(take(at_c, SOME)) == SOME
            until(lambda: depths(*instances.peers) == [0] * 3, "all know what c took over")
