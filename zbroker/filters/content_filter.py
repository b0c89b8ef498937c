"""Filters as others use them: made once from a text, then asked batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import repeat
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from zbroker.errors import ClientError
from zbroker.filters import compiler, needs
from zbroker.filters.limits import FIELDS_APART_MAX, STEPS_AT_ONCE_MAX
from zbroker.filters.nodes import Node, asks_message, fields_of, steps_of
from zbroker.filters.parser import parse
from zbroker.filters.paths import as_number
from zbroker.filters.payloads import BROKEN, Payloads, check_type
from zbroker.filters.vocabulary import BUILT_IN, Vocabulary

_DECODERS: Final[dict[str, Callable[..., Any]]] = {
    "json": msgspec.json.Decoder,
    "auto": msgspec.json.Decoder,
    "msgpack": msgspec.msgpack.Decoder,
}


class MessageMetadata(Protocol):
    """The properties of the messages of a batch besides their payloads, by index."""

    def topic(self, i: int) -> str: ...

    def time_ns(self, i: int) -> int:
        """Log time; 0 if it has none."""

    def bookmark(self, i: int) -> str:
        """Empty if it has none."""

    def header(self, i: int, name: str) -> object:
        """None if it has none of this name."""

    def key(self, i: int) -> bytes | None: ...


def compile_filter(text: str, vocabulary: Vocabulary = BUILT_IN) -> Filter:
    """The filter that a text describes; the same one as long as somebody has it.

    vocabulary: what it may call.
    Raises: ClientError bad_filter; the reason names the column, from 1, and what was expected.
    """
    asked_by = vocabulary.asked_by(text)
    if vocabulary.own:  # not known by their names alone
        return Filter(text, parse(text, vocabulary), asked_by)
    key = _key(text, vocabulary)
    found = _IN_USE.get(key)
    if found is None:
        found = _IN_USE[key] = Filter(text, parse(text, vocabulary), asked_by)
    return found


def chars_to_compile(text: str | None, vocabulary: Vocabulary = BUILT_IN) -> int:
    """How much of a filter is still to be compiled: nothing, if somebody has the same."""
    if not text or (not vocabulary.own and _key(text, vocabulary) in _IN_USE):
        return 0
    return len(text)


def _key(text: str, vocabulary: Vocabulary) -> Hashable:
    return text, vocabulary.asked_by(text), vocabulary.fixed


def compile_at_once(text: str, vocabulary: Vocabulary = BUILT_IN) -> Filter:
    """A filter of somebody's own for where a batch is looked at without a break.

    Raises: ClientError bad_filter.
    """
    found = compile_filter(text, vocabulary)
    check_at_once(found.steps)
    return found


def check_at_once(steps: int) -> None:
    """Raises: ClientError bad_filter for one whose regular expressions have too many steps."""
    if steps > STEPS_AT_ONCE_MAX:
        reason = f"its regular expressions have {steps} steps, here {STEPS_AT_ONCE_MAX}"
        raise ClientError("bad_filter", f"{reason} are allowed: others would have to wait")


class Filter:
    """What messages have to be like. `text` is what it was made from.

    key: filters with the same key have the same answer for the same message.
    steps: of all its regular expressions; times the bytes of a batch, that is what it may cost.
    looks: into payloads; not only at topics, headers, keys, times.
    """

    __slots__ = ("__weakref__", "_tests", "_tree", "key", "looks", "steps", "text")

    def __init__(self, text: str, tree: Node, asked_by: Hashable = ()) -> None:
        self.text = text
        self.key: Hashable = (text, asked_by) if asked_by else text
        self.steps = steps_of(tree)
        self.looks = bool(fields_of(tree))
        self._tree = tree
        self._tests: dict[str, Test] = {}

    def test(self, type: str) -> Test:  # noqa: A002
        """The filter for payloads of one type; made once.

        Raises: ValueError for a type that there is not.
        """
        test = self._tests.get(type)
        if test is None:
            check_type(type)
            test = self._tests[type] = Test(self._tree, type)
        return test


#: Making one takes milliseconds, and many subscriptions have the same.
_IN_USE: Final[WeakValueDictionary[Hashable, Filter]] = WeakValueDictionary()


class Test:
    """A filter for payloads of one type.

    A batch is first read field by field, which skips what the filter does not ask for. Skipped
    parts are not checked, so what matches is decoded whole and asked once more: whether a message
    matches never depends on who else looks at the batch.
    """

    __slots__ = ("_apart", "_decode", "_is_dense", "_looks", "_search", "_type", "_whole")

    def __init__(self, tree: Node, type: str) -> None:  # noqa: A002
        self._type = type
        self._looks = bool(fields := fields_of(tree))
        self._search = needs.search_for(tree, type)
        numbers = type in ("fix", "msgpack")
        self._whole = compiler.compile_run(tree, None, numbers=numbers)
        self._is_dense = False  # of the last batch: most matched, so decoding twice costs more
        names = sorted({str(path.steps[0]) for path in fields})
        self._decode = None
        if _can_be_apart(names, type) and not (type == "auto" and self._may_match_nothing(tree)):
            columns = {name: f"f{at}" for at, name in enumerate(names)}
            self._apart = compiler.compile_run(tree, columns, numbers=numbers)
            self._decode = _DECODERS[type](_struct(columns)).decode

    def maybe(self, body: bytes | memoryview) -> bool:
        """False only if no message of this packed body, uncompressed, can match."""
        search = self._search
        return search is None or search(body if isinstance(body, bytes) else bytes(body))

    def picks(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[int]:
        """Which of the messages `at` match, in order. Malformed ones never do."""
        assert payloads.type == self._type, "payloads of another type"
        if not self._looks:
            return self._whole(at, repeat(None), about, payloads.data)
        apart = self._decode
        if payloads.is_shared(self) or payloads.suspect or self._is_dense or apart is None:
            return self._picks_whole(payloads, at, about)
        data = payloads.data
        rows = map(apart, map(data.__getitem__, at))
        try:
            found = self._apart(at, rows, about, data)
        except BROKEN:
            return self._picks_whole(payloads, at, about)
        self._is_dense = 2 * len(found) > len(at)
        return self._of_whole(payloads, found, about) if found else found

    def _picks_whole(
        self, payloads: Payloads, at: Sequence[int], about: MessageMetadata
    ) -> list[int]:
        found = self._of_whole(payloads, at, about)
        self._is_dense = 2 * len(found) > len(at)
        return found

    def _of_whole(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[int]:
        good, values = payloads.values(at)
        return self._whole(good, values, about, payloads.data)

    def _may_match_nothing(self, tree: Node) -> bool:
        """True if a payload without fields may match, such as bytes that are not JSON."""
        return asks_message(tree) or bool(self._whole([0], [None], None, [b""]))


def _can_be_apart(names: list[str], type: str) -> bool:  # noqa: A002
    """True if msgspec can read these names without the rest."""
    if type not in _DECODERS or not 1 <= len(names) <= FIELDS_APART_MAX:
        return False
    if type == "msgpack" and any(as_number(name) is not None for name in names):
        return False  # the key may be a number, too
    return all(name.isprintable() and not set(name) & {"\\", '"'} for name in names)


def _struct(columns: dict[str, str]) -> type[msgspec.Struct]:
    """A class with one attribute per name, None where a payload has no such name."""
    fields = [(column, Any, None) for column in columns.values()]
    rename = {column: name for name, column in columns.items()}
    return msgspec.defstruct("Row", fields, rename=rename, gc=False)
