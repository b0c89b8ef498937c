"""What a turn is made of: a core that decides, sources of events, performers of effects. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

Ready = Mapping[Any, int]  # what a poller found: sockets that can be read
Performers = Mapping[type, Callable[[Any], Any]]  # by type of effect and of read
MS_NS: Final = 1_000_000  # nanoseconds of a millisecond

Event = TypeVar("Event", contravariant=True)
Effect = TypeVar("Effect", covariant=True)


class Now(Struct, gc=False):
    """The time of a turn. mono_ms: leases, waits. wall_ns: expiry, since it outlives the process.

    zero_ns: the wall clock at mono_ms = 0 as the process saw it when it began. Delays count from
    there, so a wall clock that is set while it runs neither ends nor lengthens one.
    """

    mono_ms: int
    wall_ns: int
    zero_ns: int | None = None

    @property
    def steady_ns(self) -> int:
        """The wall clock, if it was not set since the process began."""
        return self.wall_ns if self.zero_ns is None else self.zero_ns + self.mono_ms * MS_NS

    def ahead_ms(self, ns: int) -> int:
        """The monotonic ms so many ns from now, rounded up; now, if that is past."""
        return self.mono_ms + max(0, -(-ns // MS_NS))


class Core(Protocol[Event, Effect]):
    """What decides. It gives away its lists of effects: it must not change them afterwards."""

    def handle(self, event: Event, now: Now) -> Sequence[Effect]:
        """What follows from an event at once."""

    def tick(self, now: Now, *, drained: bool) -> Sequence[Effect]:
        """Time, and all that this turn led to. drained: every source was read until empty."""

    def next_read(self) -> object | None:
        """What of the log is to be read next. Asking changes nothing."""

    def next_wake_ms(self) -> int | None:
        """When the next tick has something to do; 0: now."""


class Limit(Struct, gc=False):
    """How much a source may take in one turn. bytes: for those whose messages have bodies."""

    count: int
    bytes: int = 0


class Source(Protocol):
    """One socket, mailbox of a helper thread, or file that is watched. drained: it was read empty.

    Events are taken one by one: the next read may depend on the result of the last event.
    """

    drained: bool

    @property
    def next_wake_ms(self) -> Callable[[], int | None] | None:
        """Gives when it has to be looked at although nothing arrives. None: it never has to be."""

    def events(self, ready: Ready, limit: Limit) -> Iterable[Any]:
        """What arrived. A burst of commands is one event."""


class TurnPlan(Struct):
    """The data of a process. effects: all kinds that its core decides.

    hot: sources that are looked at alone in most turns of a process that spins.
    read_slice_ms: no further read is begun after so long; reads_max: of one turn, 0: it reads none.
    """

    sources: list[tuple[Source, Limit]]
    effects: tuple[type, ...]
    read_slice_ms: int = 0
    reads_max: int = 0
    hot: Sequence[Source] = ()
