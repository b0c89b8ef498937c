"""What a client shows a broker that has security on: keys, and maybe a user and a password."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from zbroker.access.keys import PUBLIC_SUFFIX, SECRET_SUFFIX, is_key, load_public, load_secret
from zbroker.errors import ConfigError
from zbroker.sockets import Curve


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a client is, and which broker it trusts.

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
