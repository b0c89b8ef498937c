"""An instance on IPv6: clients of all kinds, keys, and strangers that are cut."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.process.floods import LISTEN_V6, Stranger
from tests.process.load import processes, until
from tests.process.secured import Secured
from zbroker.client import connect
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

WAIT_S = 30.0
CONNECTIONS = 20


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not has_ipv6(), reason="other system: no IPv6"),
]


def test_publishers_subscribers_consumers_and_the_admin_meet_on_ipv6() -> None:
    settings = {"listen": LISTEN_V6, "queue": [{"name": "work", "topic": "t"}]}
    with LocalBroker(settings=settings) as broker:
        assert broker.url.startswith("tcp://[::1]:")
        with connect(broker.url, "everything") as client:
            client.publish("t", b"hello").wait(WAIT_S)
            message = client.subscribe("t", since="epoch").next(WAIT_S)
            assert message is not None
            assert message.data == b"hello"
            with client.consume("work") as consumer:
                [given] = consumer.fetch(1, timeout=WAIT_S)
                assert given.data == b"hello"
                given.ack()
            address = broker.ask("/clients")["clients"][0]["address"]
            assert address.startswith("[::1]:")
        command = [sys.executable, "-m", "zbroker.cli.admin_main", "--data-dir",
                   str(broker.data_dir), "--json", "status"]  # fmt: skip
        reported = subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
        assert json.loads(reported.stdout)["endpoints"]["admin"].startswith("http://[::1]:")


def test_keys_are_asked_for_on_ipv6(tmp_path: Path) -> None:
    with Secured(tmp_path, {"ann": ["everything"]}, "", listen=LISTEN_V6) as secured:
        with secured.connect("ann") as ann:
            ann.publish("t", b"known").wait(WAIT_S)
        with pytest.raises(ZBrokerError):
            connect(secured.url, "stranger", timeout=2)
        until(lambda: secured.broker.ask("/health") is not None, "it is healthy")


def test_a_listener_for_everybody_has_both_kinds() -> None:
    everywhere = dict.fromkeys(("ingest", "delivery", "queues"), "tcp://[::]:0")
    settings = {"listen": everywhere, "security": {"allow_unauthenticated": True}}
    with LocalBroker(settings=settings) as broker:
        port = broker.url.rpartition(":")[2]
        for number, host in enumerate(("127.0.0.1", "[::1]")):
            with connect(f"tcp://{host}:{port}", f"client-{number}") as client:
                client.publish("t", b"%d" % number).wait(WAIT_S)
                seen = client.subscribe("t", since="epoch", until="now")
                assert [message.data for message in seen] == [b"0", b"1"][: number + 1]


def test_strangers_on_ipv6_are_cut_and_keep_no_one_out() -> None:
    settings = {"listen": LISTEN_V6, "limits": {"connections": CONNECTIONS}}
    with LocalBroker(settings=settings) as broker:
        before = processes(broker)
        endpoints = broker.status()["endpoints"]
        with ExitStack() as stack:
            for listener in ("ingest", "delivery", "queues"):
                for _ in range(3 * CONNECTIONS):
                    stack.callback(Stranger(endpoints[listener]).close)
            with connect(broker.url, "honest", timeout=WAIT_S) as client:
                client.publish("t", b"in the crowd").wait(WAIT_S)
                assert client.subscribe("t", since="epoch").next(WAIT_S) is not None
            until(lambda: broker.status()["ingest"].get("cut_over_limit", 0) > 0, "some were cut")
            until(lambda: broker.status()["delivery"].get("cut_over_limit", 0) > 0, "there, too")
        assert processes(broker) == before
