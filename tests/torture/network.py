"""Hosts as network namespaces on a bridge, and cuts between them.

    bridge zbPID (this process, .254) --+-- a (.1)
                                        +-- b (.2)
                                        +-- c (.3)

A cut is silent, as on a real network: the sender has a wrong hardware address for the other end, so
what it sends arrives nowhere, and it is not told. So one direction can be cut alone, and open
connections stay open. `pulled` takes the cable of a host away.

Everything has the id of this process in its name and is removed at the end; what a killed run left
behind is removed by the next one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

PREFIX: Final = "zb"
NETNS: Final = Path("/run/netns")
NOWHERE: Final = "02:de:ad:00:00:01"
CLONE_NEWNET: Final = 0x40000000
COMMAND_S: Final = 30.0
HERE: Final = "here"  # this process, as an end of a cut

T = TypeVar("T")


def why_not() -> str:
    """Why no hosts can be made here; one of the allowed reasons. Empty if they can."""
    if os.geteuid():
        return "needs root"
    if shutil.which("ip") is None:
        return "needs package iproute2"
    name = f"{PREFIX}{os.getpid()}t"
    made = _try("ip", "netns", "add", name)
    linked = made and _try("ip", "link", "add", name, "type", "bridge")
    _try("ip", "link", "del", name)
    _try("ip", "netns", "del", name)
    return "" if linked else "other system: no network namespaces, or no bridges"


def _try(*command: str) -> bool:
    done = subprocess.run(command, capture_output=True, timeout=COMMAND_S)
    return done.returncode == 0


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


class NetworkHost:
    """A namespace with one address. Work in it is done by a thread of its own."""

    def __init__(self, name: str, space: str, address: str) -> None:
        self.name, self.space, self.address = name, space, address
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)

    def _enter(self) -> None:
        """The thread, and all processes that it starts, are in the namespace."""
        libc = ctypes.CDLL(None, use_errno=True)
        with (NETNS / self.space).open() as file:
            if libc.setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def run(self, work: Callable[..., T], *given: Any) -> T:
        """What `work` returns or raises there."""
        return self._thread.submit(work, *given).result()

    def close(self) -> None:
        self._thread.shutdown()


class Network:
    """The bridge and its hosts."""

    def __init__(self, bridge: str, hosts: dict[str, NetworkHost], own_address: str) -> None:
        self.hosts = hosts
        self._bridge = bridge
        self._own_address = own_address
        self._cuts: set[tuple[str, str]] = set()
        self._pulled: set[str] = set()

    def cut(self, sender: str, receiver: str) -> None:
        """What one end sends does not get to the other one any more. HERE is an end, too."""
        command = ("neigh", "replace", self._address(receiver), "lladdr", NOWHERE)
        _run(*self._in(sender), *command, "dev", self._device(sender), "nud", "permanent")
        self._cuts.add((sender, receiver))

    def cut_off(self, host: str, *, sends: bool = True, receives: bool = True) -> None:
        """A host from all others, and from this process."""
        for other in (*(name for name in self.hosts if name != host), HERE):
            if sends:
                self.cut(host, other)
            if receives:
                self.cut(other, host)

    def pull(self, host: str) -> None:
        """The cable of a host."""
        _run("ip", "link", "set", self._cable(host), "down")
        self._pulled.add(host)

    def heal(self) -> None:
        """Everything gets everywhere again."""
        for host in self._pulled:
            _run("ip", "link", "set", self._cable(host), "up")
        self._pulled.clear()
        for sender, receiver in self._cuts:
            _try(
                *self._in(sender), "neigh", "del", self._address(receiver), "dev",
                self._device(sender),
            )  # fmt: skip
        self._cuts.clear()

    def _in(self, end: str) -> Sequence[str]:
        return ("ip",) if end == HERE else ("ip", "-n", self.hosts[end].space)

    def _address(self, end: str) -> str:
        return self._own_address if end == HERE else self.hosts[end].address

    def _device(self, end: str) -> str:
        return self._bridge if end == HERE else "eth0"

    def _cable(self, host: str) -> str:
        return f"{self._bridge}{host}"


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """Hosts with these names, one letter each."""
    _remove_leftovers()
    pid = os.getpid()
    bridge, subnet = f"{PREFIX}{pid}", f"10.{200 + pid % 50}.{pid // 50 % 250}"
    hosts: dict[str, NetworkHost] = {}
    try:
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{subnet}.254/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for number, name in enumerate(names, 1):
            space, address = f"{bridge}{name}", f"{subnet}.{number}"
            _run("ip", "netns", "add", space)
            _run("ip", "link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", space, "master", bridge, "up")
            _run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _run("ip", "-n", space, "link", "set", device, "up")
            hosts[name] = NetworkHost(name, space, address)
        yield Network(bridge, hosts, f"{subnet}.254")
    finally:
        for host in hosts.values():
            host.close()
        _remove(bridge)


def _remove(bridge: str) -> None:
    for space in [one.name for one in NETNS.glob(f"{bridge}*")] if NETNS.exists() else []:
        _try("ip", "link", "del", space)  # at once; with its namespace it goes a while later
        _try("ip", "netns", "del", space)
    _try("ip", "link", "del", bridge)


def _remove_leftovers() -> None:
    """Of runs whose process is gone."""
    for path in Path("/sys/class/net").glob(f"{PREFIX}[0-9]*"):
        pid = path.name.removeprefix(PREFIX)
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _remove(path.name)
