"""To which queues the messages of a batch go: bindings compiled, with a bounded cache. Pure.

    changes of an ExchangeTable --apply--> Router;  batch --route--> Routes

    direct    a dict                     topic     a trie of words (topic_trie.py)
    fanout    one set for all            headers   an index of conditions (header_index.py)

A message that no binding asks for goes to the alternate exchange, which judges it by its own
bindings and passes nothing on: one hop, so there are no loops. What that does not bind either is
unroutable, and so is a message whose key is not text of at most 255 bytes, whatever the kind.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from zbroker.errors import ClientError
from zbroker.exchanges.exchange import BoundQueue, Exchange, is_key
from zbroker.exchanges.exchange_table import BindingChange, Change, ExchangeChange
from zbroker.exchanges.header_index import Fulfilled, HeaderIndex
from zbroker.exchanges.route_column import QUEUES_MAX, SET_QUEUES_MAX, Routes
from zbroker.exchanges.topic_trie import TopicTrie
from zbroker.wire.bodies import Scalar

CACHED_KEYS_MAX: Final = 10_000  # answers of one exchange; then its memory starts over
CACHED_QUEUES_MAX: Final = 200_000  # likewise, in all of its answers; tens of bytes each
CACHED_CONDITIONS_MAX: Final = 100  # headers that fulfil more are looked up again each time

QueueSet = frozenset[BoundQueue]
Headers = Mapping[str, Scalar]
Question = TypeVar("Question")

_NONE: Final[QueueSet] = frozenset()


class Router:
    """Routes batches by what an ExchangeTable said. version: that of the table, after the last
    changes; 0: nothing was applied."""

    def __init__(self) -> None:
        self.version = 0
        self._routings: dict[str, _Routing] = {}

    def apply(self, changes: Iterable[Change], version: int) -> None:
        """Takes changes over, in their order."""
        for change in changes:
            match change:
                case ExchangeChange(name, definition):
                    self._define(name, definition)
                case BindingChange():
                    self._routings[change.exchange].bind(change)
        self.version = version

    def _define(self, name: str, definition: Exchange | None) -> None:
        if definition is None:
            del self._routings[name]
        elif name in self._routings and self._routings[name].exchange.kind == definition.kind:
            self._routings[name].exchange = definition
        else:
            make = _Headers if definition.kind == "headers" else _Keys
            self._routings[name] = make(definition)

    def check_publish(self, name: str) -> None:
        """Raises: ClientError unknown_exchange; bad_field, unless clients may publish to it."""
        if self._routing(name).exchange.internal:
            reason = f"exchange {name[:64]!r} is internal: it is the alternate of others"
            raise ClientError("bad_field", reason, "publish to one that is not")

    def route(
        self, exchange: str, count: int,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> Routes:  # fmt: skip
        """Where `count` messages go. keys, headers: one of each message; None: it has none.

        Raises: ClientError unknown_exchange; too_many, if they go to more queues than one batch may
        name.
        """
        keys = keys if keys is not None else [None] * count
        assert len(keys) == count
        return numbered(self.find(exchange, keys, headers))

    def find(
        self, exchange: str, keys: Sequence[bytes | None],
        headers: Sequence[Headers | None] | None = None,
    ) -> list[QueueSet]:  # fmt: skip
        """The queues of each message. Raises: ClientError unknown_exchange."""
        assert headers is None or len(headers) == len(keys)
        routing = self._routing(exchange)
        found = routing.find(keys, headers)
        name = routing.exchange.alternate
        alternate = self._routings.get(name) if name else None
        if alternate is not None and _NONE in found:
            left = [at for at, queues in enumerate(found) if not queues]
            picked = None if headers is None else [headers[at] for at in left]
            others = alternate.find([keys[at] for at in left], picked)
            for at, queues in zip(left, others, strict=True):
                found[at] = queues
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._routings

    def asks_headers(self, name: str) -> bool:
        """Whether headers decide about messages to this exchange, or to its alternate."""
        routing = self._routing(name)
        if isinstance(routing, _Headers):
            return True
        return isinstance(self._routings.get(routing.exchange.alternate), _Headers)

    def _routing(self, name: str) -> _Routing:
        routing = self._routings.get(name)
        if routing is None:
            reason = f"there is no exchange {name[:64]!r}"
            raise ClientError("unknown_exchange", reason, "declare it first")
        return routing


def numbered(found: Sequence[QueueSet]) -> Routes:
    """The table of what was found. Raises: ClientError too_many."""
    distinct = list(dict.fromkeys(found))
    queues = sorted(frozenset().union(*distinct))
    if len(queues) > QUEUES_MAX:
        raise _too_many(f"{len(queues)} queues, at most {QUEUES_MAX}")
    if (total := sum(map(len, distinct))) > SET_QUEUES_MAX:
        raise _too_many(f"{len(distinct)} sets of {total} queues in all, at most {SET_QUEUES_MAX}")
    numbers = {queue: number for number, queue in enumerate(queues)}
    sets = tuple(tuple(sorted(map(numbers.__getitem__, each))) for each in distinct)
    places = {each: number for number, each in enumerate(distinct)}
    return Routes(tuple(queues), sets, array("H", map(places.__getitem__, found)))


def _too_many(what: str) -> ClientError:
    reason = f"the messages of this batch go to {what}"
    hint = "publish them in smaller batches; one message goes to that many queues at most"
    return ClientError("too_many", reason, hint)


# -- one exchange ---------------------------------------------------------------------------------


class _Answers(dict[Question, QueueSet]):
    """Answers to questions, each found once; all are forgotten when there are too many.

    Equal answers are one object.
    """

    def __init__(self, find: Callable[[Question], Iterable[BoundQueue]]) -> None:
        super().__init__()
        self._find = find
        self._known: dict[QueueSet, QueueSet] = {}
        self._queues = 0

    def __missing__(self, question: Question) -> QueueSet:
        found = frozenset(self._find(question))
        if len(self) >= CACHED_KEYS_MAX or self._queues + len(found) > CACHED_QUEUES_MAX:
            self.clear()
        if found not in self._known:
            self._known[found] = found
            self._queues += len(found)
        self[question] = found = self._known[found]
        return found

    def clear(self) -> None:
        """Forgets all of them: bindings changed."""
        super().clear()
        self._known.clear()
        self._queues = 0


class _KeyAnswers(_Answers[bytes | None]):
    """Answers by routing key; None is the empty one."""

    def __missing__(self, question: bytes | None) -> QueueSet:
        if question and not is_key(question):
            return _NONE  # not remembered: it may be as long as a message may have it
        return super().__missing__(question)


class _HeaderAnswers(_Answers[Fulfilled]):
    """Answers by conditions."""

    def __missing__(self, question: Fulfilled) -> QueueSet:
        if len(question) > CACHED_CONDITIONS_MAX:
            return frozenset(self._find(question))
        return super().__missing__(question)


class _Routing(Protocol):
    """The bindings of one exchange."""

    exchange: Exchange

    def bind(self, change: BindingChange) -> None:
        """Takes over one change."""

    def find(
        self, keys: Sequence[bytes | None], headers: Sequence[Headers | None] | None
    ) -> list[QueueSet]:
        """The queues of each message."""


class _Keys:
    """Bindings that ask for keys: of a direct, topic or fanout exchange. A kind that only a newer
    release knows binds nothing here."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._bindings: _Bindings = _MATCHERS.get(exchange.kind, _NoBindings)()
        self._answers = _KeyAnswers(lambda key: self._bindings.match(key or b""))

    def bind(self, change: BindingChange) -> None:
        """See _Routing."""
        edit = self._bindings.add if change.bound else self._bindings.remove
        edit(change.key.encode(), change.queue)
        self._answers.clear()

    def find(
        self, keys: Sequence[bytes | None], headers: Sequence[Headers | None] | None
    ) -> list[QueueSet]:
        """See _Routing."""
        return list(map(self._answers.__getitem__, keys))


class _Headers:
    """Bindings that ask for headers."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._index: HeaderIndex[BoundQueue] = HeaderIndex()
        self._answers = _HeaderAnswers(self._index.match)

    def bind(self, change: BindingChange) -> None:
        """See _Routing."""
        conditions = change.conditions
        assert conditions is not None, "a table gives a headers exchange no other bindings"
        (self._index.add if change.bound else self._index.remove)(conditions, change.queue)
        self._answers.clear()

    def find(
        self, keys: Sequence[bytes | None], headers: Sequence[Headers | None] | None
    ) -> list[QueueSet]:
        """See _Routing."""
        answers, project = self._answers, self._index.project
        return [
            answers[project(each)] if not key or is_key(key) else _NONE
            for key, each in zip(keys, headers or [None] * len(keys), strict=True)
        ]


class _Bindings(Protocol):
    """Queues by key; the same pair may be added several times, and is counted."""

    def add(self, key: bytes, target: BoundQueue) -> None: ...

    def remove(self, key: bytes, target: BoundQueue) -> None: ...

    def match(self, key: bytes) -> Iterable[BoundQueue]:
        """Those that get a message with this key."""


class _DirectBindings:
    def __init__(self) -> None:
        self._by_key: dict[bytes, dict[BoundQueue, int]] = {}

    def add(self, key: bytes, target: BoundQueue) -> None:
        counts = self._by_key.setdefault(key, {})
        counts[target] = counts.get(target, 0) + 1

    def remove(self, key: bytes, target: BoundQueue) -> None:
        counts = self._by_key[key]
        counts[target] -= 1
        if not counts[target]:
            del counts[target]
        if not counts:
            del self._by_key[key]

    def match(self, key: bytes) -> Iterable[BoundQueue]:
        return self._by_key.get(key, ())


class _FanoutBindings(_DirectBindings):
    """All bindings are those of one key, which every message has."""

    def add(self, key: bytes, target: BoundQueue) -> None:
        super().add(b"", target)

    def remove(self, key: bytes, target: BoundQueue) -> None:
        super().remove(b"", target)

    def match(self, key: bytes) -> Iterable[BoundQueue]:
        return super().match(b"")


class _NoBindings(_DirectBindings):
    def match(self, key: bytes) -> Iterable[BoundQueue]:
        return ()


_MATCHERS: Final[dict[str, Callable[[], _Bindings]]] = {
    "direct": _DirectBindings,
    "topic": TopicTrie[BoundQueue],
    "fanout": _FanoutBindings,
}
