"""A queue as it works: its settings with topics, filters and expressions compiled. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from zbroker.config.queues import QueueConfig
from zbroker.errors import ClientError, Refused
from zbroker.ids import EPOCH, NOW, check_point, check_topic
from zbroker.limits import NAME_MAX_BYTES, ROUTING_KEY_MAX_BYTES
from zbroker.topics import Matcher, TopicType, TopicTypes, matcher

if TYPE_CHECKING:
    from zbroker.filters import Expression, Filter

_BEGINS: Final = {"epoch": EPOCH, "now": NOW}

T = TypeVar("T")
RoutedName = tuple[str, tuple[int, int, int]]  # name, life: see zbroker.exchanges.BoundQueue


class Definition(Struct, frozen=True):
    """A queue. declaration: which one of its name. created: position at which that began. source:
    config, admin or client:PRINCIPAL.

    begins: the recovery point as a bookmark, time or vector. type_of: how payloads of a topic are
    read. names: that a queue has in the routes of messages, if it has no topics.
    """

    config: QueueConfig
    declaration: int
    created: int
    source: str
    topics: Matcher
    begins: str
    type_of: Callable[[str], str]
    names: frozenset[RoutedName] = frozenset()
    filter: Filter | None = None
    priority: Expression | None = None
    barrier: Filter | None = None
    group_key: Expression | None = None

    @property
    def needs_payload(self) -> bool:
        """True if what enters, or how, depends on what is in the messages."""
        found = (self.filter, self.priority, self.barrier, self.group_key)
        return any(each is not None for each in found)

    @property
    def needs_times(self) -> bool:
        """True if messages can expire: of a replayable queue nothing goes before it is purged."""
        return self.config.kind == "work"


def compile_queue(
    config: QueueConfig, declaration: int = 1, created: int = 0, source: str = "config",
    types: Sequence[TopicType] = (), lives: Iterable[tuple[int, int, int]] = (),
) -> Definition:  # fmt: skip
    """The queue that these settings describe. lives: of one that is bound, as routes name them.

    Raises: BadQueue, with the reason.
    """
    check_name(config.name)
    refuse_impossible(config)
    topics: Matcher = _of_no_topic
    if not config.bound:
        topics = _compiled(
            config, "topic", lambda: matcher(config.topic or config.name, regex=config.regex)
        )
    _check_dead_letter(config, topics)
    return Definition(
        config, declaration, created, source, topics, _begins(config), TopicTypes(types),
        frozenset((config.name, life) for life in lives),
        filter=_filter(config, "filter"), priority=_expression(config, "priority"),
        barrier=_filter(config, "barrier"), group_key=_expression(config, "group_key"),
    )  # fmt: skip


def _of_no_topic(_topic: str) -> bool:
    return False


def check_name(name: str) -> None:
    """Raises: BadQueue, unless 1 to 255 bytes of printable UTF-8 that do not begin with '$'."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= NAME_MAX_BYTES or not name.isprintable():
        reason = f"a queue's name is 1 to {NAME_MAX_BYTES} bytes of printable UTF-8"
        raise bad_queue("name", f"{reason}, {name[:64]!r} is not")
    if name.startswith("$"):
        raise bad_queue("name", f"{name[:64]!r} begins with '$': such names are the broker's")


def _compiled(config: QueueConfig, key: str, make: Callable[[], T]) -> T:
    """What `make` gives. Raises: BadQueue, where it refuses."""
    try:
        return make()
    except ClientError as error:
        reason = f"queue {config.name[:64]!r}: `{key}` cannot be used: {error.reason}"
        raise bad_queue(key, reason, error.hint) from None


def _filter(config: QueueConfig, key: str) -> Filter | None:
    text: str = getattr(config, key)
    if not text:
        return None
    # few queues have one, and this import doubles the time of reading a config
    from zbroker.filters import FIXED, compile_filter

    return _compiled(config, key, lambda: compile_filter(text, FIXED))


def _expression(config: QueueConfig, key: str) -> Expression | None:
    text: str = getattr(config, key)
    if not text:
        return None
    from zbroker.filters import FIXED, compile_expression

    return _compiled(config, key, lambda: compile_expression(text, FIXED))


def _check_dead_letter(config: QueueConfig, topics: Matcher) -> None:
    topic, key = config.dead_letter, config.dead_letter_key
    if key and not topic:
        reason = f"queue {config.name[:64]!r} has no `dead_letter`, and so no letters with a key"
        raise bad_queue("dead_letter_key", reason, "name their topic, too")
    if len(key.encode("utf-8", "surrogatepass")) > ROUTING_KEY_MAX_BYTES:
        text = (
            f"queue {config.name[:64]!r}: a routing key has at most {ROUTING_KEY_MAX_BYTES} bytes"
        )
        raise bad_queue("dead_letter_key", text)
    if not topic:
        return
    _compiled(config, "dead_letter", lambda: check_topic(topic))
    if topics(topic):
        reason = f"queue {config.name[:64]!r} takes {topic[:64]!r}, the topic of its dead letters"
        raise bad_queue("dead_letter", reason, "what it gives up would come back; choose another")


def _begins(config: QueueConfig) -> str:
    text = config.recovery_point
    found = _BEGINS.get(text, text)
    if found not in (EPOCH, NOW):
        _compiled(config, "recovery_point", lambda: check_point(found))
    return found


RETRY_DELAYS_MAX: Final = 100  # the last one holds for all that follow

_DEFAULT: Final = QueueConfig("-")

#: keys that a replayable queue has no use for, and why
_OF_WORK: Final = {
    "semantics": "nothing goes when it is read",
    "lease": "nothing is leased",
    "max_backlog": "nothing is leased",
    "max_per_subscription": "nothing is leased; credit limits what is sent",
    "fairness": "it has one consumer",
    "leasing": "nothing is leased",
    "priority": "it is read in the order of the log",
    "barrier": "it is read in the order of the log",
    "group_key": "it is read in the order of the log",
    "expiration": "nothing goes until it is purged",
    "expiration_model": "nothing goes until it is purged",
    "max_deliveries": "reading again is not a failure",
    "max_cancels": "nothing can be given back",
    "retry_delay": "nothing can be given back",
    "dead_letter": "nothing is given up",
    "dead_letter_key": "nothing is given up",
    "single_active_consumer": "it has one consumer",
    "max_length": "nothing is given up; max_hold limits how much of the log it holds",
    "max_bytes": "nothing is given up; max_hold limits how much of the log it holds",
    "overflow": "it has no `max_length`; max_hold limits how much of the log it holds",
}
#: likewise of a queue that sends each message once
_OF_MANY_DELIVERIES: Final = {
    "max_deliveries": "each message is delivered once",
    "max_cancels": "a message is gone once it was sent, and cannot be given back",
    "retry_delay": "nothing is sent again",
}


#: how a queue ends by itself
OWN_ENDS: Final = ("expires", "auto_delete", "exclusive")


class BadQueue(Refused):
    """The table with this index, from 0, makes no queue, because of what `key` says."""

    index = 0
    key = "name"


def bad_queue(key: str, reason: str, hint: str = "") -> BadQueue:
    """The error of a key."""
    error = BadQueue("bad_queue", reason, hint)
    error.key = key
    return error


_Contradiction = tuple[str, str, str]  # key, reason, hint


def refuse_impossible(config: QueueConfig) -> None:
    """Raises: BadQueue, for the first contradiction."""
    for key, reason, hint in _contradictions(config):
        raise bad_queue(key, f"queue {config.name[:64]!r}: {reason}", hint)


def _contradictions(config: QueueConfig) -> Iterator[_Contradiction]:
    yield from _of_scope(config)
    yield from _of_bound(config) if config.bound else ()
    if config.kind == "replayable":
        yield from _of_replayable(config)
    else:
        yield from _of_at_most_once(config) if config.semantics == "at-most-once" else ()
        yield from _of_work(config)


def _of_scope(config: QueueConfig) -> Iterator[_Contradiction]:
    scope = config.scope
    if scope == "group-local" and config.kind == "replayable":
        reason = "a replayable queue has no owner: each instance gives all messages, in its order"
        yield "scope", reason, 'write scope = "distributed"'
    if scope == "distributed" and config.group_key:
        reason = '`group_key` does not go with scope "distributed": messages of one key would be '
        hint = 'write scope = "group-local": one instance offers all of them'
        yield "group_key", reason + "offered by several instances at a time", hint
    if scope == "distributed" and config.single_active_consumer:
        reason = '`single_active_consumer` does not go with scope "distributed": each instance '
        hint = 'write scope = "group-local": one instance offers all of its messages'
        yield "single_active_consumer", reason + "would have one", hint
    if scope == "group-local" and not config.initial_owner:
        reason = 'scope "group-local" needs an `initial_owner`'
        yield "initial_owner", reason, "name the instance that offers its messages (instance.name)"
    if scope != "group-local" and config.initial_owner:
        reason = f"`initial_owner` does not go with scope {scope!r}"
        yield "initial_owner", reason, 'leave it out, or write scope = "group-local"'
    for key in OWN_ENDS if scope != "local" else ():
        if getattr(config, key):
            reason = f"`{key}` does not go with scope {scope!r}: one instance would end it for all"
            yield key, reason, 'leave it out, or write scope = "local"'


def _of_bound(config: QueueConfig) -> Iterator[_Contradiction]:
    for key in ("topic", "regex"):
        if getattr(config, key):
            reason = f"`bound` does not go with `{key}`: what enters is said by bindings"
            yield key, reason, "leave one of them out"
    if config.kind != "work":
        reason = "a replayable queue cannot be bound: it is read by topics"
        yield "bound", reason, 'leave it out, or write kind = "work"'
    if config.recovery_point not in ("epoch", "now"):
        reason = "a bound queue has no `recovery_point`: nothing went to it before it was bound"
        yield "recovery_point", reason, "leave it out"


def _of_replayable(config: QueueConfig) -> Iterator[_Contradiction]:
    for key, why in _OF_WORK.items():
        if getattr(config, key) != getattr(_DEFAULT, key):
            reason = f"a replayable queue has no `{key}`: {why}"
            yield key, reason, f'leave it out, or write kind = "work" ({key} is its)'


def _of_at_most_once(config: QueueConfig) -> Iterator[_Contradiction]:
    hint = 'leave it out, or write semantics = "at-least-once"'
    for key, why in _OF_MANY_DELIVERIES.items():
        if getattr(config, key):
            yield key, f"at-most-once does not go with `{key}`: {why}", hint
    if config.fairness not in ("", "round-robin"):
        reason = f"at-most-once does not go with fairness {config.fairness!r}: it asks who has how "
        yield "fairness", reason + "much leased, and nothing is", hint
    if config.lease not in (0, _DEFAULT.lease):
        reason = "at-most-once does not go with `lease`: a message is gone before it is sent"
        yield "lease", reason, hint


def _of_overflow(config: QueueConfig) -> Iterator[_Contradiction]:
    if not (config.max_length or config.max_bytes):
        reason = '`overflow` "reject-publish" needs a `max_length` or `max_bytes`'
        yield "overflow", f"{reason}: without one it is never full", "write one, or leave it out"
    if config.filter:
        reason = '`overflow` "reject-publish" does not go with `filter`: publishers of the topic '
        hint = "leave one of them out, or bind the queue to a headers exchange instead"
        yield "overflow", f"{reason}would be refused messages that do not enter", hint
    if config.scope == "group-local":
        reason = '`overflow` "reject-publish" does not go with scope "group-local": what is '
        hint = 'leave it out, or write scope = "distributed" or "local"'
        yield "overflow", f"{reason}published at other instances cannot be refused here", hint


def _of_work(config: QueueConfig) -> Iterator[_Contradiction]:
    if config.max_hold:
        reason = "a work queue has no `max_hold`: a message stays until it is acknowledged"
        hint = 'leave it out, or write kind = "replayable"; `expiration` gives up old messages'
        yield "max_hold", reason, hint
    yield from _of_overflow(config) if config.refuses_publishes else ()
    if config.priority and config.barrier:
        reason = "`priority` does not go with `barrier`: it would let messages pass the barrier"
        yield "priority", reason, "leave one of them out"
    if config.single_active_consumer and config.barrier:
        reason = "`single_active_consumer` does not go with `barrier`: that goes to every consumer"
        yield "single_active_consumer", reason, "leave one of them out"
    if config.priority and config.group_key:
        reason = "`priority` does not go with `group_key`: messages of a key stay in order"
        yield "priority", reason, "leave one of them out"
    if 0 < config.max_backlog < config.max_per_subscription:
        reason = "`max_per_subscription` is more than `max_backlog`, which no consumer can reach"
        hint = "write a max_per_subscription of max_backlog at most"
        yield "max_per_subscription", reason, hint
    if config.expiration_model != "default" and not config.expiration:
        reason = "this `expiration_model` needs an `expiration`"
        hint = "write one, or leave out the model: then each message's own expiry holds"
        yield "expiration_model", reason, hint
    if len(config.retry_delay) > RETRY_DELAYS_MAX:
        reason = f"`retry_delay` has more than {RETRY_DELAYS_MAX} delays"
        yield "retry_delay", reason, "the last one holds for all that follow"
