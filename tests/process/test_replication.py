"""Instances that replicate to each other: nothing is lost with one, and all hold the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgpack
import pytest
import zmq
from click.testing import CliRunner

from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from zbroker import sockets
from zbroker.access import keys
from zbroker.cli.admin_main import main
from zbroker.client import Client, connect
from zbroker.client.connect_types import Credentials
from zbroker.errors import ZBrokerError
from zbroker.log.disk import RealDisk
from zbroker.log.segments import list_segments

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SYNC: Final = {"mode": "sync"}
SOME: Final = 500


def publish(client: Client, count: int, begin: int = 0) -> None:
    for n in range(begin, begin + count):
        client.publish("t", b"%d" % n, timeout=WAIT_S)


@contextmanager
def stopped(peer: Peer, process: str) -> Iterator[None]:
    """A process that is frozen."""
    pid = peer.pid(process)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def read(peer: Peer, count: int) -> list[bytes]:
    """The first messages of its log."""
    with connect(peer.url) as client, client.subscribe("t", since="epoch", limit=count) as found:
        return [bytes(message.data) for message in found]


def serials(peer: Peer) -> list[int]:
    """Segments of its journal directory."""
    disk = RealDisk(peer.data / "journal", read_only=True)
    return [serial for serial, _ in list_segments(disk)]


def sends(peer: Peer) -> bool:
    """Whether all its links to destinations are up."""
    rows = [row for row in peer.links().rows if row.direction == "out"]
    return all(row.state == "sending" for row in rows)


@pytest.mark.seed("001-01")
@pytest.mark.seed("001-11")
@pytest.mark.seed("001-46")
@pytest.mark.seed("003-37")
def test_what_is_published_at_one_is_read_at_the_other() -> None:
    with Instances(2) as instances:
        a, b = instances.peers
        for peer in (a, b):
            with connect(peer.url, f"at-{peer.name}") as client:
                publish(client, SOME)
                client.flush(timeout=WAIT_S)
        instances.until_equal(2 * SOME)
        assert len(read(b, 2 * SOME)) == 2 * SOME


@pytest.mark.seed("001-05")
@pytest.mark.seed("001-41")
@pytest.mark.seed("002-02")
@pytest.mark.seed("004-18")
def test_an_acknowledgement_waits_for_a_synchronous_destination() -> None:
    with Instances(2, destination=SYNC) as instances:
        a, b = instances.peers
        with connect(a.url, "p") as client:
            publish(client, 1)
            client.flush(timeout=WAIT_S)
            with stopped(b, "replication"):
                publish(client, 1)
                with pytest.raises(ZBrokerError):
                    client.flush(timeout=2)
                assert client.unpersisted == 1
            client.flush(timeout=WAIT_S)
        assert len(b.messages()) == 2


@pytest.mark.seed("001-29")
def test_what_is_not_recorded_is_acknowledged_without_a_destination() -> None:
    more = {"record": [{"topic": "t"}]}
    with Instances(2, destination=SYNC, more=more) as instances:
        a, b = instances.peers
        with connect(a.url, "p") as client:
            publish(client, 1)
            client.flush(timeout=WAIT_S)
            with stopped(b, "replication"):
                receipt = client.publish("live", b"tick")
                client.flush(timeout=WAIT_S)
                assert receipt.recorded is False
                publish(client, 1)
                with pytest.raises(ZBrokerError):
                    client.flush(timeout=2)


@pytest.mark.seed("001-31")
@pytest.mark.seed("001-32")
@pytest.mark.seed("001-33")
@pytest.mark.seed("001-34")
@pytest.mark.seed("001-36")
@pytest.mark.parametrize("needed", [pytest.param(0, marks=pytest.mark.long), 1])
def test_it_is_configurable_how_many_confirmations_it_waits_for(needed: int) -> None:
    """0: for all of them."""
    more = {"replication": {"sync_needed": needed}}
    with Instances(3, destination=SYNC, more=more) as instances:
        a, b, c = instances.peers
        until(lambda: sends(a), "the links", WAIT_S)
        with connect(a.url, "p") as client:
            publish(client, 1)
            client.flush(timeout=WAIT_S)
            with stopped(b, "replication"):
                publish(client, 1)
                if needed == 1:
                    client.flush(timeout=WAIT_S)
                else:
                    until(lambda: len(c.messages()) == 2, "one confirmation", WAIT_S)
                    with pytest.raises(ZBrokerError):
                        client.flush(timeout=2)
            client.flush(timeout=WAIT_S)
        instances.until_equal(2)


def newest_of(peer: Peer, name: str) -> int:
    """The newest sequence of a publisher that an instance knows, as it answers a logon."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        dealer = sockets.dealer(context, peer.url)
        dealer.send(msgpack.packb({"cmd": "logon", "cid": "1", "client": name, "instance": "x"}))
        assert dealer.poll(int(WAIT_S * 1_000)), "no answer to the logon"
        return int(msgpack.unpackb(dealer.recv())["seq"])
    finally:
        context.destroy(linger=0)


@pytest.mark.seed("001-19")
def test_another_instance_knows_the_numbers_of_a_publisher() -> None:
    with Instances(2, destination=SYNC) as instances:
        a, b = instances.peers
        with connect(a.url, "p") as client:
            publish(client, SOME)
            newest = client.publish("t", b"last").sequence
            client.flush(timeout=WAIT_S)
        assert newest_of(b, "p") == newest


@pytest.mark.seed("000-08")
@pytest.mark.seed("001-56")
def test_messages_of_a_queue_are_replicated_too() -> None:
    """What became of them stays on the instance whose queue it is."""
    with Instances(2, destination=SYNC, starts=False) as instances:
        a, b = instances.peers
        a.settings["queue"] = [{"name": "work", "topic": "t"}]
        b.start()
        a.start()  # its queue is defined once the two know that both are new
        with connect(a.url, "p") as client:
            publish(client, SOME)
            client.flush(timeout=WAIT_S)
            with client.consume("work") as consumer:
                for _, message in zip(range(SOME), consumer, strict=False):
                    message.ack()
        instances.until_equal(SOME)


@pytest.mark.seed("002-04")
@pytest.mark.seed("004-12")
def test_nothing_acknowledged_is_lost_with_an_instance() -> None:
    """Its disk, too: the other one has everything, and takes what comes next."""
    with Instances(2, destination=SYNC, more={"replication": {"sync_needed": 1}}) as instances:
        a, b = instances.peers
        with connect([a.url, b.url], "p") as client:
            publish(client, SOME)
            client.flush(timeout=WAIT_S)
            a.kill()
            held = b.messages()
            assert len(held) == SOME
            publish(client, SOME, SOME)
            a.start()
            client.flush(timeout=WAIT_S)
        instances.until_equal(2 * SOME)


@pytest.mark.parametrize(
    "process", ["replication", pytest.param("journal", marks=pytest.mark.long)]
)
def test_processes_may_be_killed(process: str) -> None:
    with Instances(2, destination=SYNC) as instances:
        a, b = instances.peers
        with connect(a.url, "p") as client:
            for number, peer in enumerate((a, b, a)):
                publish(client, SOME, number * SOME)
                peer.kill_process(process)
            client.flush(timeout=WAIT_S)
        instances.until_equal(3 * SOME)


def test_a_destination_that_is_away_is_downgraded_and_waited_for_again() -> None:
    downgraded = {**SYNC, "downgrade_after": "1s"}
    with Instances(2, destination=downgraded) as instances:
        a, b = instances.peers
        until(lambda: sends(a), "the link", WAIT_S)
        with connect(a.url, "p") as client:
            with stopped(b, "replication"):
                publish(client, SOME)
                client.flush(timeout=WAIT_S)
                assert a.links().needed == 0
            until(lambda: a.links().needed == 1, "the upgrade", WAIT_S)
            publish(client, 1, SOME)
            client.flush(timeout=WAIT_S)
        assert len(b.messages()) == SOME + 1


@pytest.mark.seed("004-83")
@pytest.mark.seed("004-84")
def test_a_fully_durable_subscription_waits_for_a_synchronous_destination() -> None:
    """Until it is back, or downgraded; a replication process that is new lets nothing out."""
    with Instances(2, destination=SYNC) as instances:
        a, b = instances.peers
        until(lambda: sends(a), "the link", WAIT_S)
        with (
            connect(a.url, "s") as client,
            client.subscribe("t", since="epoch", delivery="fully_durable") as found,
            client.subscribe("t", since="epoch") as plain,
        ):
            publish(client, 1)
            assert bytes(found.next(timeout=WAIT_S).data) == b"0"
            with stopped(b, "journal"):
                publish(client, 1, 1)
                assert [bytes(plain.next(timeout=WAIT_S).data) for _ in range(2)] == [b"0", b"1"]
                a.kill_process("replication")
                publish(client, 1, 2)
                assert bytes(plain.next(timeout=WAIT_S).data) == b"2"
                with pytest.raises(ZBrokerError, match="timeout"):
                    found.next(timeout=1)
            assert [bytes(found.next(timeout=WAIT_S).data) for _ in range(2)] == [b"1", b"2"]
            with stopped(b, "journal"):
                publish(client, 1, 3)
                with pytest.raises(ZBrokerError, match="timeout"):
                    found.next(timeout=1)
                change = ["--data-dir", str(a.data), "replication", "downgrade", "b"]
                assert CliRunner().invoke(main, change).exit_code == 0
                assert bytes(found.next(timeout=WAIT_S).data) == b"3"


def test_three_instances_come_to_hold_the_same() -> None:
    with Instances(3) as instances:
        for peer in instances.peers:
            with connect(peer.url, f"at-{peer.name}") as client:
                publish(client, SOME)
                client.flush(timeout=WAIT_S)
        instances.until_equal(3 * SOME)


@pytest.mark.seed("004-13")
@pytest.mark.seed("004-99")
def test_the_log_is_kept_for_an_instance_that_is_away() -> None:
    """Also where its removal was asked for: it goes when that instance has it."""
    segments = {"journal": {"segment_size": "1MiB"}}
    with Instances(2, more=segments, starts=False) as instances:
        a, b = instances.peers
        a.start()
        a.begin_fresh()
        count = 0
        with connect(a.url, "p") as client:
            while a.running.status()["journal"]["stated"] < 4:
                client.publish_many("t", [bytes(20_000)] * 20)
                client.flush(timeout=WAIT_S)
                count += 20
        asked = a.running.ask("/journal/remove", {"through": 2})
        assert any("replication" in held["who"] for held in asked["held_by"]), asked
        assert {1, 2} <= set(serials(a))
        b.start()
        until(lambda: len(b.messages()) == count, "the copy", WAIT_S)

        def removed() -> bool:
            a.running.ask("/journal/remove", {"through": 2})
            return not {1, 2} & set(serials(a))

        until(removed, "the removal", WAIT_S)
        assert set(b.messages().values()) == {1}


RIGHTS: Final = """
[principal.{name}]
keys = ["{key}"]
roles = ["{role}"]
[[role.copies.allow]]
actions = ["replicate"]
topics = ["t"]
[[role.reader.allow]]
actions = ["subscribe"]
"""


def test_a_link_needs_keys_and_the_right(tmp_path: Path) -> None:
    """Nothing comes of a source without the right; once it has that, everything does."""
    pairs = {name: keys.make(tmp_path / name) for name in "ab"}
    programs = keys.make(tmp_path / "program")
    everything = (
        f'[principal.p]\nkeys = ["{programs.public}"]\nroles = ["all"]\n'
        '[[role.all.allow]]\nactions = ["*"]\n'
    )

    def allow(here: str, role: str) -> None:
        other = "b" if here == "a" else "a"
        rules = RIGHTS.format(name=other, key=pairs[other].public, role=role)
        made = tmp_path / f"{here}.new"
        made.write_text(rules + everything)
        made.replace(tmp_path / f"{here}.toml")

    with Instances(2, starts=False) as instances:
        a, b = instances.peers
        for peer, other in ((a, "b"), (b, "a")):
            allow(peer.name, "reader")
            place = tmp_path / peer.name
            peer.settings["security"] = {
                "key": f"{place}.key_secret", "access": f"{place}.toml",
            }  # fmt: skip
            peer.settings["destination"][0]["server_key"] = pairs[other].public
            peer.start()
            peer.begin_fresh()  # the other one refuses it, which is no answer

        def open_client(peer: Peer) -> Client:
            mine = Credentials(key=tmp_path / "program.key_secret", server=pairs[peer.name].public)
            return connect(peer.url, "p", credentials=mine)

        with open_client(a) as client:
            publish(client, SOME)
            client.flush(timeout=WAIT_S)
            until(lambda: "right `replicate`" in a.links().rows[0].problem, "a refusal", WAIT_S)
            allow("b", "copies")
            until(lambda: sends(a) and a.links().rows[0].lag == 0, "the copy", WAIT_S)
        with open_client(b) as client, client.subscribe("t", since="epoch", limit=SOME) as found:
            assert [bytes(one.data) for one in found] == [b"%d" % n for n in range(SOME)]


@pytest.mark.seed("000-41")
def test_a_copy_gets_the_topics_of_its_link_and_more_after_a_change() -> None:
    """An acknowledgement waits for it where it wants the message; the others hold everything."""
    with Instances(3, destination=SYNC, starts=False) as instances:
        a, b, c = instances.peers
        for peer in (a, b):
            for table in peer.settings["destination"]:
                if table["name"] == "c":
                    table["topics"] = ["orders", "prices.*"]
        c.settings["destination"] = []
        for peer in (a, b, c):
            peer.start()
        until(lambda: sends(a), "the links", WAIT_S)

        def topics(peer: Peer) -> set[str]:
            return {topic for batch in peer.batches() for topic in batch.topics}

        with connect(a.url, "p") as client:
            for _ in range(SOME):
                for topic in ("orders", "trades", "prices.eu"):
                    client.publish(topic, topic.encode(), timeout=WAIT_S)
            client.flush(timeout=WAIT_S)
            with stopped(c, "journal"):
                client.publish("trades", b"more", timeout=WAIT_S)
                client.flush(timeout=WAIT_S)
                client.publish("orders", b"more", timeout=WAIT_S)
                with pytest.raises(ZBrokerError):
                    client.flush(timeout=2)
            client.flush(timeout=WAIT_S)
            assert len(c.messages()) == 2 * SOME + 1
            assert topics(c) == {"orders", "prices.eu"}
            until(lambda: len(b.messages()) == 3 * SOME + 2, "the whole copy", WAIT_S)
            (row,) = (one for one in a.links().rows if one.name == "c")
            assert row.topics == ["orders", "prices.*"]
        a.kill()
        for table in a.settings["destination"]:
            table.pop("topics", None)
        a.start()
        with connect(a.url, "p") as client:
            client.publish("trades", b"after", timeout=WAIT_S)
            client.flush(timeout=WAIT_S)
        assert topics(c) == {"orders", "prices.eu", "trades"}
        assert len(c.messages()) == 2 * SOME + 2
        missing = CliRunner().invoke(
            main, ["--json", "--data-dir", str(c.data), "replication", "missing"]
        )
        assert '"why":"topics"' in missing.stdout.replace(" ", "")


def test_a_copy_gets_what_the_filter_of_its_link_is_true_for() -> None:
    """An acknowledgement waits for it where it wants the message, also of one in a larger batch."""
    with Instances(2, destination=SYNC, starts=False) as instances:
        a, b = instances.peers
        b.settings["destination"] = []
        (table,) = a.settings["destination"]
        table["filter"] = "/n % 10 = 3"
        for peer in (b, a):
            peer.start()
        until(lambda: sends(a), "the link", WAIT_S)

        def numbers() -> list[int]:
            bodies = (body for batch in b.batches() for body in msgpack.unpackb(bytes(batch.body)))
            return sorted(json.loads(body)["n"] for body in bodies)

        with connect(a.url, "p") as client:
            client.publish_many("t", [b'{"n": %d}' % n for n in range(10 * SOME)])
            client.publish("t", b"no JSON", timeout=WAIT_S)
            client.flush(timeout=WAIT_S)
            wanted = [n for n in range(10 * SOME) if n % 10 == 3]
            assert numbers() == wanted
            with stopped(b, "journal"):
                client.publish("t", b'{"n": 4}', timeout=WAIT_S)
                client.flush(timeout=WAIT_S)
                client.publish("t", b'{"n": 13}', timeout=WAIT_S)
                with pytest.raises(ZBrokerError):
                    client.flush(timeout=2)
            client.flush(timeout=WAIT_S)
            assert numbers() == sorted([*wanted, 13])
            (row,) = a.links().rows
            assert (row.topics, row.filter) == ([], "/n % 10 = 3")


@pytest.mark.seed("002-29")
def test_a_subscriber_of_three_instances_sees_each_message_once() -> None:
    """It begins now, in the middle of what there is, and goes to the next one again and again: as a
    connection that is lost, and as a program with a stored vector, while publishers fail over."""
    with Instances(3) as instances:
        a, b, c = instances.peers
        with connect([a.url, b.url, c.url], "p1") as one, connect([b.url, c.url], "p2") as two:
            publish(one, SOME)
            publish(two, SOME, SOME)
            for client in (one, two):
                client.flush(timeout=WAIT_S)
            instances.until_equal(2 * SOME)
            vector, seen = None, []
            for turn, peer in enumerate((a, b, c, a, c, b)):
                with connect(peer.url, "s") as client:
                    found = client.subscribe("t", since=vector, bookmark_wait="60s")
                    first = (turn + 2) * 2 * SOME
                    publish(one, SOME, first)
                    publish(two, SOME, first + SOME)
                    seen += [bytes(found.next(timeout=WAIT_S).data) for _ in range(SOME)]
                    vector = found.vector
            with connect(a.url, "s") as client:
                found = client.subscribe("t", since=vector, bookmark_wait="60s")
                seen += [
                    bytes(found.next(timeout=WAIT_S).data) for _ in range(12 * SOME - len(seen))
                ]
                with pytest.raises(ZBrokerError, match="timeout"):
                    found.next(timeout=1)
        assert len(set(seen)) == len(seen)
        assert min(map(int, seen)) == 4 * SOME
