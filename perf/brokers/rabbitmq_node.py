"""One node of RabbitMQ for both of its kinds: without the service of a package, data in `place`.

It is the one that `perf.brokers.install` unpacked into the cache, or else the system's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from perf.brokers import server as servers
from perf.brokers.server import Server
from zbroker.free_ports import free_ports

SETTINGS: Final = """listeners.tcp.1 = 127.0.0.1:{amqp}
stream.listeners.tcp.1 = 127.0.0.1:{stream}
stream.advertised_host = 127.0.0.1
stream.advertised_port = {stream}
log.console.level = warning
"""
AMQP_GREETING: Final = b"AMQP\x00\x00\x09\x01"
ERLANG_ARGUMENTS: Final = "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none"


class Ports(NamedTuple):
    """What its clients take as the address."""

    amqp: int
    stream: int


def root(cache: Path) -> Path | None:
    """The directory that has usr/lib/rabbitmq in it."""
    for place in (cache / "rabbitmq", Path("/")):
        if list(place.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")):
            return place
    return None


def _home(place: Path) -> Path:
    return next(place.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))


def missing(cache: Path) -> str | None:
    """Needs the server in the cache or on the system."""
    if root(cache) is None:
        return "it is not in the cache: python -m perf.brokers.install rabbitmq"
    return None


def versions(cache: Path, client: str) -> dict[str, str]:
    """The server's from the name of its directory."""
    place = root(cache)
    assert place is not None
    server = _home(place).name.rpartition("-")[2]
    return {"server": server, "client": f"{client} {version(client)}"}


@contextmanager
def serve(place: Path, cache: Path, _sync: bool) -> Iterator[Server]:
    """Whether it syncs depends on the kind of queue, not on the node."""
    amqp, stream, distribution = free_ports(3)
    (place / "rabbitmq.conf").write_text(SETTINGS.format(amqp=amqp, stream=stream))
    (place / "enabled_plugins").write_text("[rabbitmq_stream].\n")
    top = root(cache)
    assert top is not None
    names = free_ports(1)[0]
    env = {
        **os.environ,
        "PATH": f"{top}/usr/lib/erlang/bin{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place),  # its cookie
        "RABBITMQ_NODENAME": f"perf{amqp}@localhost",
        "RABBITMQ_MNESIA_BASE": f"{place}/data",
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": f"{place}/rabbitmq.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{place}/enabled_plugins",
        "RABBITMQ_DIST_PORT": str(distribution),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_ARGUMENTS,
    }

    def answers() -> bool:
        """Both listeners; AMQP's says Connection.Start."""
        servers.first_bytes(stream, 0)
        return servers.first_bytes(amqp, 1, AMQP_GREETING) == b"\x01"

    # a daemon of names of its own, which ends with the node: the usual one would stay
    epmd = [str(top / "usr/lib/erlang/bin/epmd"), "-port", str(names), "-address", "127.0.0.1"]
    command = [str(_home(top) / "sbin" / "rabbitmq-server")]
    with (
        servers.run(epmd, place, lambda: servers.first_bytes(names, 0) == b""),
        servers.run(command, place, answers, env) as server,
    ):
        server.address = Ports(amqp, stream)
        yield server
