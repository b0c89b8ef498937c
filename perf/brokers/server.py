"""Servers in directories of their own, on loopback: started, asked until they answer, stopped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

START_S: Final = 90.0
STOP_S: Final = 60.0
LOOK_S: Final = 0.005
PR_SET_PDEATHSIG: Final = 1


@dataclass
class Server:
    """One that answers. address: what its clients take; `processes` names their ids."""

    address: Any
    processes: Callable[[], Mapping[str, int]]
    ready_s: float = 0.0  # from the command to the first answer
    broker: Any = None  # ours: its LocalBroker

    @property
    def pids(self) -> dict[str, int]:
        """The ids of its processes, by name."""
        return dict(self.processes())

    def memory(self) -> dict[str, float]:
        """MB of all its processes; PSS counts once what forked processes share."""
        rss = pss = 0
        for pid in self.pids.values():
            with contextlib.suppress(psutil.Error):
                found = psutil.Process(pid).memory_full_info()
                rss, pss = rss + found.rss, pss + found.pss
        return {"rss_mb": round(rss / 1e6, 1), "pss_mb": round(pss / 1e6, 1)}


@contextmanager
def run(
    command: Sequence[str], place: Path, answers: Callable[[], bool],
    env: Mapping[str, str] | None = None,
) -> Iterator[Server]:  # fmt: skip
    """A server without an address, once it `answers`; it ends with the block.

    Raises: RuntimeError with the end of its log, if it does not start.
    """
    log = place / "server.log"
    begun = time.perf_counter()
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env,
            start_new_session=True, preexec_fn=_end_with_parent,
        )  # fmt: skip
    try:
        _wait(process, answers, log, begun + START_S)
        yield Server(None, lambda: _tree(process), time.perf_counter() - begun)
    finally:
        _stop(process)


def _wait(
    process: subprocess.Popen[bytes], answers: Callable[[], bool], log: Path, deadline: float
) -> None:
    while True:
        with contextlib.suppress(Exception):  # refused, reset, not ready: it starts
            if answers():
                return
        if process.poll() is not None or time.perf_counter() > deadline:
            end = log.read_text(errors="replace")[-800:]
            raise RuntimeError(f"{Path(str(process.args[0])).name} does not start: {end}")  # type: ignore[index]
        time.sleep(LOOK_S)


def _end_with_parent() -> None:
    """In the child: a benchmark that is killed leaves no server."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _tree(process: subprocess.Popen[bytes]) -> dict[str, int]:
    found: dict[str, int] = {}
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(process.pid)
        for each in [top, *top.children(recursive=True)]:
            found[f"server-{len(found)}" if found else "server"] = each.pid
    return found


def _stop(process: subprocess.Popen[bytes]) -> None:
    tree = _tree(process)
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        for pid in tree.values():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def first_bytes(port: int, count: int, send: bytes = b"") -> bytes:
    """What a server says at first. Raises: OSError."""
    with socket.create_connection(("127.0.0.1", port), 1) as one:
        one.sendall(send)
        one.settimeout(1)
        return one.recv(count)


def program(name: str) -> str | None:
    """Where a server is: beside this Python, or on the path."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return shutil.which(name, path=places)
