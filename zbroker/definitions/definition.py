"""A queue as it works: its settings with topics, filters and expressions compiled. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from zbroker.config.queues import QueueConfig
from zbroker.definitions.impossible import bad_queue, refuse_impossible
from zbroker.errors import ClientError
from zbroker.ids import EPOCH, NOW, check_point, check_topic
from zbroker.limits import NAME_MAX_BYTES
from zbroker.topic_types import TopicType, TopicTypes
from zbroker.topics import Matcher, matcher

if TYPE_CHECKING:
    from zbroker.filters import Expression, Filter

_BEGINS: Final = {"epoch": EPOCH, "now": NOW}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Definition:
    """A queue in one of its lives. created: position at which that began. source: config or admin.

    begins: the recovery point as a bookmark, time or vector. type_of: how payloads of a topic are
    read.
    """

    config: QueueConfig
    life: int
    created: int
    source: str
    topics: Matcher
    begins: str
    type_of: Callable[[str], str]
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
    config: QueueConfig, life: int = 1, created: int = 0, source: str = "config",
    types: Sequence[TopicType] = (),
) -> Definition:  # fmt: skip
    """The queue that these settings describe. Raises: BadQueue, with the reason."""
    check_name(config.name)
    refuse_impossible(config)
    topics = _compiled(
        config, "topic", lambda: matcher(config.topic or config.name, regex=config.regex)
    )
    _check_dead_letter(config, topics)
    return Definition(
        config, life, created, source, topics, _begins(config), TopicTypes(types),
        filter=_filter(config, "filter"), priority=_expression(config, "priority"),
        barrier=_filter(config, "barrier"), group_key=_expression(config, "group_key"),
    )  # fmt: skip


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
    topic = config.dead_letter
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
