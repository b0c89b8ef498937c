"""Both programs at an instance that has security on: by credentials, contexts and token files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zbroker import LocalBroker
from zbroker.access import keys
from zbroker.cli import admin_main, main
from zbroker.control import contexts
from zbroker.control.contexts import Context, Login

pytestmark = pytest.mark.process

ACCESS = """
[principal.ops]
keys = ["{ops}"]
roles = ["everything"]

[principal.feed]
keys = ["{feed}"]
roles = ["feed"]

[[role.everything.allow]]
actions = ["*"]

[[role.feed.allow]]
actions = ["publish", "admin_read"]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with keys and an access file."""
    folder = tmp_path_factory.mktemp("secured")
    made = {name: keys.make(folder / name) for name in ("broker", "ops", "feed", "stranger")}
    access = folder / "access.toml"
    access.touch(0o600)
    access.write_text(ACCESS.format(ops=made["ops"].public, feed=made["feed"].public))
    return folder


@pytest.fixture(scope="module")
def secured(place: Path) -> Iterator[LocalBroker]:
    security = {
        "key": str(place / "broker.key_secret"),
        "access": str(place / "access.toml"),
    }
    with LocalBroker(place / "data", settings={"security": security}) as broker:
        yield broker


def as_who(place: Path, broker: LocalBroker, name: str) -> None:
    """From now on commands are those of this principal."""
    login = Login(str(place / f"{name}.key_secret"), str(place / "broker.key"))
    contexts.save(name, Context(broker.url, "", "", login))
    contexts.use(name)


def admin(*arguments: str) -> Result:
    return CliRunner().invoke(admin_main.main, arguments)


def test_what_is_published_with_credentials_is_read_and_listed(
    place: Path, secured: LocalBroker
) -> None:
    as_who(place, secured, "ops")
    sent = CliRunner().invoke(main.main, ["pub", "orders"], input="one\ntwo\n")
    assert sent.exit_code == 0, sent.output
    read = CliRunner().invoke(main.main, ["sub", "orders", "--since", "epoch", "--limit", "2"])
    assert read.stdout == "one\ntwo\n"
    listed = json.loads(admin("--json", "topic", "ls").stdout)["topics"]
    assert "orders" in [row["topic"] for row in listed]


def test_a_principal_who_may_only_look_may_not_change(place: Path, secured: LocalBroker) -> None:
    as_who(place, secured, "feed")
    assert json.loads(admin("--json", "status").stdout)["state"] == "ready"
    refused = admin("client", "disconnect", "nobody")
    assert refused.exit_code == 1
    assert "not_entitled" in refused.stderr


def test_a_stranger_is_refused(place: Path, secured: LocalBroker) -> None:
    as_who(place, secured, "stranger")
    refused = admin("status")
    assert refused.exit_code == 1
    assert "does not accept the key" in refused.stderr
    assert admin("check").exit_code == 3


def test_who_shows_nothing_is_asked_to(secured: LocalBroker) -> None:
    refused = admin("--url", secured.url, "status")
    assert "wants to know who you are" in refused.stderr


def test_the_user_of_the_instance_needs_no_key(secured: LocalBroker) -> None:
    for command in (["status"], ["topic", "ls"], ["subscription", "ls"], ["top", "--once"]):
        assert admin("--data-dir", str(secured.data_dir), *command).exit_code == 0
