"""Checks of directories: are they there, whose are they, who else can look into them."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zbroker.cli.doctor.case import Case, quoted
from zbroker.cli.doctor.finding import Finding
from zbroker.errors import StorageError
from zbroker.paths import Paths, sockets_parent
from zbroker.supervisor.directory import read_identity


class PathFacts(NamedTuple):
    """What the system says of a path."""

    path: Path
    exists: bool
    is_directory: bool
    writable: bool
    owner: str = ""


def look(path: Path) -> PathFacts:
    """At a path, for this user."""
    try:
        found = path.stat()
    except OSError:
        return PathFacts(path, exists=False, is_directory=False, writable=False)
    writable = os.access(path, os.W_OK | os.X_OK)
    return PathFacts(path, True, stat.S_ISDIR(found.st_mode), writable, owner_of(found.st_uid))


def owner_of(uid: int) -> str:
    """A user's name, or number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def data_directory(case: Case) -> Iterator[Finding]:
    """Whether it can be written, or made."""
    paths = _paths(case)
    place = look(paths.data)
    if not place.exists:
        place = look(next(parent for parent in paths.data.parents if parent.exists()))
    yield from unusable(place, paths.data, owner_of(os.getuid()))
    if paths.journal.exists():
        yield from unusable(look(paths.journal), paths.journal, owner_of(os.getuid()))


def unusable(place: PathFacts, wanted: Path, user: str) -> Iterator[Finding]:
    """What keeps `user` from writing in `wanted`, of which `place` is there."""
    means = "an instance of this user does not start; the log does not change"
    if not place.is_directory:
        what = f"{place.path} is not a directory, and {wanted} should be one"
        fix = f"mv {quoted(place.path)} {quoted(place.path)}.old"
        yield Finding("data_directory", what, means, fix)
    elif not place.writable:
        what = f"{place.path} belongs to {place.owner} and cannot be written by {user}"
        fix = (
            f"sudo -u {quoted(place.owner)} zbroker start, or chown -R {user} {quoted(place.path)}"
        )
        yield Finding("data_directory", what, means, fix)


def identity(case: Case) -> Iterator[Finding]:
    """Whether the instance knows who it is."""
    paths = _paths(case)
    if not paths.data.is_dir():
        return
    try:
        known = read_identity(paths.data)
    except StorageError as error:
        means = "the instance does not start; the log itself is not touched"
        fix = error.hint if error.code == "unknown_version" else _restore(paths)
        yield Finding("identity", error.reason, means, fix)
        return
    except OSError as error:
        yield Finding(
            "identity", f"{paths.identity}: {error.strerror}", "the instance does not start",
            f"ls -l {quoted(paths.identity)}",
        )  # fmt: skip
        return
    if known is None and any(paths.journal.glob("*.journal*")):
        yield Finding(
            "identity",
            f"{paths.identity} is not there, and {paths.journal} has segments",
            "a start would make a new identity, to which these segments are foreign",
            _restore(paths),
        )


def _restore(paths: Paths) -> str:
    """Each segment also has the id."""
    show_id = f"zbroker-admin --data-dir {quoted(paths.data)} --json journal info"
    return (
        f"put it back from a copy; {show_id} tells the id: write "
        f'{{"version": 1, "instance": "ID"}} into {quoted(paths.identity)}'
    )


def archive_directory(case: Case) -> Iterator[Finding]:
    """Whether the one that was set is there: it is often a mount."""
    paths = _paths(case)
    assert case.config is not None, "CHECKS says that it is needed"
    if case.config.journal.archive_directory and not paths.archive.is_dir():
        yield Finding(
            "archive_directory",
            f"{paths.archive} is not there, and journal.archive_directory names it",
            "segments that were archived there cannot be read, and none can be archived",
            f"mount what belongs there, or, if nothing was archived yet, mkdir -p "
            f"{quoted(paths.archive)}",
        )


def sockets_directory(case: Case) -> Iterator[Finding]:
    """Whether the processes can create their sockets, and other users have no access."""
    paths = _paths(case)
    place, parent = paths.sockets, sockets_parent()
    if not os.access(parent, os.W_OK | os.X_OK):
        means = "the instance does not start: its processes have to reach each other"
        what = f"{parent} cannot be written by {owner_of(os.getuid())}"
        yield Finding("sockets_directory", what, means, "TMPDIR=/run/user/$UID zbroker start")
    if not paths.sockets_note.exists() or not place.is_dir():
        return  # it does not run; each start makes a new one
    found = place.lstat()
    means = "others could speak to its processes"
    if found.st_uid != os.getuid():
        what = f"{place} belongs to {owner_of(found.st_uid)}"
        fix = f"sudo rm -r {quoted(place)}, or run this as that user"
        yield Finding("sockets_directory", what, means, fix)
    elif found.st_mode & 0o077:
        what = f"{place} can be entered by others (mode {stat.S_IMODE(found.st_mode):o})"
        yield Finding("sockets_directory", what, means, f"chmod 700 {quoted(place)}")


def secrets(case: Case) -> Iterator[Finding]:
    """Whether others can read what makes and proves sessions."""
    run = _paths(case).run
    for path in sorted([*run.glob("*.token"), *run.glob("*.key")]):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            yield Finding(
                "secrets",
                f"others can read {path} (mode {mode:o})",
                "a user who reads it can act as the owner of the instance, until the next start",
                f"chmod 600 {quoted(path)}, then restart the instance: it makes new tokens",
            )


def _paths(case: Case) -> Paths:
    assert case.paths is not None, "CHECKS says that they are needed"
    return case.paths
