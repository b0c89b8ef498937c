"""zbroker/cli/options.py: where `zbroker pub`, `sub` and `bench` connect to, and as whom."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

import zbroker
from zbroker.cli.main import main
from zbroker.control import contexts
from zbroker.control.contexts import Context, Login
from zbroker.errors import ZBrokerError

URL = "tcp://h:1"
LOGIN = Login("/k/me.key_secret", "/k/broker.key", "ann")


class Connected(Exception):
    """Where somebody wanted to connect to."""


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(url: str, name: str | None = None, **options: Any) -> None:
        raise Connected(url, options)

    monkeypatch.setattr(zbroker, "connect", connect)


def reached(*arguments: str) -> tuple[str, Any]:
    """The URL and the credentials with which a command connects."""
    result = CliRunner().invoke(main, arguments, input="")
    assert isinstance(result.exception, Connected), result.output
    url, options = result.exception.args
    return url, options.get("credentials")


@pytest.mark.parametrize("command", [("pub", "orders"), ("sub", "orders"), ("bench",)])
class TestEveryCommand:
    def test_a_url_is_all_that_is_needed(self, command: tuple[str, ...]) -> None:
        assert reached(command[0], URL, *command[1:]) == (URL, None)

    def test_a_context_may_stand_for_the_url(self, command: tuple[str, ...]) -> None:
        contexts.save("far", Context(URL, "", "", LOGIN))
        url, credentials = reached(*command, "--context", "far")
        assert url == URL
        assert str(credentials.key) == LOGIN.key
        assert (credentials.server, credentials.user) == (LOGIN.server, "ann")

    def test_the_one_in_use_counts(self, command: tuple[str, ...]) -> None:
        contexts.save("far", Context(URL))
        contexts.use("far")
        assert reached(*command) == (URL, None)

    def test_options_win(self, command: tuple[str, ...]) -> None:
        contexts.save("far", Context(URL, "", "", LOGIN))
        url, credentials = reached(
            command[0], "tcp://other:1", *command[1:], "--context", "far", "--key", "/k/own"
        )
        assert (url, str(credentials.key)) == ("tcp://other:1", "/k/own")

    def test_keys_can_be_given_by_options(self, command: tuple[str, ...]) -> None:
        options = ["--key", "/k", "--server-key", "/s.key"]
        _, credentials = reached(command[0], URL, *command[1:], *options)
        assert (str(credentials.key), credentials.server) == ("/k", "/s.key")

    def test_without_a_url_and_context_it_is_wrong_usage(self, command: tuple[str, ...]) -> None:
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2
        assert "give the URL of a broker" in result.stderr

    def test_half_of_the_keys_is_an_error(self, command: tuple[str, ...]) -> None:
        result = CliRunner().invoke(main, [command[0], URL, *command[1:], "--key", "/k"])
        assert result.exit_code == 78
        assert "--server-key is missing" in result.stderr

    def test_an_unknown_context_is_not_found(self, command: tuple[str, ...]) -> None:
        assert CliRunner().invoke(main, [*command, "--context", "no"]).exit_code == 3


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_a_url_alone_lacks_its_topic(command: str) -> None:
    result = CliRunner().invoke(main, [command, URL])
    assert result.exit_code == 2
    assert "Missing argument 'TOPIC'" in result.stderr


def test_an_error_of_connecting_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(url: str, name: str | None = None) -> None:
        raise ZBrokerError("auth_failed", "no")

    monkeypatch.setattr(zbroker, "connect", connect)
    assert CliRunner().invoke(main, ["pub", URL, "orders"]).exit_code == 1
