"""Why no broker answers (zbroker/client/link.py)."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.client.fakes import FakeBroker
from zbroker import aio
from zbroker.client import commit, connect, link
from zbroker.errors import ZBrokerError

FAR = 60.0  # a test that waits for that has failed


@pytest.fixture
def silent() -> Iterator[str]:
    """Something that listens, closes each connection at its first bytes, and is no ZeroMQ."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connection.close()
            except OSError:
                return  # the test is over

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def no_one() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def fails_to_look_up(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "reported by the resolver")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_a_host_without_an_address_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_to_look_up(monkeypatch, socket.EAI_NONAME)
    with pytest.raises(ZBrokerError, match="the host 'brokr' has no address") as caught:
        connect("tcp://brokr:9101", timeout=FAR)
    assert caught.value.code == "not_found"


def test_a_host_without_an_address_is_reported_to_a_task_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def try_it() -> None:
        fails_to_look_up(monkeypatch, socket.EAI_NONAME)
        await aio.connect("tcp://brokr:9101", timeout=FAR)

    with pytest.raises(ZBrokerError, match="the host 'brokr' has no address"):
        asyncio.run(try_it())


def test_a_resolver_that_is_away_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_to_look_up(monkeypatch, socket.EAI_AGAIN)
    assert link.impossible("tcp://broker:9101") is None
    reported = link.probe("tcp://broker:9101")
    assert reported == "the host 'broker' cannot be looked up: reported by the resolver"


def test_with_several_urls_none_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_to_look_up(monkeypatch, socket.EAI_NONAME)
    with FakeBroker() as broker, connect(["tcp://brokr:9101", broker.url], timeout=FAR) as client:
        assert client.url == broker.url


def test_a_port_where_no_one_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    url = no_one()
    assert link.probe(url) == f"no process listens on port {url.rpartition(':')[2]} there"
    with pytest.raises(ZBrokerError, match=r"timeout: .* no process listens on port"):
        connect(url, timeout=0.01)


def test_what_is_no_zeromq_is_named(silent: str) -> None:
    assert "does not speak ZeroMQ: clients connect to the ingest" in link.probe(silent)
    with pytest.raises(ZBrokerError, match=r"timeout: .* does not speak ZeroMQ"):
        connect(silent, timeout=0.01)


def test_a_broker_is_zeromq() -> None:
    with FakeBroker() as broker:
        assert link.probe(broker.url) == ""


@pytest.mark.parametrize("url", ["http://127.0.0.1:9105", "nonsense", "tcp://h:0", "::1"])
def test_a_wrong_url_is_an_error_of_its_own_everywhere(url: str) -> None:
    async def await_it() -> None:
        await aio.connect(url)

    for call in (
        lambda: connect(url),
        lambda: asyncio.run(await_it()),
        lambda: commit(url, "app", 1, {}),
    ):
        with pytest.raises(ZBrokerError) as caught:
            call()
        assert caught.value.code == "bad_url"
