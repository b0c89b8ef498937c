"""A log in two real directories, a journal that only unlinks, and a clock that stands still."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from tests.journal.build import INSTANCE, append, start, writer
from zbroker.admin.history import History
from zbroker.admin.journal_link import HoldLeases
from zbroker.admin.survey import Catalog, Tools
from zbroker.admin.worker import AdminWorker
from zbroker.config import Config, JournalConfig, RetentionConfig
from zbroker.errors import ClientError
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Gap, Log
from zbroker.paths import Paths
from zbroker.wire import internal as m

SECOND_NS = 1_000_000_000
LIMIT_TURNS = 200


class Clock:
    """The log times of `tests.journal.build` are microseconds since 1970."""

    def __init__(self) -> None:
        self.seconds = 3_600

    def wall_ns(self) -> int:
        return self.seconds * SECOND_NS

    def mono_ms(self) -> int:
        return self.seconds * 1_000


class Journal:
    """What the worker asks, answered by unlinking; `refuse` and `holders` are set by tests."""

    def __init__(self, places: Callable[[], SegmentPlaces]) -> None:
        self._places = places
        self.welcome: m.Welcome | None = m.Welcome(5, 1, INSTANCE, 0, 0, "disk", 1, 1, 1)
        self.asked: list[m.InternalMessage] = []
        self.refuse: dict[type, tuple[str, str]] = {}
        self.holders = m.Holders(0, 1, 1, 0, [], stated=1 << 30)
        self.indexed: Future[Any] = Future()

    def send(self, kind: Any, **fields: Any) -> Future[Any]:
        assert kind is m.Reindex
        return self.indexed

    def ask(self, answer: Any, kind: Any, wait_s: float = 0, **fields: Any) -> Any:
        if self.welcome is None:
            raise ClientError("not_ready", "the journal is not there")
        message = kind(1, self.welcome.incarnation, **fields)
        self.asked.append(message)
        if kind in self.refuse:
            code, reason = self.refuse[kind]
            return m.Done(1, code=code, reason=reason)
        if isinstance(message, m.AskHolders):
            return self.holders
        if isinstance(message, m.Lease):
            return m.Done(1)
        with closing(self._places()) as places:
            if isinstance(message, m.Retire):
                return self._retire(places, message)
            if isinstance(message, m.Remove):
                return self._remove(places, message)
        raise AssertionError(message)

    def _retire(self, places: SegmentPlaces, ask: m.Retire) -> m.Done:
        copies = places.by_serial()[ask.serial]
        [old] = [c for c in copies if (c.archived, c.packed) == (ask.archived, ask.packed)]
        assert len(copies) > 1, "the last copy is never let go"
        places.unlink(old)
        return m.Done(1)

    def _remove(self, places: SegmentPlaces, ask: m.Remove) -> m.Removal:
        serials = [s for s in places.by_serial() if s <= ask.through][: len(places.list()) - 1]
        if not ask.dry_run:
            removing = [*self.holders.removing, *serials]
            self.holders = replace(self.holders, removing=removing)
        return m.Removal(1, serials, 1)

    def unlink(self) -> None:
        """Every reader is beyond the log start."""
        with closing(self._places()) as places:
            for serial, copies in places.by_serial().items():
                if serial in self.holders.removing:
                    for place in copies:
                        places.unlink(place)
        self.holders = replace(self.holders, removing=[])


class Rig:
    """Everything that the worker needs; `segments` sealed ones and an open one."""

    def __init__(
        self,
        data: Path,
        segments: int = 4,
        time: Literal["append", "publisher"] = "append",
        **retention: int,
    ) -> None:
        self.paths = Paths(data, data / "journal", data / "archive", INSTANCE)
        self.paths.run.mkdir(exist_ok=True, parents=True)
        if not self.paths.journal.exists():
            self.paths.journal.mkdir()
            self._fill(segments)
        self.clock = Clock()
        self.journal = Journal(self.places)
        self.log = logging.getLogger("test")
        self.config = Config(
            journal=JournalConfig(segment_size=1 << 20, time=time),
            retention=RetentionConfig(**{"remove_share_max": 100, **retention}),
        )
        link: Any = self.journal
        self.history = History(self.paths.actions, self.log)
        self.tools = Tools(
            self.config,
            self.paths,
            link,
            HoldLeases(self.paths.run / "leases.json", self.clock, self.log),
            Catalog(self.paths.journal, self.paths.archive),
            self.history,
            self.clock,
            self.log,
        )
        self.worker = AdminWorker(self.tools)

    def _fill(self, segments: int) -> None:
        disk = RealDisk(self.paths.journal)
        recovered = start(disk)
        to = writer(disk, recovered)
        while to.serial <= segments:
            append(to, b"x" * 900, b"y" * 900)
        self.end = to.position
        disk.close()

    def places(self) -> SegmentPlaces:
        return SegmentPlaces(RealDisk(self.paths.journal), RealDisk(self.paths.archive))

    def files(self) -> dict[int, list[str]]:
        """Of each segment: j, J (packed) in the journal, a, A in the archive."""
        with closing(self.places()) as places:
            return {
                serial: sorted("jJaA"[2 * c.archived + c.packed] for c in copies)
                for serial, copies in places.by_serial().items()
            }

    def turns(self, count: int = LIMIT_TURNS) -> None:
        """Turns until nothing is left to do now."""
        for _ in range(count):
            if self.worker.turn():
                return
        raise AssertionError(f"still at work after {count} turns")

    def results(self) -> list[tuple[str, list[int], str]]:
        """What was done, oldest first."""
        entries = reversed(self.history.newest())
        return [(entry.action, entry.serials, entry.result) for entry in entries]

    def readable(self) -> list[int]:
        """The positions of everything that can be read."""
        with closing(Log(places=self.places())) as log:
            end = log.end()
            cursor, found = log.seek(log.first_position), list[int]()
            while cursor.position < end:
                items, cursor = log.read(cursor, end, 1 << 20)
                assert items
                for item in items:
                    assert not isinstance(item, Gap), item
                    found.append(item.position)
            return found
