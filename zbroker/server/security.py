"""What `[security]` of the settings comes to: an instance's keys, and what it says at a start."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from zbroker.config import Config
from zbroker.endpoints import is_loopback
from zbroker.sockets import ServerCurve


class SecurityNotice(NamedTuple):
    """A line for the log of a start. safe: False if strangers can come in."""

    text: str
    safe: bool


def server_curve(config: Config) -> ServerCurve | None:
    """The keys of an instance, if it has any. Raises: ConfigError."""
    if not config.security.on:
        return None
    from zbroker.access import keys  # an instance without security needs none of it

    pair = keys.load_secret(Path(config.security.key))
    return ServerCurve(pair.public.encode(), pair.secret.encode())


def check(config: Config) -> SecurityNotice:
    """Raises: ConfigError, if keys or rules cannot be used."""
    if config.security.on:
        return SecurityNotice(_rules(config), True)
    listen = config.listen
    listeners = (listen.ingest, listen.delivery, listen.queues, listen.replication)
    reached = " or ".join(url for url in listeners if url and not is_loopback(url))
    if not reached:
        return SecurityNotice("security is off: every user of this host may publish and read", True)
    hint = "set security.key and security.access, or listen on loopback"
    return SecurityNotice(
        f"SECURITY IS OFF: every client that reaches {reached} may publish and read; {hint}", False
    )


def _rules(config: Config) -> str:
    from zbroker.access.file import read
    from zbroker.access.format import parse

    server_curve(config)
    path = Path(config.security.access)
    access = parse(read(path)[0], str(path))
    return f"security is on: {len(access.principals)} principals by the rules of {path}"
