"""The [[queue]] tables: queue definitions. docs/reference/queues.md describes each key."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from zbroker.config.units import DURATION, Bytes, Duration, Name, Natural


class QueueConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A queue over recorded topics. Any number of queues may have the same topic.

    name: The name that consumers use.
    topic: A topic, or with regex = true a pattern; "" is the name of the queue.
    regex: The topic is an RE2 pattern.
    bound: It has no topic: messages of exchanges enter for which it is bound.
    kind: "work": one consumer processes each message, then it is gone;
        "replayable": one consumer reads from any place, messages stay until purged.
    semantics: "at-most-once": a message is gone before it is sent; it is never sent
        twice, and lost with its consumer.
    lease: A message that is not acknowledged comes back after this time; 0 is never.
        The client library extends it while a handler runs.
    max_backlog: The most leased messages of the whole queue; 0: unlimited.
    max_per_subscription: The most leased messages of one consumer. 0: 64, and while it
        keeps up as many as it acknowledges in a tenth of a second, at most 4000.
    fairness: The consumer of the next message: "proportional": the one that uses the
        smallest part of its backlog; "round-robin": in turn; "fast": first with room.
        "" is proportional, for at-most-once round-robin.
    leasing: "sublet": any consumer may acknowledge; "strict": only the holder.
    filter: Only messages for which it is true enter: "/price > 100". "" is all.
    priority: Higher first, then older: an expression such as "/urgency". "" is none.
    barrier: A message for which it is true waits until all before it are
        acknowledged, goes to every consumer, and holds back later messages. "" is none.
    group_key: One message at a time for each value, in order: "/customer". "" is none.
    expiration: Older messages leave the queue; 0 is never.
    expiration_model: "default": the message's own, else the queue's; "queue": only the
        queue's; "latest", "earliest": the later or earlier of both.
    max_deliveries: After this many a message is a dead letter; 0: unlimited.
    max_cancels: After this many releases a message is a dead letter; 0: unlimited.
    retry_delay: How long a message waits after each failure: ["1s", "10s"]; the last one
        applies to all later failures.
    dead_letter: Topic for dead letters; of an exchange: they are routed, too. "" is none:
        they are only counted.
    dead_letter_key: The routing key of dead letters; "" is that of each message.
    recovery_point: Where a new queue begins: "epoch": with the whole log; "now": with
        messages after its creation; or after a bookmark, a time or a vector.
    max_hold: A replayable queue holds at most this much of the log, of all topics: it
        drops its oldest messages, as a purge of this instance does; 0: unlimited.
    max_length: The most messages that wait in it: the oldest ones beyond that are given up, with
        the reason max_length. What consumers have does not count; 0: unlimited.
    max_bytes: The same for the bytes of these messages.
    overflow: At these limits: "drop-head": the oldest messages are given up;
        "reject-publish": publishers are refused, with queue_full.
    single_active_consumer: One consumer gets all messages, the one that has been there
        longest; the next takes over when it has ended.
    expires: It is deleted after this time without a consumer, and without being declared
        again; 0 is never. Not in the config file.
    auto_delete: It is deleted when its last consumer has ended. Not in the config file.
    exclusive: It belongs to the session with a time-out in which it was declared, or to the
        connection, and is deleted with it. Not in the config file.
    size_alarm: Alarm if it holds more of the log; 0 is none.
    idle_alarm: Alarm if it has messages and no consumer takes one that long, here or at another
        instance that owns them; 0 is none.
    scope: "local": the queue belongs to this instance alone; "distributed": all instances
        have it, and each offers what was published to it, or all of a replayable one;
        "group-local": one of them offers what was published anywhere.
    initial_owner: The name of the instance that offers, for a group-local queue.
    """

    name: Name
    topic: str = ""
    regex: bool = False
    bound: bool = False
    kind: Literal["work", "replayable"] = "work"
    semantics: Literal["at-least-once", "at-most-once"] = "at-least-once"
    lease: Annotated[Duration, Meta(le=366 * 86_400_000)] = 30_000
    max_backlog: Natural = 0
    max_per_subscription: Annotated[Natural, Meta(le=1_000_000)] = 0
    fairness: Literal["", "proportional", "round-robin", "fast"] = ""
    leasing: Literal["sublet", "strict"] = "sublet"
    filter: str = ""
    priority: str = ""
    barrier: str = ""
    group_key: str = ""
    expiration: Duration = 0
    expiration_model: Literal["default", "queue", "latest", "earliest"] = "default"
    max_deliveries: Natural = 0
    max_cancels: Natural = 0
    retry_delay: Annotated[
        list[Annotated[int, Meta(ge=0, le=366 * 86_400_000)]], Meta(extra=DURATION)
    ] = []
    dead_letter: str = ""
    dead_letter_key: str = ""
    recovery_point: str = "epoch"
    max_hold: Bytes = 0
    max_length: Natural = 0
    max_bytes: Bytes = 0
    overflow: Literal["drop-head", "reject-publish"] = "drop-head"
    single_active_consumer: bool = False
    expires: Duration = 0
    auto_delete: bool = False
    exclusive: bool = False
    size_alarm: Bytes = 10 << 30
    idle_alarm: Duration = 3_600_000
    scope: Literal["local", "distributed", "group-local"] = "local"
    initial_owner: str = ""

    @property
    def refuses_publishes(self) -> bool:
        """Publishers are refused while it is full, and nothing of it is given up."""
        return self.overflow == "reject-publish"

    @property
    def one_instance(self) -> bool:
        """Its messages have an order that several instances could not keep together: none is given
        to another one that asks for it."""
        return bool(self.group_key or self.single_active_consumer)
