"""Messages of a replication link: from the instance that sends its log to one that stores it. Pure.

    source (DEALER)                               destination (ROUTER)
        LinkHello{session, rows, ...}     ->
                                          <-  LinkWelcome{rows, credit, ...}, or LinkRefused{code}
        SendUnits{ordinal, records} + bodies  ->
                                          <-  LinkReceipt{items}       after the destination's sync
        LinkBeat{rows}                    <->                          what changed of a statement
                                          <-  AskState{}               if its log is empty
        StatePart{part} + body            ->                           or NoState{}: send the log
                                          <-  StateReceipt{parts}
        SkipRange{origin, first, last}    ->                           answered by its row in a beat
                                          <-  LinkEnded{reason}        say Hello again
        Want{queue, owner, count, where}  <->                          passed on; no answer
        WantSession{principal, name}      <->                          no answer, either

Maps with string keys; unknown keys are ignored and new ones have a default, so that two releases
can talk. A link has a session: the number is drawn by the source for each Hello, and a destination
takes nothing of an older one.
Source: requirement 002, "Replication Basics"; the design of replication, rules 2 to 4 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct

from zbroker.ids import Origin
from zbroker.limits import HOLDER_MAX, SESSION_MAX_BYTES, TOPIC_MAX_BYTES, U63_MAX
from zbroker.link_topics import FILTER_MAX_CHARS, PATTERNS_MAX
from zbroker.wire.internal import Covered, Record
from zbroker.wire.messages import U63

PROTOCOL: Final = 1
ROWS_MAX: Final = 10_000  # of one statement: an origin each
CLOSED_SAID_MAX: Final = 64  # closed generations of one instance in a statement
RECORDS_MAX: Final = 1_000  # of one SendUnits
#: a log draws a number above all that it hears of, and some by chance: there has to be room
GENERATION_MAX: Final = (1 << 32) - 1 - (1 << 16)
_Generation = Annotated[int, Meta(ge=0, le=GENERATION_MAX)]
STATE_PARTS_MAX: Final = 256
FAR_MAX: Final = 1_000  # origins of one statement
HOPS_MAX: Final = 4  # instances over which it is passed on what others hold
LATER_MAX: Final = 1_000  # generations of one statement
ASKING_MAX: Final = 1_000  # instances of one statement, and peers of one of them
ASKING_HOPS_MAX: Final = 16  # instances over which it is passed on that one asks
WANT_HOPS_MAX: Final = 4  # links that a request goes over
WANT_MAX: Final = 1_000_000  # messages
WANT_NAMES_MAX: Final = 1_000  # messages that one request names: some KiB of a header
INSTANCE_MAX: Final = (1 << 64) - 1
_Instance = int  # see `wrong`
_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Code = Annotated[str, Meta(max_length=64)]
_Reason = Annotated[str, Meta(max_length=1_000)]
_Topic = Annotated[str, Meta(min_length=1, max_length=2 * TOPIC_MAX_BYTES + 1)]


class LinkMessage(Struct, tag_field="cmd", omit_defaults=True, gc=False):
    """What one end of a link may send to the other."""


class OriginPosition(Struct, array_like=True, gc=False):
    """Everything that the topics with this digest want of an origin, from `begins` to `position`.

    digest 0: all of it. Only what is durable counts; what the topics leave out is not written each
    time, so after a crash the position may be lower, but not below `kept`; 0: the same.
    """

    instance: _Instance
    generation: _Generation
    position: U63
    digest: U63 = 0
    begins: U63 = 0
    kept: U63 = 0

    @property
    def safe(self) -> int:
        """The position that it does not go below."""
        return self.kept or self.position


class ClosedGeneration(Struct, array_like=True, gc=False):
    """There is nothing of this generation beyond `end`, and all up to there that the topics with
    this digest want is here, durably; 1: of several."""

    instance: _Instance
    generation: _Generation
    end: U63
    digest: U63 = 0


class FarPosition(Struct, array_like=True, gc=False):
    """Another instance, over so many, holds more of this origin with all topics: up to there."""

    instance: _Instance
    generation: _Generation
    position: U63
    hops: Annotated[int, Meta(ge=1, le=HOPS_MAX)]

    @property
    def origin(self) -> Origin:
        """The origin."""
        return Origin(self.instance, self.generation)


class AskingInstance(Struct, array_like=True, gc=False):
    """An instance whose log is empty asks its peers what they hold, and these it has still to hear
    of. hops: over so many instances it is passed on; 0: it says so itself."""

    name: _Name
    awaits: Annotated[list[_Name], Meta(max_length=ASKING_MAX)]
    hops: Annotated[int, Meta(ge=0, le=ASKING_HOPS_MAX)] = 0


class LaterGeneration(Struct, array_like=True, gc=False):
    """Readers have seen this generation of another instance, above all that are here."""

    instance: _Instance
    generation: _Generation


Rows = Annotated[list[OriginPosition], Meta(max_length=ROWS_MAX)]


class Statement(Struct, array_like=True, gc=False):
    """What an instance holds, in its own words. The highest (started_ns, counter) counts.

    started_ns: when its journal began, as its start record says. rows: all of them in a Hello or
    Welcome, those that changed in a beat. sources: instances that send to it on a live link now.
    closed: the newest CLOSED_SAID_MAX of each instance; none in a beat: they are as before.
    filling: its log began empty, and does not hold yet what others held. far: what other instances
    hold of which it has less, see zbroker.replication.far_holdings; all of it each time. asking: it
    and others that have empty logs, see zbroker.replication.asking_instances; likewise. later: of
    which it or its peers have heard, see zbroker.journal.later_generations; likewise.
    """

    instance: _Instance
    generation: _Generation
    started_ns: U63
    counter: U63
    rows: Rows
    sources: Annotated[list[_Instance], Meta(max_length=ROWS_MAX)] = []
    closed: Annotated[list[ClosedGeneration], Meta(max_length=ROWS_MAX)] = []
    filling: bool = False
    far: Annotated[list[FarPosition], Meta(max_length=FAR_MAX)] = []
    asking: Annotated[list[AskingInstance], Meta(max_length=ASKING_MAX)] = []
    later: Annotated[list[LaterGeneration], Meta(max_length=LATER_MAX)] = []


class LinkHello(LinkMessage, tag="link_hello"):
    """source -> destination, first on each socket. Answered by LinkWelcome or LinkRefused.

    digest: of the topics and the filter of this link (zbroker.link_topics); 0: it sends everything
    that travels. topics: these, as patterns; none: all. filter: as the digest covers it; "": none.
    types: by which it reads payloads, as a digest.
    """

    protocol: int
    feature_level: int
    session: U63
    name: _Name
    group: str
    statement: Statement
    digest: U63 = 0
    topics: Annotated[list[_Topic], Meta(max_length=PATTERNS_MAX)] = []
    filter: Annotated[str, Meta(max_length=FILTER_MAX_CHARS)] = ""
    types: U63 = 0


class LinkWelcome(LinkMessage, tag="link_welcome"):
    """destination -> source. credit_bytes: bodies that may be on their way without a receipt.

    takes_state: its log is empty, and it asks for the state of this source, as with AskState.
    """

    session: U63
    feature_level: int
    name: _Name
    group: str
    statement: Statement
    credit_bytes: U63
    takes_state: bool = False


class LinkRefused(LinkMessage, tag="link_refused"):
    """destination -> source: nothing is taken on this link; `reason` says how that is mended."""

    session: U63
    code: _Code
    reason: _Reason


class SendUnits(LinkMessage, tag="units"):
    """source -> destination: records in the order of the source's log; their bodies are the frames
    after the header. Record i has ordinal `ordinal + i`; units are never divided. covered: what the
    topics of the link leave out, after these records."""

    session: U63
    ordinal: U63
    records: Annotated[list[Record], Meta(max_length=RECORDS_MAX)]
    covered: Annotated[list[Covered], Meta(max_length=ROWS_MAX)] = []


class LinkItem(Struct, array_like=True, gc=False):
    """What became of one record: durable, or refused with `code`; its origin stops there."""

    ordinal: U63
    code: _Code = ""
    reason: _Reason = ""


class LinkReceipt(LinkMessage, tag="link_receipt"):
    """destination -> source, after the sync: the records after `since` up to `through` were judged;
    the refused ones are listed. One that does not follow the last means that one was lost."""

    session: U63
    since: U63
    through: U63
    refused: Annotated[list[LinkItem], Meta(max_length=RECORDS_MAX)] = []


class LinkBeat(LinkMessage, tag="link_beat"):
    """Either way, on each beat. Silence of a few beats ends the link.

    statement: rows that changed since the one that the other end has heard. heard: the counter of
    its newest statement that came here. ordinal: of the newest record that was sent, or that a
    receipt was about: the other end notices by it that something was lost between them. lacks: of a
    source: instances of which its log lacks something that it should send, so others have to.
    """

    session: U63
    statement: Statement
    heard: U63 = 0
    ordinal: U63 = 0
    lacks: Annotated[list[_Instance], Meta(max_length=ROWS_MAX)] = []


class AskState(LinkMessage, tag="ask_state"):
    """destination -> source: the log here is empty; send what it cannot get from yours any more.

    Answered by NoState, or by the parts of a state.
    """

    session: U63


class NoState(LinkMessage, tag="no_state"):
    """source -> destination: no state is needed, this log has everything that it ever had."""

    session: U63


class StatePart(LinkMessage, tag="state_part"):
    """source -> destination: a part of its state at one place of its log; the body is a frame.

    It goes on as if the destination had all records before that place, once it said `done`.
    """

    session: U63
    part: Annotated[int, Meta(ge=0, lt=STATE_PARTS_MAX)]
    last: bool = False


class StateReceipt(LinkMessage, tag="state_receipt"):
    """destination -> source: so many parts came. done: the state is durable; the session ends."""

    session: U63
    parts: U63
    done: bool = False


class SkipRange(LinkMessage, tag="skip_range"):
    """source -> destination: a person gave up these positions of an origin. The destination writes
    that they are missing there, and goes on after them; its row says that it did."""

    session: U63
    instance: _Instance
    generation: _Generation
    first: U63
    last: U63


class NamedMessages(Struct, array_like=True, gc=False):
    """Messages of one origin. steps: [first position, count, gap, count, gap, count ...]."""

    instance: _Instance
    generation: _Generation
    steps: Annotated[list[U63], Meta(min_length=2, max_length=2 * WANT_NAMES_MAX)]


class Want(LinkMessage, tag="want"):
    """Either way: the instance `asker` could take `count` messages of a queue that belong to
    `owner`; 0: to the initial owner, which is called `name`. It is passed on until it is there,
    over `hops` more links at most, and each one once: of an asker since `begun`, `number` rises.
    where, most: besides, it could take so many of these, as filters of its consumers say.

    There is no answer: a grant is a record in the log. Instances of feature level 2 or
    lower do not know it, those of level 3 know it without `where`, and with a count.
    Source: requirement 000, "Replicated Queues": transfer of ownership.
    """

    session: U63
    queue: _Name
    owner: _Instance
    name: Annotated[str, Meta(max_length=255)]
    asker: _Instance
    begun: U63
    number: U63
    count: Annotated[int, Meta(ge=0, le=WANT_MAX)]
    hops: Annotated[int, Meta(ge=0, le=WANT_HOPS_MAX)] = WANT_HOPS_MAX
    where: Annotated[list[NamedMessages], Meta(max_length=WANT_NAMES_MAX)] = []
    most: Annotated[int, Meta(ge=0, le=WANT_NAMES_MAX)] = 0


class WantSession(LinkMessage, tag="want_session"):
    """Either way: a client attaches at the sender a session that may begin at the receiver, as far
    as is known there in `epoch`. holder: only if this program has it; "": any.

    There is no answer: what the receiver decides is a record in its log. Instances of feature level
    4 or lower do not know it.
    """

    session: U63
    principal: Annotated[str, Meta(max_length=255)]
    name: Annotated[str, Meta(min_length=1, max_length=SESSION_MAX_BYTES)]
    epoch: U63
    holder: Annotated[str, Meta(max_length=HOLDER_MAX)] = ""


class LinkEnded(LinkMessage, tag="link_ended"):
    """destination -> source: the session is over, since `reason`; a Hello begins the next one."""

    session: U63
    reason: _Reason


def wrong(statement: Statement) -> str:
    """Which number of a statement cannot be; "" if all can. A decoder has no bounds of 64 bits."""
    closed = (one.instance for one in statement.closed)
    rows = (row.instance for row in statement.rows)
    far = (one.instance for one in statement.far)
    later = (one.instance for one in statement.later)
    named = [statement.instance, *statement.sources, *rows, *closed, *far, *later]
    if not all(0 < instance <= INSTANCE_MAX for instance in named):
        return f"an instance id is 1 to {INSTANCE_MAX}"
    return ""


def wrong_names(where: Iterable[NamedMessages]) -> bool:
    """Whether a request names messages that there cannot be, or more than it may: a run is two
    numbers, whatever its length."""
    for one in where:
        odd = len(one.steps) % 2 or not all(one.steps)
        if odd or sum(one.steps) > U63_MAX or not 0 < one.instance <= INSTANCE_MAX:
            return True
    return sum(sum(one.steps[1::2]) for one in where) > WANT_NAMES_MAX


Request = Want | WantSession
ToDestination = LinkHello | SendUnits | LinkBeat | NoState | StatePart | SkipRange | Request
ToSource = (
    LinkWelcome | LinkRefused | LinkReceipt | LinkBeat | LinkEnded | AskState | StateReceipt
    | Request
)  # fmt: skip
