"""zbroker/control/target.py: which token is shown to an admin, and when it is asked for again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils import z85

from tests.cli.admins import TOKEN, FakeAdmin
from zbroker import sockets
from zbroker.access import keys
from zbroker.control import target
from zbroker.control.contexts import Login
from zbroker.control.target import Admin, AdminSession, Target, log_on
from zbroker.errors import ZBrokerError
from zbroker.wire import codec
from zbroker.wire import messages as m


def target_of(fake: FakeAdmin) -> Target:
    return Target(None, None, str(fake.data), False)


def test_reading_shows_no_token_where_none_is_wanted(fake: FakeAdmin) -> None:
    (fake.data / "run" / "admin.token").unlink()
    assert target_of(fake).ask("/status")["state"] == "ready"
    assert fake.asked == ["/status"]


def test_reading_shows_the_token_of_readers_where_one_is_wanted(fake: FakeAdmin) -> None:
    fake.readers = {"reader"}
    (fake.data / "run" / "admin-read.token").write_text("reader\n")
    target = target_of(fake)
    assert target.ask("/status")["state"] == "ready"
    assert target.ask("/status")["state"] == "ready"
    assert len(fake.asked) == 3  # it is kept


def test_a_token_that_was_made_again_is_read_again(fake: FakeAdmin) -> None:
    fake.readers = {"second"}
    (fake.data / "run" / "admin-read.token").write_text("second\n")
    admin = Admin(fake.url, fake.data, token="first")
    assert admin.ask("/status")["state"] == "ready"


def test_without_any_token_the_refusal_says_what_to_give(fake: FakeAdmin) -> None:
    fake.readers = {"reader"}
    with pytest.raises(ZBrokerError) as caught:
        Admin(fake.url).ask("/status")
    assert caught.value.code == "auth_failed"
    assert "--key" in caught.value.hint


def test_a_token_that_is_not_there_is_said_with_its_path(fake: FakeAdmin) -> None:
    fake.readers = {"reader"}
    with pytest.raises(ZBrokerError, match=r"admin-read\.token is not there"):
        target_of(fake).ask("/status")


def test_changing_shows_the_token_of_the_owner(fake: FakeAdmin) -> None:
    fake.answers["POST /x"] = {"id": 1}
    assert target_of(fake).admin().tell("/x", {"a": 1}) == {"id": 1}
    assert fake.reported == [("/x", {"a": 1})]


def test_the_directory_of_the_token_is_asked_for_where_it_is_not_known(fake: FakeAdmin) -> None:
    fake.answers["POST /x"] = {"id": 1}
    assert Admin(fake.url).tell("/x", {}) == {"id": 1}


@pytest.mark.parametrize("writes", [False, True])
def test_a_session_that_ended_is_begun_again_once(fake: FakeAdmin, writes: bool) -> None:
    fake.readers = {"new"}
    fake.answers["POST /x"] = {"id": 1}
    logons: list[str] = []

    def log_on() -> str:
        logons.append("new")
        return "new"

    admin = Admin(fake.url, None, log_on, "old")
    if writes:
        assert admin.tell("/x", {}) == {"id": 1}
    else:
        assert admin.ask("/status")["state"] == "ready"
    assert logons == ["new"]
    admin.ask("/status")
    assert logons == ["new"]


def test_a_session_that_is_refused_again_is_an_error(fake: FakeAdmin) -> None:
    fake.readers = {"another"}
    with pytest.raises(ZBrokerError, match="auth_failed"):
        Admin(fake.url, None, lambda: "new", "old").ask("/status")


def test_tokens_are_not_shown_by_repr(fake: FakeAdmin) -> None:
    assert TOKEN not in repr(Admin(fake.url, fake.data, lambda: TOKEN, TOKEN))
    assert "old" not in repr(Target("u", None, None, False, None, Admin("b", token="old")))


ADMIN = "http://127.0.0.1:9105"
POLL_MS = 20


class Listener:
    """An ingest listener: answers logons as it is asked to, with CURVE if it has keys."""

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
def plain() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def secured(broker_keys: keys.KeyPair, client_keys: keys.KeyPair) -> Iterator[Listener]:
    listener = Listener(broker_keys, client_keys.public)
    yield listener
    listener.close()


def login(folder: Path, key: str = "client", **more: str) -> Login:
    return Login(str(folder / f"{key}.key_secret"), str(folder / "broker.key"), **more)


def test_the_answer_says_where_the_admin_is(plain: Listener) -> None:
    assert log_on(plain.url) == AdminSession(ADMIN, "tok")
    assert plain.logons[0].client.startswith("zbroker-admin-")
    assert plain.logons[0].credentials is None


def test_a_session_does_not_show_its_token() -> None:
    assert "secret" not in repr(AdminSession(ADMIN, "secret"))


def test_credentials_are_shown_over_an_encrypted_connection(
    secured: Listener, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("pass\n")
    made = login(tmp_path, user="ann", password_file=str(password)).credentials()
    assert log_on(secured.url, made) == AdminSession(ADMIN, "tok")
    assert secured.logons[0].credentials == {"user": "ann", "password": "pass"}


@pytest.mark.usefixtures("client_keys")
def test_a_key_that_is_not_known_is_refused_at_once(secured: Listener, tmp_path: Path) -> None:
    keys.make(tmp_path / "stranger")
    with pytest.raises(ZBrokerError, match="does not accept the key"):
        log_on(secured.url, login(tmp_path, "stranger").credentials())
    assert secured.logons == []


def test_who_has_no_credentials_is_asked_to_give_them(secured: Listener) -> None:
    with pytest.raises(ZBrokerError) as caught:
        log_on(secured.url)
    assert caught.value.code == "auth_failed"
    assert "--context" in caught.value.hint


@pytest.mark.usefixtures("broker_keys", "client_keys")
def test_credentials_are_not_shown_to_a_broker_that_does_not_encrypt(
    plain: Listener, tmp_path: Path
) -> None:
    with pytest.raises(ZBrokerError, match="does not encrypt"):
        log_on(plain.url, login(tmp_path).credentials())
    assert plain.logons == []


def test_nothing_is_shown_to_another_broker(
    secured: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "LOGON_TIMEOUT_S", 0.5)
    other = keys.make(tmp_path / "other")
    wrong = Login(str(tmp_path / "client.key_secret"), other.public)
    with pytest.raises(ZBrokerError, match="ends each connection at its handshake"):
        log_on(secured.url, wrong.credentials())
    assert secured.logons == []


def test_a_refusal_has_the_words_of_the_broker(plain: Listener) -> None:
    plain.answer = m.Error(code="not_entitled", reason="not you", hint="go", cid="1")
    with pytest.raises(ZBrokerError) as caught:
        log_on(plain.url)
    assert (caught.value.code, caught.value.reason) == ("not_entitled", "not you")


def test_a_broker_that_does_not_say_where_its_admin_is(plain: Listener) -> None:
    plain.answer = m.Ack(type="processed", cid="1")
    with pytest.raises(ZBrokerError, match="does not say"):
        log_on(plain.url)


def test_what_is_no_url_is_said() -> None:
    with pytest.raises(ZBrokerError, match="bad_url"):
        log_on("nowhere")
