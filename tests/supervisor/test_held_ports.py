"""zbroker/supervisor/held_ports.py: ports stay ours while a process is down."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import zmq

from zbroker import endpoints
from zbroker.errors import ConfigError
from zbroker.supervisor.held_ports import HeldPorts


@pytest.fixture
def ports() -> Iterator[HeldPorts]:
    ports = HeldPorts(pause=lambda _: None)
    yield ports
    ports.close()


def test_port_0_becomes_a_concrete_one(ports: HeldPorts) -> None:
    assert endpoints.split(ports.hold("listen.ingest", "tcp://127.0.0.1:0")).port > 0


def test_a_process_can_listen_on_a_held_port_again_and_again(ports: HeldPorts) -> None:
    endpoint = ports.hold("listen.ingest", "tcp://127.0.0.1:0")
    for _ in range(2):
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()  # a process of its own, as it were
        try:
            router = context.socket(zmq.ROUTER)
            router.bind(endpoint)
        finally:
            context.destroy(linger=0)


def test_no_one_else_gets_a_held_port(ports: HeldPorts) -> None:
    port = endpoints.split(ports.hold("listen.ingest", "tcp://*:0")).port
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


def test_a_port_that_another_program_uses_is_a_config_error(ports: HeldPorts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"`listen\.ingest`: cannot listen on tcp:") as caught:
            ports.hold("listen.ingest", endpoint)
    assert "0 picks a free one" in caught.value.hint


def test_a_port_of_a_process_that_is_being_killed_is_waited_for() -> None:
    other = socket.create_server(("127.0.0.1", 0))
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            other.close()

    ports = HeldPorts(pause)
    endpoint = f"tcp://127.0.0.1:{other.getsockname()[1]}"
    assert ports.hold("listen.admin", endpoint) == endpoint
    assert len(pauses) == 3
    ports.close()


def test_an_address_of_another_host_is_a_config_error(ports: HeldPorts) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        ports.hold("listen.ingest", "tcp://192.0.2.77:0")


def test_the_name_of_an_interface_is_left_to_the_process(ports: HeldPorts) -> None:
    assert ports.hold("listen.ingest", "tcp://no-such-if:0") == "tcp://no-such-if:0"


def test_a_closed_port_is_free_again(ports: HeldPorts) -> None:
    port = endpoints.split(ports.hold("listen.ingest", "tcp://127.0.0.1:0")).port
    ports.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
