"""What `connect` is given and reports: credentials, the choice of a broker, connection states."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from zbroker import endpoints
from zbroker.access.keys import PUBLIC_SUFFIX, SECRET_SUFFIX, is_key, load_public, load_secret
from zbroker.errors import ConfigError, ZBrokerError
from zbroker.sockets import Curve


class ServerChooser(Protocol):
    """What `connect` takes in place of URLs. Called by one thread at a time; must not wait."""

    def choose(self) -> str:
        """The URL to try now."""

    def connected(self, url: str) -> None:
        """That one gave a session."""

    def failed(self, url: str, error: ZBrokerError | None) -> None:
        """That one gave no session, or the session was lost. `error`: what it said, if anything."""


class ListChooser:
    """Stays with a URL for as long as it works, then goes on to the next one, in a circle."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Raises: ZBrokerError bad_field, bad_url."""
        if not urls:
            raise ZBrokerError("bad_field", "no URL was given")
        self.urls = tuple(map(endpoints.ingest_url, urls))
        self._at = 0

    def choose(self) -> str:
        return self.urls[self._at]

    def connected(self, url: str) -> None:
        """Nothing: it stays where it is."""

    def failed(self, url: str, error: ZBrokerError | None) -> None:
        del error
        if url == self.urls[self._at]:
            self._at = (self._at + 1) % len(self.urls)


Name = Literal[
    "connecting",
    "logged_on",
    "republished",
    "resubscribed",
    "broker_behind",
    "disconnected",
    "closed",
]


class ConnectionState(Struct, frozen=True):
    """What became of a client's connection, and to which URL.

    connecting: it is tried. logged_on: there is a session; what the store holds is being sent.
    republished: all of that is settled, also what was queued and had no number yet; left out if
    nothing was owed. resubscribed: the subscriptions of a connection that was
    lost are there again. broker_behind: this broker lacks what was acknowledged (`error`), and the
    client goes on as was wished. disconnected: the session is lost; a new one is sought. closed:
    nothing more is published; `error` says why.
    """

    name: Name
    url: str
    error: ZBrokerError | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity of a client, and which broker it trusts.

    key: the client's own NAME.key_secret. server: the broker's public key, 40 characters of Z85,
    or its NAME.key. user: needed where several share a key. password: of that user.
    The files are read when the client connects, in each process, so credentials may be sent to
    other processes; a password goes with them, a secret key does not.
    """

    key: str | os.PathLike[str] | None
    server: str | os.PathLike[str]
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def curve(self) -> Curve:
        """The keys. Raises: ConfigError, also if others may read the secret one."""
        if self.key is None:
            hint = "`zbroker-admin key new` makes one; the broker's access file has to name it"
            raise ConfigError("bad_config", "credentials have no `key`", hint)
        pair = load_secret(Path(self.key))
        return Curve(pair.public.encode(), pair.secret.encode(), self._server_key().encode())

    def given(self) -> dict[str, str] | None:
        """What a logon says beside the keys: `user` and `password`, as far as there are any."""
        shown = {"user": self.user, "password": self.password}
        return {key: value for key, value in shown.items() if value is not None} or None

    def _server_key(self) -> str:
        server = os.fspath(self.server)
        is_file = server is not self.server or server.endswith((PUBLIC_SUFFIX, SECRET_SUFFIX))
        if is_file:
            return load_public(Path(server))
        if not is_key(server):
            reason = "`server` is neither 40 characters of Z85 nor a file NAME.key"
            raise ConfigError("bad_config", reason, "`zbroker-admin key show` prints it")
        return server
