"""zbroker/control/logon.py: where the admin is, by a logon at an ingest door."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils import z85

from zbroker import sockets
from zbroker.access import keys
from zbroker.control import logon
from zbroker.control.contexts import Login
from zbroker.control.logon import AdminSession, log_on
from zbroker.errors import ZBrokerError
from zbroker.wire import codec
from zbroker.wire import messages as m

ADMIN = "http://127.0.0.1:9105"
POLL_MS = 20


class Door:
    """An ingest door: answers logons as it is told to, with CURVE if it has keys."""

    def __init__(self, pair: keys.KeyPair | None = None, allowed: str = "") -> None:
        self.logons: list[m.Logon] = []
        self.answer: Any = m.Ack(type="processed", cid="1", endpoints={"admin": ADMIN}, token="tok")
        self._allowed = allowed
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind("inproc://zeromq.zap.01")
        curve = sockets.ServerCurve(pair.public.encode(), pair.secret.encode()) if pair else None
        self._router = sockets.public_router(self._context, 100_000, 100, curve)
        self.url = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            if self._zap.poll(0):
                request = self._zap.recv_multipart()
                known = z85.encode(request[6]).decode() == self._allowed
                status = b"200" if known else b"400"
                self._zap.send_multipart([b"1.0", request[1], status, b"", b"", b""])
            if self._router.poll(POLL_MS):
                rid, frame = self._router.recv_multipart()[:2]
                command = codec.decode(codec.INGEST, frame)
                if isinstance(command, m.Logon):
                    self.logons.append(command)
                    self._router.send_multipart([rid, codec.encode(self.answer)])

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._context.destroy(linger=0)


@pytest.fixture
def broker_keys(tmp_path: Path) -> keys.KeyPair:
    return keys.make(tmp_path / "broker")


@pytest.fixture
def client_keys(tmp_path: Path) -> keys.KeyPair:
    return keys.make(tmp_path / "client")


@pytest.fixture
def plain() -> Iterator[Door]:
    door = Door()
    yield door
    door.close()


@pytest.fixture
def secured(broker_keys: keys.KeyPair, client_keys: keys.KeyPair) -> Iterator[Door]:
    door = Door(broker_keys, client_keys.public)
    yield door
    door.close()


def login(folder: Path, key: str = "client", **more: str) -> Login:
    return Login(str(folder / f"{key}.key_secret"), str(folder / "broker.key"), **more)


def test_the_answer_says_where_the_admin_is(plain: Door) -> None:
    assert log_on(plain.url) == AdminSession(ADMIN, "tok")
    assert plain.logons[0].client.startswith("zbroker-admin-")
    assert plain.logons[0].credentials is None


def test_a_session_does_not_show_its_token() -> None:
    assert "secret" not in repr(AdminSession(ADMIN, "secret"))


def test_credentials_are_shown_over_an_encrypted_connection(secured: Door, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("pass\n")
    made = login(tmp_path, user="ann", password_file=str(password)).credentials()
    assert log_on(secured.url, made) == AdminSession(ADMIN, "tok")
    assert secured.logons[0].credentials == {"user": "ann", "password": "pass"}


@pytest.mark.usefixtures("client_keys")
def test_a_key_that_is_not_known_is_refused_at_once(secured: Door, tmp_path: Path) -> None:
    keys.make(tmp_path / "stranger")
    with pytest.raises(ZBrokerError, match="does not know this key"):
        log_on(secured.url, login(tmp_path, "stranger").credentials())
    assert secured.logons == []


def test_who_has_no_credentials_is_told_to_give_them(secured: Door) -> None:
    with pytest.raises(ZBrokerError) as caught:
        log_on(secured.url)
    assert caught.value.code == "auth_failed"
    assert "--context" in caught.value.hint


@pytest.mark.usefixtures("broker_keys", "client_keys")
def test_credentials_are_not_shown_to_a_broker_that_does_not_encrypt(
    plain: Door, tmp_path: Path
) -> None:
    with pytest.raises(ZBrokerError, match="does not encrypt"):
        log_on(plain.url, login(tmp_path).credentials())
    assert plain.logons == []


def test_nothing_is_shown_to_another_broker(
    secured: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logon, "TIMEOUT_S", 0.5)
    other = keys.make(tmp_path / "other")
    wrong = Login(str(tmp_path / "client.key_secret"), other.public)
    with pytest.raises(ZBrokerError):
        log_on(secured.url, wrong.credentials())
    assert secured.logons == []


def test_a_refusal_has_the_words_of_the_broker(plain: Door) -> None:
    plain.answer = m.Error(code="not_entitled", reason="not you", hint="go", cid="1")
    with pytest.raises(ZBrokerError) as caught:
        log_on(plain.url)
    assert (caught.value.code, caught.value.reason) == ("not_entitled", "not you")


def test_a_broker_that_does_not_say_where_its_admin_is(plain: Door) -> None:
    plain.answer = m.Ack(type="processed", cid="1")
    with pytest.raises(ZBrokerError, match="does not say"):
        log_on(plain.url)


def test_what_is_no_url_is_said() -> None:
    with pytest.raises(ZBrokerError, match="bad_url"):
        log_on("nowhere")
