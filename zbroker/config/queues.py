"""The [[queue]] tables: what a queue is. docs/reference/queues.md tells what each key does."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from zbroker.config.units import BYTES, DURATION


class QueueConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A queue over recorded topics. Any number of queues may have the same topic."""

    name: Annotated[str, Meta(min_length=1, max_length=255, description="What consumers ask for.")]
    topic: Annotated[
        str,
        Meta(description='A topic, or with regex = true a pattern; "" is the name of the queue.'),
    ] = ""
    regex: Annotated[bool, Meta(description="The topic is an RE2 pattern.")] = False
    kind: Annotated[
        Literal["work", "replayable"],
        Meta(
            description='"work": each message is done by one consumer, then it is gone;\n'
            '"replayable": one consumer reads it from any place, nothing goes until it is purged.'
        ),
    ] = "work"
    semantics: Annotated[
        Literal["at-least-once", "at-most-once"],
        Meta(
            description='"at-most-once": a message is gone before it is sent; it is never sent\n'
            "twice, and lost with its consumer."
        ),
    ] = "at-least-once"
    lease: Annotated[
        int,
        Meta(
            ge=0,
            le=366 * 86_400_000,
            extra=DURATION,
            description="A message that is not acknowledged comes back after this time; 0 is never."
            "\nThe client library extends it while a handler runs.",
        ),
    ] = 30_000
    max_backlog: Annotated[
        int, Meta(ge=0, description="Leased messages of the whole queue at most; 0 is no limit.")
    ] = 0
    max_per_subscription: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Leased messages of one consumer at most.")
    ] = 64
    fairness: Annotated[
        Literal["", "proportional", "round-robin", "fast"],
        Meta(
            description='Who gets the next: "proportional": who has the least of its backlog in\n'
            'use; "round-robin": in turn; "fast": who has room first. "" is proportional, of\n'
            "at-most-once round-robin."
        ),
    ] = ""
    leasing: Annotated[
        Literal["sublet", "strict"],
        Meta(description='"sublet": anybody may acknowledge; "strict": who has the lease.'),
    ] = "sublet"
    filter: Annotated[
        str, Meta(description='Only messages this is true for enter: "/price > 100". "" is all.')
    ] = ""
    priority: Annotated[
        str,
        Meta(description='Higher first, then older: an expression like "/urgency". "" is none.'),
    ] = ""
    barrier: Annotated[
        str,
        Meta(
            description="A message this is true for waits until all before it are acknowledged,\n"
            'goes to every consumer, and holds back what follows. "" is none.'
        ),
    ] = ""
    group_key: Annotated[
        str,
        Meta(description='One at a time of each value, in order: "/customer". "" is none.'),
    ] = ""
    expiration: Annotated[
        int,
        Meta(ge=0, extra=DURATION, description="What is older leaves the queue; 0 is never."),
    ] = 0
    expiration_model: Annotated[
        Literal["default", "queue", "latest", "earliest"],
        Meta(
            description='"default": the message\'s own, else the queue\'s; "queue": only the\n'
            'queue\'s; "latest", "earliest": the later or earlier of both.'
        ),
    ] = "default"
    max_deliveries: Annotated[
        int, Meta(ge=0, description="After so many a message is a dead letter; 0 is no limit.")
    ] = 0
    max_cancels: Annotated[
        int, Meta(ge=0, description="Likewise after so many releases; 0 is no limit.")
    ] = 0
    retry_delay: Annotated[
        list[Annotated[int, Meta(ge=0, le=366 * 86_400_000)]],
        Meta(
            extra=DURATION,
            description='How long a message waits after each failure: ["1s", "10s"]; the last one\n'
            "holds for all that follow.",
        ),
    ] = []
    dead_letter: Annotated[
        str,
        Meta(description='The topic that what is given up goes to; "" is none: it is counted.'),
    ] = ""
    recovery_point: Annotated[
        str,
        Meta(
            description='Where a new queue begins: "epoch": with all that the log holds; "now":\n'
            "with what comes after it was made; or behind a bookmark, a time or a vector."
        ),
    ] = "epoch"
    max_hold: Annotated[
        int,
        Meta(
            ge=0,
            extra=BYTES,
            description="A replayable queue holds at most so much of the log, of all topics: it\n"
            "lets go of its oldest messages, as a purge does; 0 is no limit.",
        ),
    ] = 0
    size_alarm: Annotated[
        int,
        Meta(ge=0, extra=BYTES, description="Alarm when it holds more of the log; 0 is none."),
    ] = 10 << 30
    idle_alarm: Annotated[
        int,
        Meta(
            ge=0,
            extra=DURATION,
            description="Alarm when it holds messages and nobody takes any for so long; 0 is none.",
        ),
    ] = 3_600_000
    scope: Annotated[
        Literal["local"],
        Meta(description='"local": the queue is of this instance alone.'),
    ] = "local"
