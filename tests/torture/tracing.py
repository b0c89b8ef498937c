"""Drives tests.torture.target under strace, which kills it or makes a system call fail.

strace takes hold of a forked child, so that its counters begin with the journal's first call and
no interpreter has to start. Never with --seccomp-bpf: that loses injections.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import pytest
from msgspec import to_builtins

from tests.torture.engine import Acked
from tests.torture.target import Job

#: what changes a directory; `write` is how the program tells what it acknowledged
CALLS: Final = ("pwritev2", "fdatasync", "fsync", "fallocate", "rename", "unlink", "write")
_CALL: Final = re.compile(r"^(?:\d+ +)?(?:\d+\.\d+ +)?(\w+)\((.*)$")
WAIT_S: Final = 60.0

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs package strace")


@dataclass(slots=True)
class Call:
    """A system call as strace saw it. failed: strace made it fail."""

    name: str
    arguments: str
    failed: bool

    @property
    def file(self) -> str:
        """The path after its first argument, a descriptor."""
        match = re.match(r"\d+<([^>]*)>", self.arguments)
        return Path(match[1]).name if match else ""


class Target:
    """The program, waiting for jobs."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # without bytecode: only the first child would write it
            [sys.executable, "-B", "-m", "tests.torture.target"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start(self, job: Job) -> int:
        """Forks a child that waits; its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(to_builtins(job)) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def exit_code(self) -> int:
        """Waits for the end of the child; minus the signal that ended it."""
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the target program has ended"
        return line

    def close(self) -> None:
        """Ends it; its child must have ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._process.stdout.close()


@contextmanager
def target() -> Iterator[Target]:
    """A program for some jobs."""
    made = Target()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory: a kill is no power cut, so the medium does not matter."""
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="zbroker-torture-", dir=where))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def traced(target: Target, job: Job, inject: str = "") -> tuple[int, list[Call]]:
    """Runs a job under strace; its exit code and the calls it made."""
    log = Path(job.acks + ".strace")
    pid = target.start(job)
    arguments = ["strace", "-f", "-y", "-p", str(pid), "-o", str(log)]
    arguments += ["-e", f"trace={','.join(CALLS)}", *(["-e", f"inject={inject}"] if inject else [])]
    tracer = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        assert tracer.stderr is not None
        _wait_attached(tracer.stderr)
        os.kill(pid, signal.SIGUSR1)
        code = target.exit_code()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        tracer.communicate(timeout=WAIT_S)
    return code, list(_calls(log.read_text(errors="replace")))


def _wait_attached(lines: IO[str]) -> None:
    for line in lines:
        if "attached" in line:
            return
    raise AssertionError("strace did not take hold of the program")


def _calls(text: str) -> Iterator[Call]:
    for line in text.splitlines():
        match = _CALL.match(line)
        if match and match[1] in CALLS:
            yield Call(match[1], match[2], "(INJECTED)" in line)


def count_calls(calls: list[Call]) -> Counter[str]:
    """How often each was made."""
    return Counter(call.name for call in calls)


def tell(text: str) -> None:
    """A figure for the table of results; seen with `pytest -s`."""
    sys.stdout.write(f"{text}\n")


def acked(job: Job) -> Acked:
    """What the program promised until it ended. A line that was cut is no promise."""
    path = Path(job.acks)
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    found = Acked()
    for line in lines:
        for name, sequence in json.loads(line).items():
            found[name] = max(sequence, found.get(name, 0))
    return found
