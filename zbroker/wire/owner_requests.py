"""Messages between the queues of an instance and its replication process. Pure.

queues                                          replication
    QueuesHere{}                      ->                            at a start, and on each beat
                                      <-  PeersRead{missing}        until all peers were heard
                                      <-  LiveSources{instances}    to each QueuesHere
    AskTransfer{queue, owner, ...}    ->                            to the owner, over links
                                      <-  TransferRequest{...}       of another instance
    AskHandOver{session, epoch, ...}  ->                            to its instance, over a link
                                      <-  HandOverRequest{...}       of another instance

Each may be lost: it is sent again while it is true, also after a restart of either process.
"""

from __future__ import annotations

from msgspec import field

from zbroker.wire.internal import InternalMessage
from zbroker.wire.replication import NamedMessages


class QueuesHere(InternalMessage, tag="queues_here"):
    """Requests of other instances go to this process. returning: it offers no messages of
    replicated queues before PeersRead says that it may."""

    returning: bool = False


class PeersRead(InternalMessage, tag="peers_read"):
    """What peers held when this instance began is durable here, but for what those hold that are
    `missing`: they did not answer, or their records do not come."""

    missing: list[str] = field(default_factory=list)


class LiveSources(InternalMessage, tag="live_sources"):
    """Instances whose log comes here on a live link."""

    instances: list[int]


class AskTransfer(InternalMessage, tag="ask_transfer"):
    """Consumers here could take so many messages that belong to `owner`; 0: to the initial owner,
    which is called `name`. where, most: those with filters so many of these."""

    queue: str
    owner: int
    name: str
    count: int
    where: list[NamedMessages] = field(default_factory=list)
    most: int = 0


class TransferRequest(InternalMessage, tag="transfer_request"):
    """An instance could take so many messages that belong to this one; and `most` of these."""

    queue: str
    instance: int
    count: int
    where: list[NamedMessages] = field(default_factory=list)
    most: int = 0


class AskHandOver(InternalMessage, tag="ask_hand_over"):
    """A client attaches here a session that may begin at the instance `owner`. epoch: its highest
    that is known here. holder: only if this program has it; "": any."""

    owner: int
    principal: str
    session: str
    epoch: int
    holder: str = ""


class HandOverRequest(InternalMessage, tag="hand_over_request"):
    """A client attaches this session at an instance, to which all of this log goes."""

    instance: int
    principal: str
    session: str
    epoch: int
    holder: str = ""


ToReplication = QueuesHere | AskTransfer | AskHandOver
FromReplication = PeersRead | LiveSources | TransferRequest | HandOverRequest
