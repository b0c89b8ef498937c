"""What a client shows a broker (zbroker/client/connect_types.py)."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path

import pytest

from zbroker.access import keys
from zbroker.client.connect_types import Credentials
from zbroker.errors import ConfigError


def test_the_server_is_a_key_or_a_file(tmp_path: Path) -> None:
    mine, server = keys.make(tmp_path / "me"), keys.make(tmp_path / "broker")
    secret = tmp_path / "me.key_secret"
    for named in (server.public, tmp_path / "broker.key", str(tmp_path / "broker.key")):
        curve = Credentials(secret, named).curve()
        assert curve == (mine.public.encode(), mine.secret.encode(), server.public.encode())


def test_a_file_that_looks_like_a_key_is_a_file(tmp_path: Path) -> None:
    place = tmp_path / "deep"
    place.mkdir()
    server = keys.make(place / "broker")
    keys.make(tmp_path / "me")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        path = "./" * 12 + "deep//broker.key"
        assert keys.is_key(path), "it could be taken for a key"
        assert Credentials("me.key_secret", path).curve().server == server.public.encode()
    finally:
        os.chdir(before)


def test_another_process_gets_no_secret_key(tmp_path: Path) -> None:
    mine, server = keys.make(tmp_path / "me"), keys.make(tmp_path / "broker")
    sent = pickle.dumps(Credentials(tmp_path / "me.key_secret", server.public, "ann", "pw"))
    assert mine.secret.encode() not in sent
    assert pickle.loads(sent).curve().secret == mine.secret.encode()


def test_a_logon_says_what_there_is() -> None:
    assert Credentials("k", "s").given() is None
    assert Credentials("k", "s", "ann").given() == {"user": "ann"}
    assert Credentials("k", "s", "ann", "pw").given() == {"user": "ann", "password": "pw"}


def test_they_never_change() -> None:
    credentials = Credentials("k", "s")
    with pytest.raises(dataclasses.FrozenInstanceError):
        credentials.user = "x"  # type: ignore[misc]


def test_they_do_not_show_a_secret(tmp_path: Path) -> None:
    mine = keys.make(tmp_path / "me")
    credentials = Credentials(tmp_path / "me.key_secret", mine.public, "ann", "hunter2")
    shown = f"{credentials} {credentials!r} {credentials.curve()!r}"
    assert "ann" in shown
    assert "hunter2" not in shown
    assert mine.secret not in shown


@pytest.mark.parametrize(
    ("key", "server", "reason"),
    [
        (None, "0" * 40, "have no `key`"),
        ("none.key_secret", "0" * 40, "none.key_secret: No such file"),
        ("me.key_secret", "short", "neither 40 characters of Z85 nor a file"),
        ("me.key_secret", "none.key", "none.key: No such file"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, key: str | None, server: str, reason: str
) -> None:
    keys.make(tmp_path / "me")
    here = {name: str(tmp_path / name) for name in ("me.key_secret", "none.key_secret", "none.key")}
    with pytest.raises(ConfigError, match=reason) as caught:
        Credentials(here.get(key or "", key), here.get(server, server)).curve()
    assert caught.value.hint


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    mine = keys.make(tmp_path / "me")
    (tmp_path / "me.key_secret").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Credentials(tmp_path / "me.key_secret", mine.public).curve()
