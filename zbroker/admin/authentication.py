"""Which caller a token names: the admin, a reader of its numbers, or a principal with a session."""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path
from typing import Final, NamedTuple

from zbroker import durable_files
from zbroker.access.file import AccessFile
from zbroker.admin.core import ANONYMOUS, Caller
from zbroker.clock import Clock
from zbroker.errors import ClientError, ConfigError
from zbroker.server.disconnects_file import DisconnectsFile
from zbroker.wire import token

TOKEN_MAX_CHARS: Final = token.TOKEN_MAX_CHARS


class Secrets(NamedTuple):
    """admin, reader: the tokens of the files. key: of tokens of sessions."""

    admin: str
    reader: str
    key: bytes

    def __repr__(self) -> str:
        return "Secrets()"


class Doorkeeper:
    """Thread-safe: it changes nothing but by `look`."""

    def __init__(
        self, secrets: Secrets, access: AccessFile, clock: Clock, disconnects: DisconnectsFile
    ) -> None:
        self._secrets = secrets
        self._access = access
        self._clock = clock
        self._disconnects = disconnects

    @property
    def secured(self) -> bool:
        """True if security is on."""
        return self._access.access.on

    def who(self, shown: str) -> Caller:
        """The caller that `shown`, a token from a header, names."""
        if not shown:
            return ANONYMOUS
        if _same(shown, self._secrets.admin):
            return Caller("admin.token", known=True, reads=True, writes=True)
        if _same(shown, self._secrets.reader):
            return Caller("admin-read.token", known=True, reads=True)
        if not self.secured:
            return ANONYMOUS
        if len(shown) > TOKEN_MAX_CHARS:
            return Caller(problem="this is not a token")
        return self._session(shown)

    def _session(self, shown: str) -> Caller:
        try:
            said = token.verify(self._secrets.key, shown, self._clock.wall_ns() / 1e9)
            self._disconnects.known.check(said)
            access, principal = self._access.access, said.principal
            if not principal or not access.holds(principal, said.key):
                return Caller(problem="the key of this session is not in the access file any more")
            access.check_name(principal, said.name)
        except ClientError as error:
            return Caller(problem=error.reason)
        return Caller(
            principal,
            known=True,
            reads=access.may(principal, "admin_read"),
            writes=access.may(principal, "admin_write"),
        )


def _same(shown: str, secret: str) -> bool:
    """In constant time; nothing is the same as no secret."""
    return bool(secret) and hmac.compare_digest(shown.encode(), secret.encode())


def make(path: Path) -> str:
    """Writes a new one. Raises: ConfigError."""
    token = secrets.token_hex(32)
    try:
        durable_files.replace(path, token.encode())
    except OSError as error:
        reason = f"the token of the admin cannot be written: {path}: {error.strerror}"
        raise ConfigError("bad_config", reason, "see instance.data_dir") from None
    return token
