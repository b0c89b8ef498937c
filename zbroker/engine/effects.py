"""Effects that several processes have in common: what a core wants done, as values. Pure.

A performer does one effect. It returns None, or the event that says what came of it; if that is
known only later, a source of the turn has the same event then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from zbroker.engine.events import NotSent
    from zbroker.wire.owner_requests import FromReplication
    from zbroker.wire.queue_surveys import QueuesAnswer
    from zbroker.wire.replicas import LinkAnswer
    from zbroker.wire.supervision import Status
    from zbroker.wire.surveys import Answer as SurveyAnswer

JOURNAL: Final = "journal"  # links: the DEALER to the journal,
WATERMARKS: Final = "watermarks"  # and the subscription to its watermarks


class ToPeer(Struct, gc=False):
    """Base of what goes to one peer of the listener: nothing does after it could not be reached."""

    @property
    def rid(self) -> bytes:
        """Its routing id."""
        raise NotImplementedError

    def skipped(self) -> NotSent | None:
        """What the core hears if this is not performed, since the peer is gone."""
        return None


class Send(ToPeer, gc=False):
    """One message to one peer. Answered by Gone if it is not connected any more."""

    rid: bytes
    header: bytes
    body: bytes | None = None


class Answer(ToPeer, gc=False):
    """One message to one peer, encoded when it is sent: until then it may be merged with others.

    Answered by Gone, or by Full if the peer does not read fast enough.
    """

    rid: bytes
    message: Struct


class Say(Struct, gc=False):
    """A message to another process, with its bodies. It is lost if that process dies."""

    link: str
    message: Struct
    bodies: Sequence[bytes | memoryview] = ()


class Reconnect(Struct, gc=False):
    """Close the socket of this link with all that is queued in it, and open a new one."""

    link: str


class Follow(Struct, gc=False):
    """Have the watermarks of each commit from now on, or only those of the beat."""

    on: bool


class FollowMark(Struct, gc=False):
    """Have each mark of the replication process from now on, or only those of the beat."""

    on: bool


class LoggedOff(Struct, gc=False):
    """The listener may close this connection if no client logs on with it."""

    rid: bytes


class LoggedOn(Struct, gc=False):
    """The listener has to leave this connection open."""

    rid: bytes


class Tell(Struct, gc=False):
    """Answer a question of the admin process, or of another one that asks here."""

    rid: bytes
    answer: SurveyAnswer | QueuesAnswer | LinkAnswer | Status | FromReplication


class NoteDisconnected(Struct, gc=False):
    """An operator ended so many connections of a client: note that in the log."""

    client: str
    count: int


class ForgetBlocks(Struct, gc=False):
    """Another journal process serves, which may have cut off bytes that were read before."""


class Gate(Struct, gc=False):
    """Read this source from now on, or leave what arrives there unread."""

    source: str
    open: bool


class Pace(Struct, gc=False):
    """From now on look at the sockets for so long before sleeping; 0: sleep at once."""

    spin_us: int


class RunOn(Struct, gc=False):
    """From now on run on this CPU alone; ANY_CPU: on all that this process may use."""

    cpu: int


class Write(Struct, gc=False):
    """Base of what changes the log on the disk; done when its performer returns."""


class Sync(Struct, gc=False):
    """Make all that was written durable. Answered by Synced; until then nothing may be written."""

    position: int


class Note(Struct, gc=False):
    """A line for the log: what happened, what it means for the data, what comes next.

    values: what the text names, for programs that read the log as JSON.
    """

    name: str
    text: str
    level: Literal["info", "warning", "error"] = "warning"
    values: Mapping[str, object] = {}


class Progress(Struct, gc=False):
    """The start goes on: how far it is, for the supervisor."""

    text: str


class Ready(Struct, gc=False):
    """The process serves from now on."""


class Exit(Struct, gc=False):
    """All is done: end the process."""
