"""Which instance an archive directory belongs to, and that it is not the journal directory.

    owner    {"version": 1, "instance": "<16 hex digits>"}, in the archive directory

Two instances that archive into one directory would take each other's segments for their own, since
the names of segments count from 1 everywhere. So the first one writes its id there, and others are
refused. A directory of an earlier release has no such file: it is adopted if every segment in it is
of this instance.
"""

from __future__ import annotations

import json
from typing import Final

from zbroker.errors import ConfigError, StorageError
from zbroker.log.disk import Disk, RealDisk
from zbroker.log.format import SegmentHeader
from zbroker.log.places import SegmentPlaces, foreign
from zbroker.log.segments import discard

OWNER: Final = "owner"
VERSION: Final = 1
_MAX_BYTES: Final = 1024


def check_apart(places: SegmentPlaces) -> None:
    """One directory for both would lose segments: each is unlinked once its copy is whole.

    Raises: ConfigError bad_config, also for symbolic links and bind mounts.
    """
    journal, archive = places.journal, places.archive
    if archive is None or not archive.exists("."):
        return
    if journal.file_id(".") == archive.file_id("."):
        raise ConfigError(
            "bad_config",
            f"[journal] archive_directory ({_path(archive)}) is the journal directory itself "
            f"({_path(journal)}): archiving would remove the segments that it archived",
            "name another directory; nothing was changed",
        )


def check(places: SegmentPlaces) -> None:
    """Raises: StorageError foreign_instance if the archive directory is another instance's."""
    archive, ours = places.archive, places.instance
    if archive is None or not archive.exists("."):
        return
    owner = _owner(archive)
    if owner is None:
        for place in (place for place in places.copies() if place.archived):
            header = places.header(place)
            if isinstance(header, SegmentHeader) and header.instance != ours:
                raise foreign(places.name(place), header.instance, ours)
    elif owner != ours:
        reason = f"{_path(archive)} belongs to instance {owner:016x}, this is {ours:016x}"
        hint = "give each instance an archive_directory of its own"
        raise StorageError("foreign_instance", f"the archive directory {reason}", hint)


def claim(places: SegmentPlaces) -> None:
    """Writes this instance's id into an archive directory that has none.

    Raises: StorageError foreign_instance.
    """
    archive = places.archive
    assert archive is not None, "there is no archive directory to claim"
    check(places)
    if archive.exists(OWNER):
        return
    part = f"{OWNER}.new-{places.instance:016x}"  # no other instance has this name
    discard(archive, part)
    archive.create(part)
    text = json.dumps({"version": VERSION, "instance": f"{places.instance:016x}"}) + "\n"
    archive.write(part, 0, [text.encode()])
    archive.sync(part)
    archive.rename(part, OWNER)
    archive.sync_dir()
    check(places)  # another instance may have been here at the same moment


def _owner(archive: Disk) -> int | None:
    """The instance that the file names. Raises: StorageError damaged, unknown_version."""
    if not archive.exists(OWNER):
        return None
    try:
        found = json.loads(archive.read(OWNER, 0, _MAX_BYTES))
        version, instance = int(found["version"]), int(found["instance"], 16)
    except (ValueError, KeyError, TypeError):
        reason = f"the file {OWNER} in {_path(archive)} is damaged"
        hint = "remove it if only this instance archives there: it is written again"
        raise StorageError("damaged", reason, hint) from None
    if version > VERSION:
        reason = f"the file {OWNER} in {_path(archive)} is of version {version}"
        raise StorageError("unknown_version", reason, "start the release that wrote it")
    return instance


def _path(disk: Disk) -> str:
    return str(disk.directory) if isinstance(disk, RealDisk) else "this directory"
