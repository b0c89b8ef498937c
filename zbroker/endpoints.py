"""Endpoints as text: which may be listened on, which are loopback, and what clients are told.

tcp://127.0.0.1:9101    a door; port 0 picks a free one
tcp://*:9101            bound to every address: a client puts the host it used for `*`
http://127.0.0.1:9105   the admin
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from zbroker.errors import ClientError

_ENDPOINT: Final = re.compile(r"(tcp|http)://(\[[0-9a-fA-F:.]+\]|[\w.\-]+|\*):(\d{1,5})/?")
_EVERYWHERE: Final = frozenset({"*", "0.0.0.0", "[::]"})
_PORT_MAX: Final = 65_535


class Endpoint(NamedTuple):
    """Scheme, host and port of an endpoint."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def split(endpoint: str) -> Endpoint:
    """Raises: ClientError bad_field."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or int(match[3]) > _PORT_MAX:
        raise ClientError("bad_field", f"{endpoint!r} is not of the form tcp://host:port")
    return Endpoint(match[1], match[2], int(match[3]))


def check_listen(endpoint: str, scheme: str) -> None:
    """Raises: ClientError bad_field, unless `endpoint` is `scheme`://host:port."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or match[1] != scheme or int(match[3]) > _PORT_MAX:
        hint = f"write {scheme}://127.0.0.1:PORT"
        raise ClientError("bad_field", f"{endpoint!r} is not an address to listen on", hint)


def is_loopback(endpoint: str) -> bool:
    """True if only this host can reach `endpoint`; a name other than localhost counts as not."""
    host = split(endpoint).host
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def told(bound: str, advertise: str) -> str:
    """What clients are told of a `bound` endpoint: with the host `advertise`, if there is one."""
    endpoint = split(bound)
    if advertise:
        return str(endpoint._replace(host=advertise))
    return str(endpoint._replace(host="*")) if endpoint.host in _EVERYWHERE else bound


def reached_from(told_endpoint: str, host: str) -> str:
    """What to connect to, for somebody who reached the instance as `host`."""
    endpoint = split(told_endpoint)
    return str(endpoint._replace(host=host)) if endpoint.host in _EVERYWHERE else told_endpoint
