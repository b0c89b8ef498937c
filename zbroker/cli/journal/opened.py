"""The log of an instance as files: opened for reading beside it, or locked in its absence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.log import owner
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.segments import packed_name, segment_name
from zbroker.paths import Paths


def find(target: Target) -> Paths:
    """Where the files are. Raises: ZBrokerError not_found."""
    paths = target.paths()
    if not paths.journal.is_dir():
        raise ZBrokerError(
            "not_found", f"there is no journal in {paths.journal}", "see --data-dir and -c"
        )
    return paths


@contextmanager
def log(target: Target) -> Iterator[Log]:
    """The log, for reading."""
    paths = find(target)
    with closing(Log(paths.journal, paths.archive)) as opened:
        yield opened


@contextmanager
def locked(paths: Paths) -> Iterator[SegmentPlaces]:
    """All segment files, which no other process changes meanwhile.

    Raises: StorageError second_writer, with the pid of the instance that runs; foreign_instance
    and ConfigError where the archive directory is another instance's, or the journal directory.
    """
    journal = RealDisk(paths.journal)
    with closing(SegmentPlaces(journal, RealDisk(paths.archive))) as places:
        journal.lock()
        owner.check_apart(places)
        owner.check(places)
        yield places


def file_of(paths: Paths, place: SegmentPlace) -> Path:
    """The file of one copy."""
    name = packed_name(place.serial) if place.packed else segment_name(place.serial)
    return (paths.archive if place.archived else paths.journal) / name
