"""What is compared: versions of zbroker, each with a worktree and an environment, and its peers.

A side is `.` (this checkout as it is), a commit or branch, or a kind of `perf.brokers`. All sides
are measured by the workloads of this checkout: its `perf` is found first, and then the version's
`zbroker`. Versions with the same requirements as this checkout use its environment; others get one
of their own. Both stay in the cache for the next time.
"""

from __future__ import annotations

import configparser
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perf import brokers

ROOT: Final = Path(__file__).parent.parent
HERE: Final = "."
#: what `perf` needs beside a version's own
MEASURING: Final = ("hdrhistogram >=0.10.3,<0.11", "numpy >=2", "pyarrow >=18")
INSTALL_S: Final = 600
HASH_CHARACTERS: Final = 12


class UnknownSideError(Exception):
    """Neither a commit nor a kind of broker; or a peer that cannot be measured here."""


@dataclass(frozen=True)
class Side:
    """One column of the tables. tree: its zbroker; python: of its environment."""

    name: str
    kind: str
    tree: Path
    python: Path
    commit: str = ""

    def as_json(self) -> dict[str, str]:
        """For the result file; places of this machine are not for it."""
        acknowledged = brokers.KINDS[self.kind].acknowledged
        return {"kind": self.kind, "commit": self.commit, "acknowledged": acknowledged}


def cache_directory(given: str | None) -> Path:
    """Where worktrees, environments and peers are kept; by default below the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zbroker-perf"
    return Path(given).resolve() if given else default


def defaults() -> list[str]:
    """Before and after: the last commit and this checkout, or the two last commits."""
    return ["HEAD", HERE] if changes() else ["HEAD~1", HERE]


def prepare(name: str, cache: Path) -> Side:
    """Whatever a side needs to be measured.

    Raises: UnknownSideError.
    """
    if name in brokers.KINDS and name != brokers.OURS:
        if reason := brokers.missing(name, cache):
            raise UnknownSideError(f"{name}: {reason}")
        return Side(name, name, ROOT, Path(sys.executable))
    if name == HERE:
        commit = _git("rev-parse", "HEAD") + ("+changes" if changes() else "")
        return Side(name, brokers.OURS, ROOT, Path(sys.executable), commit)
    commit = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if not commit:
        kinds = ", ".join(brokers.PEER_KINDS)
        raise UnknownSideError(f"{name}: neither a commit nor one of {kinds}")
    tree = _worktree(commit, cache)
    _compile(tree)
    return Side(name, brokers.OURS, tree, _environment(tree, cache), commit)


def changes() -> bool:
    """Whether this checkout differs from its commit where it matters."""
    return bool(_git("status", "--porcelain", "--", "zbroker", "setup.cfg"))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, timeout=INSTALL_S)
    return done.stdout.decode().strip()


def _worktree(commit: str, cache: Path) -> Path:
    tree = cache / "versions" / commit[:HASH_CHARACTERS]
    if not (tree / "zbroker").is_dir():
        tree.parent.mkdir(parents=True, exist_ok=True)
        _git("worktree", "prune")  # the cache may have been removed
        _git("worktree", "add", "--force", "--detach", str(tree), commit)
        if not (tree / "zbroker").is_dir():
            raise UnknownSideError(f"{commit}: git makes no worktree of it in {tree}")
    return tree


def _compile(tree: Path) -> None:
    """Builds its compiled module, if it has one that was not built yet."""
    if (tree / "setup.py").exists() and not any((tree / "zbroker").rglob("*.so")):
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(command, cwd=tree, check=True, timeout=INSTALL_S)


def _environment(tree: Path, cache: Path) -> Path:
    wanted = requirements((tree / "setup.cfg").read_text())
    if wanted == requirements((ROOT / "setup.cfg").read_text()):
        return Path(sys.executable)
    place = cache / "environments" / key(wanted)
    python = place / "bin" / "python"
    complete = place / "complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", *wanted, *MEASURING]
        subprocess.run(pip, check=True, timeout=INSTALL_S)
        complete.touch()
    return python


def requirements(setup_cfg: str) -> list[str]:
    """What a version says that it needs."""
    parser = configparser.ConfigParser()
    parser.read_string(setup_cfg)
    lines = parser["options"]["install_requires"].splitlines()
    return sorted(line for line in map(str.strip, lines) if line and not line.startswith("#"))


def key(wanted: list[str]) -> str:
    """The name of an environment: of what is in it, and of the Python."""
    contents = "\n".join([*wanted, *MEASURING, sys.version])
    return hashlib.sha256(contents.encode()).hexdigest()[:HASH_CHARACTERS]
