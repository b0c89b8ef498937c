"""One queue on two instances: each offers what was published to it, and both know what is done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import pytest
from click.testing import CliRunner

from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from tests.process.queue_checker import depth
from zbroker.cli.admin_main import main
from zbroker.client import Client, connect
from zbroker.errors import ZBrokerError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SOME: Final = 200
WORK: Final = {"name": "work", "topic": "t", "scope": "distributed"}


def depths(*peers: Peer) -> list[int]:
    return [depth(peer.running, "work") for peer in peers]


def started(instances: Instances, queue: Mapping[str, Any] = WORK) -> list[Peer]:
    """All of them, with the queue: none is ready before it knows that the others are new, too."""
    for peer in instances.peers:
        peer.settings["queue"] = [queue]
    with ThreadPoolExecutor() as threads:
        list(threads.map(Peer.start, instances.peers))
    for peer in instances.peers:
        until(peer.knows_destinations, f"{peer.name} knows who its destinations are", WAIT_S)
    return instances.peers


def left_behind(instances: Instances) -> list[Peer]:
    """Two, of which the first one is dead; it owned all that both have."""
    a, b = started(instances)
    with connect(a.url, "pa") as at_a:
        publish(at_a, SOME)
    until(lambda: depths(a, b) == [SOME, SOME], "both have all")
    a.kill()
    return [a, b]


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
@pytest.mark.seed("001-17")
def test_what_an_instance_owns_that_is_away_is_taken_over_by_hand() -> None:
    with Instances(2, starts=False) as instances:
        a, b = left_behind(instances)
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


def test_consumers_with_filters_at_another_instance_get_what_fits() -> None:
    """No consumer is at the owner; what fits no filter stays there."""
    with Instances(2, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a, connect(b.url, "pb") as at_b:
            for n in range(SOME):
                at_a.publish("t", b'{"n": %d}' % n, timeout=WAIT_S)
            at_a.flush(timeout=WAIT_S)
            with at_b.consume("work", filter="/n % 4 = 1") as consumer:
                taken = [message for _, message in zip(range(SOME // 4), consumer, strict=False)]
                consumer.ack(taken)
                assert {json.loads(message.data)["n"] % 4 for message in taken} == {1}
                assert not any(message.redelivered for message in taken)
                until(lambda: depths(a, b) == [SOME - SOME // 4] * 2, "both know what is done")
                assert "0 of them fit a filter of a consumer here" in explained(b)
            assert elsewhere(b) == SOME - SOME // 4, "the rest stays where it was"
            assert len(take(at_a, SOME - SOME // 4)) == SOME - SOME // 4
            until(lambda: depths(a, b) == [0, 0], "b knows it")


@pytest.mark.seed("001-61")
def test_the_rest_comes_in_its_order_where_it_is_taken_over() -> None:
    """Both know which messages are done, also those that were not the oldest."""
    with Instances(2, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a:
            publish(at_a, SOME)
            with at_a.consume("work", backlog=SOME) as consumer:
                taken = [message for _, message in zip(range(SOME), consumer, strict=False)]
                consumer.ack(taken[::3])
                left = [bytes(message.data) for n, message in enumerate(taken) if n % 3]
                until(lambda: depths(a, b) == [len(left)] * 2, "both know what is done")
        a.kill()
        args = ["--url", b.url, "queue", "takeover", "work", "--from", "a", "--yes"]
        assert CliRunner().invoke(main, args, catch_exceptions=False).exit_code == 0
        with connect(b.url, "pb") as at_b:
            assert [bytes(message.data) for message in take(at_b, len(left))] == left


@pytest.mark.seed("000-32")
def test_an_instance_acts_for_the_initial_owner_until_it_is_back() -> None:
    owned = {**WORK, "scope": "group-local", "initial_owner": "a"}
    with Instances(2, starts=False) as instances:
        a, b = started(instances, owned)
        args = ["--url", b.url, "queue", "takeover", "work", "--from", "a", "--until-back", "--yes"]
        # or it would be back as soon as b sees that it was there
        looks = [*args, "--dry-run"]
        until(lambda: "comes here" in CliRunner().invoke(main, looks).output, "b to see a")
        a.kill()
        # refused as long as b takes a for one that is there
        until(lambda: CliRunner().invoke(main, args).exit_code == 0, "b to stand in for a")
        with connect(b.url, "pb") as at_b, at_b.consume("work", backlog=SOME) as consumer:
            publish(at_b, 1)
            [message] = consumer.fetch(1, timeout=WAIT_S)
            message.ack()
            a.start()
            until(lambda: depths(a, b) == [0, 0], "a knows it")
            until(lambda: not b.running.ask("/queues/work")["acts_for"], "it is over")
            with connect(a.url, "pa") as at_a, at_a.consume("work", backlog=SOME) as owner:
                publish(at_b, 1)
                [message] = owner.fetch(1, timeout=WAIT_S)
                assert not message.redelivered
                message.ack()
                until(lambda: depths(a, b) == [0, 0], "b knows it")


def test_a_takeover_is_over_at_once() -> None:
    """It moves what is there. What is published at an instance that is back is its own again."""
    with Instances(2, starts=False) as instances:
        a, b = left_behind(instances)
        args = ["--url", b.url, "queue", "takeover", "--all", "--from", "a", "--yes"]
        done = CliRunner().invoke(main, args, catch_exceptions=False)
        assert done.output == f"work: {SOME} messages taken over\n"
        a.start()
        with connect(a.url, "pa") as at_a:
            publish(at_a, SOME)
            until(lambda: depths(a, b) == [2 * SOME, 2 * SOME], "both have all")
            owners = {one["name"]: one["depth"] for one in b.running.ask("/queues/work")["owners"]}
            assert owners == {"a": SOME, "b": SOME}
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


@pytest.mark.seed("001-55")
def test_what_a_consumer_says_of_a_message_is_known_on_all() -> None:
    """Done, given back, given up: each is a record for all of them."""
    with Instances(2, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a:
            publish(at_a, 3)
            until(lambda: depths(a, b) == [3, 3], "both have all")
            with at_a.consume("work", backlog=3) as consumer:
                done, back, bad = (message for _, message in zip(range(3), consumer, strict=False))
                done.ack()
                back.release("1h")
                bad.reject("it cannot be read")
                until(lambda: depths(a, b) == [1, 1], "both know which one is left")
        [left] = b.running.ask("/queues/work/browse")["messages"]
        assert (left["bookmark"], left["failures"]) == (back.bookmark, 1)
        assert left["state"] == "elsewhere"


@pytest.mark.seed("001-69")
@pytest.mark.seed("001-07")
def test_a_queue_that_is_made_changed_or_deleted_on_one_is_so_on_all() -> None:
    with Instances(2) as instances:
        a, b = instances.peers
        assert change(a, "create", "made", "--topic", "t", "--set", "scope=distributed") == 0
        until(lambda: "made" in queues(b), "b has it")
        assert change(b, "alter", "made", "--set", "lease=1m") == 0
        until(lambda: queues(a)["made"]["lease"] == 60_000, "a has the change")
        b.kill()
        b.start()
        assert queues(b)["made"]["lease"] == 60_000
        with connect(b.url, "pb") as at_b:
            assert at_b.declare_queue("made", passive=True).name == "made"
        assert change(a, "delete", "made", "--yes") == 0
        until(lambda: queues(b) == {}, "b has it no more")


def change(peer: Peer, what: str, *args: str) -> int:
    """The exit code of a command about a queue there."""
    given = ["--url", peer.url, "queue", what, *args]
    return CliRunner().invoke(main, given, catch_exceptions=False).exit_code


def queues(peer: Peer) -> dict[str, dict[str, Any]]:
    """The definitions of all queues there."""
    ask = peer.running.ask
    names = [row["name"] for row in ask("/queues")["queues"]]
    found = {}
    for name in names:
        with suppress(ZBrokerError):  # it was deleted meanwhile
            found[name] = ask(f"/queues/{name}")["definition"]
    return found


TAPE: Final = {"name": "tape", "topic": "t", "kind": "replayable", "scope": "distributed"}


@pytest.mark.seed("003-36")
def test_a_replayable_queue_is_one_on_all_instances() -> None:
    """Marks and purges hold on both, and a consumer goes on at the other one."""
    with Instances(2, starts=False) as instances:
        a, b = started(instances, TAPE)
        tapes = lambda: [depth(one.running, "tape") for one in (a, b)]  # noqa: E731
        with connect(b.url, "pb") as at_b:
            with connect(a.url, "pa") as at_a:
                publish(at_a, SOME)
                publish(at_b, SOME)
                until(lambda: tapes() == [2 * SOME] * 2, "both have all")
            with (
                connect([a.url, b.url], "c") as client,
                client.consume("tape", since="epoch", credit=2_000) as consumer,
            ):
                got = consumer.fetch(SOME, timeout=WAIT_S)
                consumer.ack(got[:10])
                until(lambda: acked(b) == {one.bookmark for one in got[:10]}, "b shows them")
                a.kill()
                publish(at_b, SOME)
                while len(got) < 3 * SOME:
                    got += consumer.fetch(3 * SOME, timeout=WAIT_S)
                vector = consumer.vector
        marks = [one.bookmark for one in got]
        assert len({*marks}) == len(marks) == 3 * SOME
        a.start()
        until(lambda: tapes() == [3 * SOME] * 2, "a has all")
        assert acked(a) == {*marks[:10]}
        assert point(b, "set", "end") == 0
        with connect(b.url, "pb") as at_b:
            publish(at_b, 1)
        until(lambda: tapes() == [3 * SOME + 1] * 2, "a has it")
        [end] = b.running.ask("/points")["points"]
        assert point(a, "set", "end", "--vector", end["vector"]) == 0
        assert change(a, "purge", "tape", "--yes", "--point", "end") == 0
        until(lambda: tapes() == [1, 1], "b let go of it, too")
        b.kill()
        b.start()
        until(lambda: tapes() == [1, 1], "b has let go of it still")
        with (
            connect(a.url, "c") as client,
            client.consume("tape", since=vector, until="now") as consumer,
        ):
            assert len([*consumer]) == 1
        assert change(a, "takeover", "tape", "--from", "b", "--yes") == 1


def acked(peer: Peer) -> set[str]:
    """Bookmarks of the messages of the tape that are shown as acknowledged there."""
    found = peer.running.ask("/queues/tape/browse?limit=1000&state=acked")["messages"]
    return {row["bookmark"] for row in found}


def point(peer: Peer, what: str, *args: str) -> int:
    """The exit code of a command about a point there."""
    given = ["--url", peer.url, "point", what, *args]
    return CliRunner().invoke(main, given, catch_exceptions=False).exit_code


def test_letters_are_published_again_by_the_command_of_the_hint() -> None:
    """Each comes once, on one instance, and all know it; `requeue` itself is refused."""
    with Instances(2, starts=False) as instances:
        a, b = started(instances, {**WORK, "dead_letter": "dead"})
        with connect(a.url, "pa") as at_a, at_a.consume("work", backlog=SOME) as consumer:
            publish(at_a, 3)
            for _, message in zip(range(3), consumer, strict=False):
                message.reject("it cannot be read")
            until(lambda: depths(a, b) == [0, 0], "both know that they are letters")
            args = ["--url", a.url, "queue", "requeue", "work"]
            refused = CliRunner().invoke(main, args, catch_exceptions=False)
            assert refused.exit_code == 1
            hint = refused.output.replace("\n", " ")
            command = hint[hint.index("zbroker sub") :].rstrip(") ")
            for each in ("sub", "pub"):
                at = f"{sys.executable} -m zbroker.cli.main {each} {a.url} "
                command = command.replace(f"zbroker {each} ", at)
            subprocess.run(command, shell=True, check=True, timeout=WAIT_S)
            found = {bytes(each.data) for _, each in zip(range(3), consumer, strict=False)}
            assert found == {b"0", b"1", b"2"}
        until(lambda: depths(a, b) == [3, 3], "both have them, once")


def test_an_instance_that_is_to_stop_gives_what_it_owns_to_another_one() -> None:
    """A consumer that works on a message finishes it; it goes on where the publisher goes on."""
    with Instances(2, starts=False) as instances:
        a, b = started(instances)
        with connect([a.url, b.url], "p") as client, client.consume("work", backlog=2) as consumer:
            publish(client, SOME)
            until(lambda: depths(a, b) == [SOME, SOME], "both have all")
            first, second = (message for _, message in zip(range(2), consumer, strict=False))
            with ThreadPoolExecutor(1) as thread:
                draining = thread.submit(drained, a)
                until(lambda: client.url == b.url, "the publisher goes on at b", WAIT_S)
                consumer.ack([first, second])
                done = draining.result(WAIT_S)
            assert done.exit_code == 0, done.output
            assert f"work: {SOME - 2} messages were given to b" in done.output
            assert elsewhere(a) == SOME - 2
            publish(client, SOME)
            taken = []
            for _, message in zip(range(2 * SOME - 2), consumer, strict=False):
                taken.append(message)
                message.ack()
            assert not any(message.redelivered for message in taken)
            assert len({message.bookmark for message in taken}) == len(taken)
            assert {first.bookmark, second.bookmark}.isdisjoint(one.bookmark for one in taken)
        until(lambda: depths(a, b) == [0, 0], "a knows it")
        a.close()
        a.start()
        with connect(a.url, "pa") as at_a, at_a.consume("work", backlog=SOME) as consumer:
            publish(at_a, 1)
            [message] = consumer.fetch(1, timeout=WAIT_S)
            assert not message.redelivered, "what it accepts from then on is its own"
            message.ack()


def drained(peer: Peer) -> Any:
    """What `replication drain` says there."""
    args = ["--data-dir", str(peer.data), "replication", "drain", "--wait", "30"]
    return CliRunner().invoke(main, args, catch_exceptions=False)


@pytest.mark.parametrize("killed", [False, True])
def test_a_local_queue_becomes_one_of_both_with_all_that_is_in_it(killed: bool) -> None:
    with Instances(2) as instances:
        a, b = instances.peers
        assert change(a, "create", "work", "--topic", "t") == 0
        with connect(a.url, "pa") as at_a, connect(b.url, "pb") as at_b:
            publish(at_a, SOME)
            publish(at_b, SOME)
            until(lambda: depth(a.running, "work") == 2 * SOME, "a has all")
            done = {message.bookmark for message in take(at_a, SOME)}
            assert len(done) == SOME
            assert change(a, "alter", "work", "--set", "scope=distributed") == 0
            until(lambda: "work" in queues(b), "b has it")
            if killed:
                a.kill()
                a.start()
            until(lambda: depths(a, b) == [SOME, SOME], "both know what is done")
        with connect(b.url, "pc") as at_b:
            left = {message.bookmark for message in take(at_b, SOME)}
        assert len(left) == SOME
        assert not left & done
        until(lambda: depths(a, b) == [0, 0], "a knows it")
        assert change(a, "alter", "work", "--set", "scope=local") != 0
