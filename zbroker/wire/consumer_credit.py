"""What a consumer may be sent: flow modes, credit in messages, stop, flush, and acquire. Pure.

    client                                          queues
        consume{flow_mode, messages}      ->  consuming: see queue_messages.py
        flow{sid, bytes, messages}        ->
        set_flow_mode{sid, mode}          ->
                                          <-  ack processed{sid}
        stop{sid}                         ->
                                          <-  ack processed{sid}    nothing is delivered after it
        flush{sid}                        ->
                                          <-  job ...
                                          <-  flushed{sid, sent}    its credit is 0
        acquire{sid, ends}                ->
                                          <-  acquired{sid, ends}, then job ...

A consumer in window mode, the default, is sent messages while it holds fewer than its backlog: an
acknowledgement makes room. In credit mode each message that is sent also takes one of its credit,
and only `flow` gives more. Commands about the credit of one consumer are done in their order.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from zbroker.wire.messages import U63, Cid, ClientCommand, ServerAnswer

ACQUIRED_MAX: Final = 1_000  # messages that one command acquires, and runs that it names

Sid = Annotated[str, Meta(min_length=1, max_length=64)]
FlowMode = Annotated[str, Meta(pattern="^(window|credit)$")]


class ConsumerFlow(ClientCommand, tag="flow"):
    """-> queues. More credit: bytes, and in credit mode messages. Starts a consumer that was
    stopped or flushed. Not answered."""

    sid: Sid
    bytes: U63 = 0
    messages: U63 = 0


class SetFlowMode(ClientCommand, tag="set_flow_mode"):
    """-> queues. Only of a consumer that has no credit, as after `stop`. Answered `processed`."""

    sid: Sid
    mode: FlowMode
    cid: Cid = None


class StopConsumer(ClientCommand, tag="stop"):
    """-> queues. Its credit is 0; it keeps what it holds. Answered `processed`, after all that was
    on its way to it."""

    sid: Sid
    cid: Cid = None


class FlushConsumer(ClientCommand, tag="flush"):
    """-> queues. It is sent what there is for it now, as far as its credit goes; then its credit is
    0. Answered by Flushed."""

    sid: Sid
    cid: Cid = None


class AcquireMessages(ClientCommand, tag="acquire"):
    """-> queues. These messages are leased to it, those that could be offered to it now. Answered
    by Acquired. generation: see Settle; positions of another one are none of these messages."""

    sid: Sid
    ends: Annotated[list[U63], Meta(max_length=2 * ACQUIRED_MAX)]
    cid: Cid = None
    generation: int | None = None


class Flushed(ServerAnswer, tag="flushed"):
    """queues -> client. sent: messages that went to it since the command."""

    sid: str
    sent: int
    cid: Cid = None


class Acquired(ServerAnswer, tag="acquired"):
    """queues -> client. ends: runs of the messages that it has now; they come as jobs after this,
    and take no credit in messages."""

    sid: str
    ends: list[int]
    cid: Cid = None


ToQueues = ConsumerFlow | SetFlowMode | StopConsumer | FlushConsumer | AcquireMessages
FromQueues = Flushed | Acquired
