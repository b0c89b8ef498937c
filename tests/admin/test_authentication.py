"""zbroker/admin/authentication.py: tokens, and the callers they name."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.admin.test_audit import Clock
from zbroker.access.file import AccessFile
from zbroker.admin import authentication
from zbroker.admin.authentication import Doorkeeper, Secrets
from zbroker.admin.core import ANONYMOUS, Caller
from zbroker.errors import ConfigError
from zbroker.server.disconnects_file import DisconnectsFile
from zbroker.wire import token

LOG = logging.getLogger("test")
KEY = b"k" * 32
ANN, BOB, EVE = ("a" * 40, "b" * 40, "e" * 40)
RULES = """
[principal.ann]
keys = ["{ann}"]
roles = ["operator"]

[principal.bob]
keys = ["{bob}"]
roles = ["watcher"]

[principal.eve]
keys = ["{eve}"]
roles = []

[[role.operator.allow]]
actions = ["admin_read", "admin_write"]

[[role.watcher.allow]]
actions = ["admin_read"]
"""


class Bench:
    def __init__(self, data: Path, *, secured: bool = True) -> None:
        self.path = data / "access.toml"
        self.clock = Clock()
        self.clock.ms = 1_000_000
        self.write(RULES)
        path = self.path if secured else None
        self.file = AccessFile(path, self.clock, LOG)
        self.disconnects = DisconnectsFile(data / "disconnects.json", LOG)
        self.doorkeeper = Doorkeeper(
            Secrets("adm1n", "r3ad", KEY), self.file, self.clock, self.disconnects
        )

    def write(self, text: str) -> None:
        self.path.write_text(text.format(ann=ANN, bob=BOB, eve=EVE))
        self.path.chmod(0o600)

    def look(self) -> None:
        """As often as it takes to believe that the file is whole."""
        for _ in range(3):
            self.clock.ms += 1_000
            self.file.look(self.clock.ms)

    def session(self, principal: str, key: str, expires_s: int = 2_000, sign: bytes = KEY,
                name: str = "") -> Caller:  # fmt: skip
        said = token.Token(name or principal, principal, "i", 7, expires_s, key)
        return self.doorkeeper.who(token.make(sign, said))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def may(who: Caller) -> tuple[bool, bool, bool]:
    return who.known, who.reads, who.writes


def test_the_tokens_of_the_files(bench: Bench) -> None:
    assert bench.doorkeeper.secured
    assert may(bench.doorkeeper.who("adm1n")) == (True, True, True)
    assert may(bench.doorkeeper.who("r3ad")) == (True, True, False)
    assert bench.doorkeeper.who("") == ANONYMOUS


@pytest.mark.parametrize("shown", ["adm1", "adm1n ", "Adm1n", "\xe9", "x" * 10_000, "a.b", "."])
def test_what_is_no_token_is_no_one(bench: Bench, shown: str) -> None:
    who = bench.doorkeeper.who(shown)
    assert may(who) == (False, False, False)
    assert who.problem
    assert shown not in who.problem or len(shown) < 3


def test_a_session_may_what_its_principal_may(bench: Bench) -> None:
    assert bench.session("ann", ANN) == Caller("ann", True, True, True)
    assert bench.session("bob", BOB) == Caller("bob", True, True, False)
    assert bench.session("eve", EVE) == Caller("eve", True, False, False)


def test_a_session_of_another_key_counts_for_nothing(bench: Bench) -> None:
    for who in (bench.session("ann", BOB), bench.session("ann", ""), bench.session("", ANN)):
        assert may(who) == (False, False, False)
    assert may(bench.session("nobody", ANN)) == (False, False, False)


def test_a_session_has_an_end(bench: Bench) -> None:
    assert may(bench.session("ann", ANN, expires_s=1_001)) == (True, True, True)
    who = bench.session("ann", ANN, expires_s=1_000)
    assert (who.known, who.problem) == (False, "the token has expired")


def test_what_another_instance_signed_counts_for_nothing(bench: Bench) -> None:
    assert may(bench.session("ann", ANN, sign=b"x" * 32)) == (False, False, False)


def test_a_grant_that_is_taken_back_is_gone_at_once(bench: Bench) -> None:
    bench.write(RULES.replace('roles = ["operator"]', "roles = []"))
    bench.look()
    assert may(bench.session("ann", ANN, 9_000)) == (True, False, False)


def test_a_key_that_is_taken_back_ends_its_sessions(bench: Bench) -> None:
    bench.write(RULES.replace("{ann}", "c" * 40))
    bench.look()
    assert may(bench.session("ann", ANN, 9_000)) == (False, False, False)


def test_a_session_ends_when_an_operator_disconnects_its_client(bench: Bench) -> None:
    bench.disconnects.add("ann")
    assert may(bench.session("ann", ANN)) == (False, False, False)
    assert may(bench.session("bob", BOB)) == (True, True, False)


def test_a_session_counts_as_long_as_its_principal_may_use_its_name(bench: Bench) -> None:
    assert may(bench.session("ann", ANN, name="ann-7")) == (True, True, True)
    assert may(bench.session("ann", ANN, name="bob-7")) == (False, False, False)


def test_without_security_a_session_proves_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, secured=False)
    assert not bench.doorkeeper.secured
    assert bench.session("", "") == ANONYMOUS
    assert bench.session("ann", ANN) == ANONYMOUS
    assert may(bench.doorkeeper.who("adm1n")) == (True, True, True)


def test_a_secret_that_is_missing_lets_no_one_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    empty = Doorkeeper(Secrets("", "", KEY), bench.file, bench.clock, bench.disconnects)
    assert not empty.who("").known
    assert "adm1n" not in repr(Secrets("adm1n", "r3ad", KEY))


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    secret = authentication.make(path)
    assert path.read_text() == secret
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(secret) == 64


def test_each_start_has_another_one(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    path.write_text("old")
    path.chmod(0o644)
    assert authentication.make(path) != authentication.make(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        authentication.make(tmp_path / "missing" / "admin.token")
