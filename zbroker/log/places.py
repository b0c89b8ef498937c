"""Where segments are: the journal directory and the archive directory, raw and packed.

One segment may exist as up to four files; all hold the same bytes, so readers take the best one:
raw before packed, journal before archive. A new copy is durable before the old one goes, so one
that vanishes between listing and reading is looked up again.
The open segment is always raw, in the journal directory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from zbroker.errors import StorageError
from zbroker.log.disk import Disk, RealDisk
from zbroker.log.format import (
    ParseStop,
    SegmentHeader,
)
from zbroker.log.packed import TABLES_MAX, Frames, Packed
from zbroker.log.segments import (
    HeaderCopies,
    headers_by,
    intact,
    list_files,
    packed_name,
    parse_name,
    read_around,
    read_note,
    segment_name,
)

T = TypeVar("T")
LOOKS_MAX: Final = 10  # each one means that a file moved meanwhile: raw, archived, packed, removed


class SegmentPlace(NamedTuple):
    """One copy of a segment. file_bytes: of this file, not of the segment if it is packed."""

    serial: int
    archived: bool
    packed: bool
    file_bytes: int


Copies = list[SegmentPlace]  # of one segment or of all; oldest segment first, the best copy first


class SegmentPlaces:
    """Both directories. Not thread-safe: one per thread.

    instance: which one's log this is; 0: the journal directory says it.
    """

    def __init__(self, journal: Disk, archive: Disk | None = None, instance: int = 0) -> None:
        self.journal = journal
        self.archive = archive
        self._serials: set[int] = set()  # found last time
        self._tables: OrderedDict[str, Packed] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._instance = instance
        self.frames = Frames()

    # -- all copies --

    @property
    def disks(self) -> tuple[Disk, ...]:
        """The journal directory, then the archive directory if there is one."""
        return (self.journal, self.archive) if self.archive is not None else (self.journal,)

    def list(self) -> Copies:
        """The best copy of each segment, oldest first."""
        return [copies[0] for copies in self.by_serial().values()]

    def copies(self) -> Copies:
        """Every copy, the best one of each segment first."""
        return [place for copies in self.by_serial().values() for place in copies]

    def by_serial(self) -> dict[int, Copies]:
        """The copies of each segment, the best one first, oldest segment first.

        A file that moves while a directory is listed may be in neither listing: looks again where
        a serial is missing.
        """
        found = self._scan()
        for _ in range(2):
            if self._serials <= found.keys() and all(b == a + 1 for a, b in pairwise(found)):
                break
            self._serials = set(found)
            found = self._scan()
        self._serials = set(found)
        return found

    def _scan(self) -> dict[int, Copies]:
        """The journal directory first: a segment leaves it once it is in the archive directory."""
        places = _named(self.journal.list(), archived=False)
        if self.archive is not None:
            places += _named(list_files(self.archive), archived=True)
        found: dict[int, Copies] = {}
        for place in sorted(places, key=lambda place: (place.serial, place.packed, place.archived)):
            found.setdefault(place.serial, []).append(place)
        return found

    def exists(self, serial: int) -> bool:
        """True if there is any copy; cheap."""
        names = segment_name(serial), packed_name(serial)
        return any(disk.exists(name) for disk in self.disks for name in names)

    def find(self, serial: int) -> SegmentPlace | None:
        """The best copy of one segment."""
        copies = self.by_serial().get(serial)
        return copies[0] if copies else None

    # -- one copy --

    def disk(self, place: SegmentPlace) -> Disk:
        """The directory it is in."""
        if not place.archived:
            return self.journal
        assert self.archive is not None, "an archived copy is in the archive directory"
        return self.archive

    def name(self, place: SegmentPlace) -> str:
        """Its file name."""
        return packed_name(place.serial) if place.packed else segment_name(place.serial)

    def size(self, place: SegmentPlace) -> int:
        """Bytes of the segment; 0 for a packed file that is unreadable. Raises: StorageError."""
        if not place.packed:
            return place.file_bytes
        key = _key(place)
        if key not in self._sizes:
            self._sizes[key] = self._packed(place).size
        return self._sizes[key]

    def read(self, place: SegmentPlace, offset: int, size: int) -> bytes:
        """`size` bytes of the segment at `offset`, fewer only at its end.

        Unreadable ones are zeros, which fail their CRCs.
        Raises: StorageError file_missing (it was moved or removed), unknown_version.
        """
        if place.packed:
            return self._packed(place).read(offset, size)
        return read_around(self.disk(place).read, segment_name(place.serial), offset, size)

    def headers(self, place: SegmentPlace) -> HeaderCopies:
        """Both copies of its header, as they are. Raises: StorageError."""
        return headers_by(partial(self.read, place))

    def header(self, place: SegmentPlace) -> SegmentHeader | ParseStop:
        """Its header from an intact copy; Stop "version" if both are of another version."""
        return intact(self.headers(place))

    def unlink(self, place: SegmentPlace) -> None:
        """Removes this copy; durable with the next sync of its directory.

        Raises: StorageError, also foreign_instance: two instances may share a directory by mistake.
        """
        header = self.header(place)
        if isinstance(header, SegmentHeader) and header.instance != self.instance:
            raise foreign(self.name(place), header.instance, self.instance)
        self.disk(place).unlink(self.name(place))
        self._tables.pop(_key(place), None)

    def same_file(self, one: SegmentPlace, other: SegmentPlace) -> bool:
        """True if two copies are one file that is seen twice, by whatever links or mounts."""
        ids = [self.disk(place).file_id(self.name(place)) for place in (one, other)]
        return ids[0] == ids[1]

    @property
    def instance(self) -> int:
        """The instance whose journal directory this is; 0 while it is empty."""
        if not self._instance:
            note = read_note(self.journal)
            self._instance = note.instance if note is not None else self._first_instance()
        return self._instance

    def _first_instance(self) -> int:
        headers = (self.header(place) for place in self.copies() if not place.archived)
        return next((one.instance for one in headers if isinstance(one, SegmentHeader)), 0)

    def close(self) -> None:
        """Closes the files of both directories."""
        self._tables.clear()
        for disk in self.disks:
            disk.close()

    def _packed(self, place: SegmentPlace) -> Packed:
        key = _key(place)
        known = self._tables.get(key)
        if known is not None:
            self._tables.move_to_end(key)
            return known
        read = partial(self.disk(place).read, self.name(place))
        made = self._tables[key] = Packed(key, read, place.file_bytes, self.frames)
        if len(self._tables) > TABLES_MAX:
            self._tables.popitem(last=False)
        return made


def settled(look: Callable[[], T]) -> T:
    """What `look` gives, once no file vanishes meanwhile: archived, packed or removed.

    Raises: StorageError.
    """
    for _ in range(LOOKS_MAX - 1):
        try:
            return look()
        except StorageError as error:
            if error.code != "file_missing":
                raise
    return look()


def open_places(journal: Path, archive: Path | None = None) -> SegmentPlaces:
    """Both directories, to read only. The archive directory may be missing: it is empty then."""
    return SegmentPlaces(
        RealDisk(journal, read_only=True), RealDisk(archive, read_only=True) if archive else None
    )


def foreign(name: str, theirs: int, ours: int) -> StorageError:
    """The refusal of another instance's file."""
    reason = f"{name} belongs to instance {theirs:016x}, this is {ours:016x}"
    return StorageError("foreign_instance", reason, "check the data directory in the config")


def _named(files: list[tuple[str, int]], *, archived: bool) -> Copies:
    named = ((parse_name(name), size) for name, size in files)
    return [SegmentPlace(found[0], archived, found[1], size) for found, size in named if found]


def _key(place: SegmentPlace) -> str:
    where = "archive" if place.archived else "journal"
    return f"{where}/{packed_name(place.serial)}, {place.file_bytes} bytes"
