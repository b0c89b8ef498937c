"""Checks of the settings, of keys and of the access file: whether clients can log on at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zbroker.access import file as access_files
from zbroker.access import keys
from zbroker.access.core import Access
from zbroker.access.format import parse
from zbroker.cli.doctor.case import Case, Finding, quoted
from zbroker.config import Config
from zbroker.control.contexts import Login
from zbroker.errors import ConfigError

_NO_LOGON = "nothing can log on with these credentials"
_NO_START = "the instance does not start; nothing is open to anybody meanwhile"


def settings(case: Case) -> Iterator[Finding]:
    """Whether an instance could start with it."""
    error, path = case.config_error, case.target.config_path
    if error is None:
        return
    check = f"zbroker config check -c {quoted(path)}" if path else "zbroker config check"
    yield Finding(
        error.reason,
        "an instance does not start with it; one that runs goes on with what it read before",
        f"{error.hint}; then {check}" if error.hint else check,
    )


def security_key(_: Case, config: Config) -> Iterator[Finding]:
    """Whether the instance can use its own key."""
    try:
        if config.security.on:
            keys.load_secret(Path(config.security.key))
    except ConfigError as error:
        yield Finding(error.reason, _NO_START, error.hint)


def access_file(_: Case, config: Config) -> Iterator[Finding]:
    """Whether the rules can be read."""
    path = config.security.access
    if not path:
        return
    try:
        _rules(path)
    except ConfigError as error:
        means = "an instance that runs keeps the rules it read before; it does not start with these"
        fix = f"{error.hint}; then zbroker-admin access check {quoted(path)}"
        yield Finding(error.reason, means, fix.removeprefix("; then "))


def client_key(case: Case) -> Iterator[Finding]:
    """Whether a broker with these settings would know who has these credentials."""
    login = case.target.login
    if login is None or not login.given:
        return
    try:
        credentials = login.credentials()
        curve = credentials.curve() if credentials else None
    except ConfigError as error:
        yield Finding(error.reason, _NO_LOGON, error.hint)
        return
    if curve is not None and case.config is not None and case.config.security.on:
        yield from _known(login, curve.public.decode(), curve.server.decode(), case.config)


def _known(login: Login, public: str, server: str, config: Config) -> Iterator[Finding]:
    try:
        own = keys.load_public(Path(config.security.key))
        rules = _rules(config.security.access)
    except ConfigError:
        return  # findings of their own
    access = quoted(config.security.access)
    if server != own:
        yield Finding(
            "the server key of the credentials is not that of the instance",
            f"{_NO_LOGON}; connections end at their handshake",
            f"zbroker-admin key show {quoted(config.security.key)} prints the right one",
        )
    principals = rules.principals_of(public)
    if not principals:
        yield Finding(
            f"the key of {login.key} belongs to no principal of {config.security.access}",
            f"{_NO_LOGON}; connections end at their handshake",
            f"add {public!r} to `keys` of a principal, then zbroker-admin access check {access}",
        )
    elif login.user and login.user not in principals:
        yield Finding(
            f"the key of {login.key} is not one of the principal {login.user!r}",
            f"{_NO_LOGON}: auth_failed",
            f"add {public!r} to its `keys`, then zbroker-admin access check {access}",
        )


def _rules(path: str) -> Access:
    """Raises: ConfigError."""
    text, _ = access_files.read(Path(path))
    return parse(text, path)
