"""Endpoints as text: which may be listened on, which are loopback, and which clients get.

tcp://127.0.0.1:9101    a listener; port 0 picks a free one
tcp://[::1]:9101        IPv6: an address in brackets
tcp://*:9101            bound to every address: a client puts the host it used for `*`
http://127.0.0.1:9105   the admin
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from zbroker.errors import ClientError, ZBrokerError

_ENDPOINT: Final = re.compile(r"(tcp|http)://(\[[0-9a-fA-F:.]+\]|[\w.\-]+|\*):(\d{1,5})/?")
_PLACE: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.\-]+|\*)(?::(\d{1,5}))?")
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


def ingest_url(text: str) -> str:
    """A URL as people write it, as it is connected to: `tcp://` may be left out.

    Raises: ZBrokerError bad_url, which says what is wrong with it.
    """
    scheme, sign, rest = text.strip().removesuffix("/").partition("://")
    if not sign:
        scheme, rest = "tcp", scheme
    if scheme in ("http", "https"):
        raise _bad(text, "is for a browser: clients connect to the ingest endpoint, port 9101")
    if scheme != "tcp":
        raise _bad(text, f"begins with {scheme}://, a broker is reached by tcp://")
    if _is_ipv6(rest):
        raise _bad(text, "has an IPv6 address without brackets and a port", f"[{rest}]:9101")
    match = _PLACE.fullmatch(rest)
    if match is None:
        raise _bad(text, "does not name a host and a port")
    host, port = match[1], match[2]
    if host == "*":
        raise _bad(text, "is where a broker listens: name its host", f"tcp://HOST:{port or 9101}")
    if port is None:
        raise _bad(text, "has no port", f"tcp://{host}:9101")
    if not 0 < int(port) <= _PORT_MAX:
        raise _bad(text, f"has a port that is not one of 1 to {_PORT_MAX}", f"tcp://{host}:9101")
    return f"tcp://{host}:{int(port)}"


def _bad(text: str, what: str, better: str = "tcp://127.0.0.1:9101") -> ZBrokerError:
    return ZBrokerError("bad_url", f"{text!r} {what}", f"write {better}")


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def check_listen(endpoint: str, scheme: str) -> None:
    """Raises: ClientError bad_field, unless `endpoint` is `scheme`://host:port."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or match[1] != scheme or int(match[3]) > _PORT_MAX:
        hint = f"write {scheme}://127.0.0.1:PORT"
        raise ClientError("bad_field", f"{endpoint!r} is not an address to listen on", hint)


def check_connect(endpoint: str) -> None:
    """Raises: ClientError bad_field, unless a socket can connect to `endpoint`."""
    at = split(endpoint)
    if at.scheme != "tcp" or not at.port or at.host in _EVERYWHERE:
        hint = "write tcp://HOST:9104, the `listen.replication` of the other instance"
        raise ClientError("bad_field", f"{endpoint!r} is not an address to connect to", hint)


def is_ipv6(endpoint: str) -> bool:
    """An address in brackets. A name is looked up as one of IPv4."""
    return "//[" in endpoint


def is_loopback(endpoint: str) -> bool:
    """True if only this host can reach `endpoint`; a name other than localhost counts as not."""
    host = split(endpoint).host
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def advertised(bound: str, advertise: str) -> str:
    """The URL that clients get for `bound`: with the host `advertise`, if there is one."""
    endpoint = split(bound)
    if advertise:
        return str(endpoint._replace(host=advertise))
    return str(endpoint._replace(host="*")) if endpoint.host in _EVERYWHERE else bound


def reached_from(url: str, host: str) -> str:
    """What to connect to, for a client that reached the instance as `host`."""
    endpoint = split(url)
    return str(endpoint._replace(host=host)) if endpoint.host in _EVERYWHERE else url
