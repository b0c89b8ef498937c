"""The only place that removes segment files. Runs in a helper thread, on Places of its own.

    remove_through   segments that the note gave up (Writer.keep_from): all copies, oldest first
    retire           one copy of a segment of which another one is whole

Nothing of another instance is touched: each file's header is looked at first, and whose the archive
directory is. The copy that stays must be another file than the one that goes, not only another
name: directories may be one by a symbolic link or a bind mount.

A crash at any step leaves files that the next start finds: segments below the note's `oldest` are
removed then, and a copy that is still there is only one copy more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zbroker.errors import ClientError, StorageError
from zbroker.log import owner
from zbroker.log.format import SegmentHeader
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.segments import SUMMARY_NAME, list_files
from zbroker.wire.internal import Retire


def remove_through(places: SegmentPlaces, through: int) -> int:
    """Every file of the segments up to `through`, also of those left by an earlier removal.

    Returns: how many bytes that were. Raises: StorageError.
    """
    owner.check(places)
    size = 0
    for serial, copies in places.by_serial().items():
        if serial > through:
            break
        for place in copies:
            with _missing_is_fine():
                places.unlink(place)
                size += place.file_bytes
    for disk in places.disks:
        for name, _ in list_files(disk):
            found = SUMMARY_NAME.fullmatch(name)
            if found and int(found[1]) <= through:
                with _missing_is_fine():
                    disk.unlink(name)
        with _missing_is_fine():
            disk.sync_dir()
    return size


def retire(places: SegmentPlaces, ask: Retire, open_serial: int) -> None:
    """Unlinks the copy that `ask` names; nothing if it is gone and another one is there.

    Raises: ClientError segment_held, segments_missing; StorageError.
    """
    copies = places.by_serial().get(ask.serial, [])
    going = next((p for p in copies if (p.archived, p.packed) == (ask.archived, ask.packed)), None)
    others = [place for place in copies if place != going]
    if ask.serial >= open_serial:
        raise ClientError("segment_held", f"segment {ask.serial} is the open one")
    if going is None:
        if not others:
            raise ClientError("segments_missing", f"there is no copy of segment {ask.serial}")
        return
    kept = next((place for place in others if replaces(places, place, going)), None)
    if kept is None:
        reason = f"no other copy of segment {ask.serial} is whole, so {places.name(going)} stays"
        raise ClientError("segment_held", reason)
    places.disk(kept).sync_dir()
    places.unlink(going)
    places.disk(going).sync_dir()


def replaces(places: SegmentPlaces, kept: SegmentPlace, going: SegmentPlace) -> bool:
    """`kept` is another file with the same size and good headers as `going`, which it replaces."""
    try:
        wanted = places.headers(going)
        return (
            not places.same_file(kept, going)
            and isinstance(wanted[0], SegmentHeader)
            and wanted[0] == wanted[1]
            and places.headers(kept) == wanted
            and places.size(kept) == places.size(going)
        )
    except StorageError:
        return False


@contextmanager
def _missing_is_fine() -> Iterator[None]:
    """A file may be gone already, and the archive directory may not be there."""
    try:
        yield
    except StorageError as error:
        if error.code != "file_missing":
            raise
