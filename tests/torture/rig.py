"""The power-cut rig: a file system in a loop file on one that can reflink.

    outer.img (XFS, loop) / disk.img (ext4 or XFS, loop) / the journal

`cp --reflink` of disk.img takes an instant and holds what the kernel had written to the block
device by then, and nothing that only the page cache knows: that is the power cut. The copy is
mounted elsewhere, where its file system replays its own journal. The live one never stops.

What it cannot do: reorder or tear inside a device's cache. The simulated disk does that.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.torture.target import FOR_EVER, Job
from tests.torture.tracing import Target

OUTER_BYTES: Final = 3 << 30  # sparse
INNER_BYTES: Final = 640 << 20  # XFS wants 300 MiB at least
COMMAND_S: Final = 60.0
#: what is in the inner file system: how it is made, how it is mounted
KINDS: Final = {
    "ext4": (("mkfs.ext4", "-q", "-F"), ""),
    "ext4 data=writeback": (("mkfs.ext4", "-q", "-F"), "data=writeback"),
    "ext4 commit=1": (("mkfs.ext4", "-q", "-F"), "commit=1"),
    "xfs": (("mkfs.xfs", "-q", "-f"), "nouuid"),
}


def why_not() -> str:
    """Why no power can be cut here; one of the allowed reasons. Empty if it can."""
    if os.geteuid():
        return "needs root"
    for program, package in (("mkfs.xfs", "xfsprogs"), ("mkfs.ext4", "e2fsprogs")):
        if shutil.which(program) is None:
            return f"needs package {package}"
    if not Path("/dev/loop-control").exists():
        return "other system: no loop devices"
    return ""


needs_rig = pytest.mark.skipif(bool(why_not()), reason=why_not() or "needs root")


def run(*command: str | Path) -> None:
    """Runs a command to its end. Raises: AssertionError with what it said."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=COMMAND_S
    )
    assert done.returncode == 0, f"{command}: {done.stderr.strip()}"


@contextmanager
def mounted(image: Path, where: Path, options: str = "") -> Iterator[Path]:
    """A file system in a loop device, which goes away with the mount."""
    where.mkdir(exist_ok=True)
    run("mount", "-o", ",".join(filter(None, ("loop", options))), image, where)
    try:
        yield where
    finally:
        unmount(where)


def unmount(where: Path) -> None:
    """Busy ones are tried again: a child that was killed may not be gone yet."""
    for _ in range(50):
        if subprocess.run(["umount", str(where)], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    run("umount", "-l", where)


class Rig:
    """A live file system, and its power cuts."""

    def __init__(self, base: Path, live: Path, options: str) -> None:
        self.live = live
        self._base = base
        self._options = options
        self._image = base / "outer" / "disk.img"
        self._cuts = 0

    @contextmanager
    def cut(self) -> Iterator[Path]:
        """The power fails now; what is found when it is back."""
        self._cuts += 1
        copy = self._base / "outer" / f"cut-{self._cuts}.img"
        try:
            run("cp", "--reflink=always", self._image, copy)
            with mounted(copy, self._base / "cut", self._options) as found:
                yield found
        finally:
            copy.unlink(missing_ok=True)


@contextmanager
def rig(kind: str = "ext4") -> Iterator[Rig]:
    """Everything mounted is unmounted and every loop device is given back, also on failure."""
    make, options = KINDS[kind]
    base = Path(tempfile.mkdtemp(prefix="zbroker-powercut-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        with (base / "outer.img").open("wb") as outer:
            outer.truncate(OUTER_BYTES)
        run("mkfs.xfs", "-q", "-m", "reflink=1", base / "outer.img")
        stack.enter_context(mounted(base / "outer.img", base / "outer"))
        with (base / "outer" / "disk.img").open("wb") as inner:
            inner.truncate(INNER_BYTES)
        run(*make, base / "outer" / "disk.img")
        live = stack.enter_context(mounted(base / "outer" / "disk.img", base / "live", options))
        yield Rig(base, live, options)
    assert str(base) not in Path("/proc/mounts").read_text()
    assert str(base) not in subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout


@contextmanager
def load(rig: Rig, program: Target, name: str, bug: str = "") -> Iterator[Job]:
    """A journal under load on the live file system, until the block ends."""
    directory = rig.live / name
    directory.mkdir()
    os.sync()  # the directory is there before the first cut; what happens in it is the journal's
    acks = Path(tempfile.mkdtemp(prefix="zbroker-acks-"))
    job = Job(str(directory), str(acks / "acks"), FOR_EVER, 1, 256 * 1024, bug)  # type: ignore[arg-type]
    pid = program.start(job)
    try:
        os.kill(pid, signal.SIGUSR1)
        yield job
    finally:
        os.kill(pid, signal.SIGKILL)
        program.exit_code()
        shutil.rmtree(acks)
        shutil.rmtree(directory)


def pause(rng: random.Random) -> None:
    """Some time until the next cut: mostly within a few groups, sometimes many."""
    time.sleep(rng.choice((0.0, 0.002, 0.01, 0.05, 0.2)) * rng.random())
