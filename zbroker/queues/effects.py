"""Effects of the queues core, which loop.py and log_work.py perform, and their answers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from pyroaring import BitMap64

from zbroker.engine import effects as e
from zbroker.engine.events import NotSent
from zbroker.filters import Filter
from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log.generations import Generations
from zbroker.log.reader import Extent
from zbroker.wire.full_queues import FullQueues
from zbroker.wire.owner_requests import ToReplication

if TYPE_CHECKING:
    from zbroker.queues.context import RemoteConsumer
    from zbroker.queues.queue_state import QueueState
    from zbroker.queues.saved_queue import SavedQueue
    from zbroker.queues.snapshots import Snapshot
    from zbroker.queues.work.values import Arrivals


class Give(e.ToPeer, gc=False):
    """Read these messages and send them to a consumer. Answered by Given, Unsent or ReadFailed.

    deliveries: of each, how often it was delivered with this time; None: all for the first time.
    acked: of a replayable queue, those that were acknowledged; None: of another queue. bytes_max:
    as soon as so many were read and sent, it ends with a batch, and the rest is not sent.
    declaration: of the queue, for the note of what was sent. acquired: the consumer asked for
    these, so they took none of its credit in messages.
    """

    to: RemoteConsumer
    positions: BitMap64
    deliveries: list[int] | None = None
    barrier: bool = False
    acked: BitMap64 | None = None
    bytes_max: int = U63_MAX
    declaration: int = 0
    acquired: bool = False

    @property
    def rid(self) -> bytes:
        """The consumer's connection."""
        return self.to.rid

    def skipped(self) -> Unsent:
        """Nothing was sent."""
        return Unsent(self.to.rid, self, self.positions)

    def part(self, positions: BitMap64) -> Give:
        """The same for these messages only."""
        deliveries = self.deliveries
        if deliveries is not None:
            deliveries = [deliveries[self.positions.rank(at) - 1] for at in positions]
        return replace(self, positions=positions, deliveries=deliveries)


class _LogJob(Struct, gc=False):
    """Read these messages. Answered by the LogAnswer with this `job`, or by ReadFailed."""

    job: int
    positions: BitMap64


class Examine(_LogJob, gc=False):
    """For which of them, as many as one turn may read, is the filter true? Answered by Examined."""

    filter: Filter


class Search(_LogJob, gc=False):
    """Which is the first that the filter is true for? Answered by Searched, also without a hit
    after enough was read for one turn."""

    filter: Filter


class Reenter(_LogJob, gc=False):
    """How would they enter the queue now? Answered by Reentered."""

    queue: QueueState


class Inspect(_LogJob, gc=False):
    """Give each of them, as many as `bytes_max` allows. Answered by Inspected."""

    bytes_max: int = U63_MAX


class InspectedMessage(NamedTuple):
    """A message as it was read. headers: as they were published, None if there are none."""

    position: int
    topic: str
    publisher: int
    sequence: int
    time_ns: int
    data: bytes
    key: bytes | None
    headers: dict[str, Any] | None


class Load(Struct, gc=False):
    """Read the tables, and the note of what was delivered, of this log. Answered by Loaded.

    announced: what clients take for the origin of messages that name none; another generation may
    have begun since.
    """

    here: Origin
    persisted: int
    history: Generations
    announced: Origin


class SaveTables(Struct, gc=False):
    """Write the tables. Answered by TablesSaved."""

    here: Origin
    taken: Snapshot


class TrackDeliveries(Struct, gc=False):
    """No message of this queue from `position` on was sent: note from now on what is sent."""

    queue: str
    declaration: int
    position: int


class ListSegments(Struct, gc=False):
    """Say which segments the log has. let_go: close their files, some may have been removed."""

    let_go: bool


class SayReplication(Struct, gc=False):
    """A message to the replication process; it is lost where that does not listen."""

    message: ToReplication


class PublishFull(Struct, gc=False):
    """Tell ingest which queues are full; only the newest message counts."""

    message: FullQueues


class FullSubscribed(Struct, gc=False):
    """An ingest process has begun to listen to that."""


LogReading = Examine | Search | Reenter | Inspect
Effect = (
    e.Send | e.Note | e.Say | e.Reconnect | e.Follow | e.FollowMark | e.LoggedOff | e.LoggedOn
    | e.Progress | e.Ready | e.Exit | e.Tell | e.NoteDisconnected | e.ForgetBlocks | Give
    | LogReading | Load | TrackDeliveries | ListSegments | SaveTables | SayReplication | PublishFull
)  # fmt: skip


class Given(Struct, gc=False):
    """A Give was done. size: bytes of credit; unread: messages that were not sent. Those before
    `end` cannot be read, the others were too much for one turn."""

    give: Give
    size: int
    unread: BitMap64
    end: int


class Unsent(NotSent, gc=False):
    """The consumer of a Give is not connected any more: these of its messages were not sent."""

    give: Give
    positions: BitMap64


class LogAnswer(Struct, gc=False):
    """A LogReading was done."""

    job: int


class Examined(LogAnswer, gc=False):
    """matching: the messages that the filter is true for; those before `end` were examined."""

    matching: BitMap64
    end: int


class Searched(LogAnswer, gc=False):
    """hit: the first message that matches; messages before `end` were examined."""

    hit: int | None
    end: int


class Reentered(LogAnswer, gc=False):
    """The messages that could be read, in order, by batch."""

    entered: list[Arrivals]


class Inspected(LogAnswer, gc=False):
    """The messages that could be read, in order; those before `end` were read."""

    rows: list[InspectedMessage]
    end: int


class TablesLoaded(Struct, gc=False):
    """What the tables hold, by name and declaration; noted: see registry.Noted."""

    saved: Mapping[tuple[str, int], SavedQueue]
    noted: Callable[[str, int], int | None] | None = None


class TablesSaved(Struct, gc=False):
    """A SaveTables was done. error: why nothing was written, "" if it was."""

    error: str = ""


class Segments(Struct, gc=False):
    """The segments of the log, oldest first; some may have been removed."""

    extents: Sequence[Extent]
