"""The [[queue]] tables: queue definitions. docs/reference/queues.md describes each key."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from zbroker.config.units import DURATION, Bytes, Duration, Name, Natural, Positive, about


class QueueConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A queue over recorded topics. Any number of queues may have the same topic."""

    name: Annotated[Name, about("The name that consumers use.")]
    topic: Annotated[
        str, about('A topic, or with regex = true a pattern; "" is the name of the queue.')
    ] = ""
    regex: Annotated[bool, about("The topic is an RE2 pattern.")] = False
    kind: Annotated[
        Literal["work", "replayable"],
        about(
            '"work": one consumer processes each message, then it is gone;\n'
            '"replayable": one consumer reads from any place, messages stay until purged.'
        ),
    ] = "work"
    semantics: Annotated[
        Literal["at-least-once", "at-most-once"],
        about(
            '"at-most-once": a message is gone before it is sent; it is never sent\n'
            "twice, and lost with its consumer."
        ),
    ] = "at-least-once"
    lease: Annotated[
        Duration,
        about(
            "A message that is not acknowledged comes back after this time; 0 is never."
            "\nThe client library extends it while a handler runs.",
            le=366 * 86_400_000,
        ),
    ] = 30_000
    max_backlog: Annotated[
        Natural, about("The most leased messages of the whole queue; 0: unlimited.")
    ] = 0
    max_per_subscription: Annotated[
        Positive, about("The most leased messages of one consumer.", le=1_000_000)
    ] = 64
    fairness: Annotated[
        Literal["", "proportional", "round-robin", "fast"],
        about(
            'The consumer of the next message: "proportional": the one that uses the\n'
            'smallest part of its backlog; "round-robin": in turn; "fast": first with room.\n'
            '"" is proportional, for at-most-once round-robin.'
        ),
    ] = ""
    leasing: Annotated[
        Literal["sublet", "strict"],
        about('"sublet": any consumer may acknowledge; "strict": only the holder.'),
    ] = "sublet"
    filter: Annotated[
        str, about('Only messages for which it is true enter: "/price > 100". "" is all.')
    ] = ""
    priority: Annotated[
        str, about('Higher first, then older: an expression such as "/urgency". "" is none.')
    ] = ""
    barrier: Annotated[
        str,
        about(
            "A message for which it is true waits until all before it are\n"
            'acknowledged, goes to every consumer, and holds back later messages. "" is none.'
        ),
    ] = ""
    group_key: Annotated[
        str, about('One message at a time for each value, in order: "/customer". "" is none.')
    ] = ""
    expiration: Annotated[Duration, about("Older messages leave the queue; 0 is never.")] = 0
    expiration_model: Annotated[
        Literal["default", "queue", "latest", "earliest"],
        about(
            '"default": the message\'s own, else the queue\'s; "queue": only the\n'
            'queue\'s; "latest", "earliest": the later or earlier of both.'
        ),
    ] = "default"
    max_deliveries: Annotated[
        Natural, about("After this many a message is a dead letter; 0: unlimited.")
    ] = 0
    max_cancels: Annotated[
        Natural, about("After this many releases a message is a dead letter; 0: unlimited.")
    ] = 0
    retry_delay: Annotated[
        list[Annotated[int, Meta(ge=0, le=366 * 86_400_000)]],
        about(
            'How long a message waits after each failure: ["1s", "10s"]; the last one\n'
            "applies to all later failures.",
            extra=DURATION,
        ),
    ] = []
    dead_letter: Annotated[
        str, about('Topic for dead letters; "" is none: they are only counted.')
    ] = ""
    recovery_point: Annotated[
        str,
        about(
            'Where a new queue begins: "epoch": with the whole log; "now": with\n'
            "messages after its creation; or after a bookmark, a time or a vector."
        ),
    ] = "epoch"
    max_hold: Annotated[
        Bytes,
        about(
            "A replayable queue holds at most this much of the log, of all topics: it\n"
            "drops its oldest messages, as a purge does; 0: unlimited."
        ),
    ] = 0
    size_alarm: Annotated[Bytes, about("Alarm if it holds more of the log; 0 is none.")] = 10 << 30
    idle_alarm: Annotated[
        Duration, about("Alarm if it has messages and no consumer takes one that long; 0 is none.")
    ] = 3_600_000
    scope: Annotated[
        Literal["local"], about('"local": the queue belongs to this instance alone.')
    ] = "local"
