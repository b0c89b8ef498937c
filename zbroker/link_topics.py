"""What a link to another instance carries: topics, and of these what a filter is true for. Pure.

`*` is any text, also for none, as in access rules. Two lists that mean the same have one
digest: patterns are sorted, and those that another one of the list has in it are left out. Digest
0 is everything.

A filter is compared as a text in which white space between words is one space. What it says of a
payload depends on how that is read, so the digest covers the types of payloads, too, where it
reads any: two sources with the same digest never send different messages. Without a filter a digest
is what it was before there were any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Final

from zbroker.errors import ClientError
from zbroker.limits import TOPIC_MAX_BYTES, U63_MAX
from zbroker.topics import (
    CACHED_TOPICS_MAX,
    TYPE_DEFAULT,
    TopicCache,
    TopicPattern,
    TopicType,
)

ANY: Final = "*"
PATTERNS_MAX: Final = 1_000  # a topic that is new is compared with all of them
FILTER_MAX_CHARS: Final = 8_192  # as in zbroker.filters, which a process without filters lacks
_STARS: Final = re.compile(r"\*+")
#: what of a filter is kept as it is: raw texts, texts, paths in brackets; and white space
_KEPT: Final = re.compile(
    r"""((?<!\w)[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
    r"""|\[/(?:[^\[\]]|\[[0-9]+\])*\])|\s+""",
    re.DOTALL,
)
_APART: Final = b"\0\0"  # no pattern is empty, so a list of topics never has this


class LinkTopics:
    """Which topics a link carries. patterns: the shortest list of this meaning; none: all of them.

    filter: of their messages only those are carried for which it is true; "": all. types: see
    `types_digest`. Equal ones have one digest. Records without topics belong to every list: they
    say something of their origin.
    """

    def __init__(self, patterns: Iterable[str] = (), filter: str = "", types: int = 0) -> None:  # noqa: A002
        """The filter is not compiled here. Raises: ClientError bad_topic, too_many."""
        texts = sorted({_STARS.sub(ANY, checked(text)) for text in patterns})
        if len(texts) > PATTERNS_MAX:
            raise ClientError("too_many", f"{len(texts)} topics, at most {PATTERNS_MAX}")
        self._compiled = {text: TopicPattern(_expression(text)) for text in texts}
        kept = [text for text in texts if not self._is_in_another(text)]
        self.patterns: tuple[str, ...] = () if ANY in kept else tuple(kept)
        self._compiled = {text: self._compiled[text] for text in self.patterns}
        self._known = TopicCache(self._judge, CACHED_TOPICS_MAX)
        self.filter = _spaced(filter) if filter else ""
        self.types = types if self.filter else 0

    def _is_in_another(self, text: str) -> bool:
        return any(pattern(text) for other, pattern in self._compiled.items() if other != text)

    def _judge(self, topic: str) -> bool:
        return not self.patterns or any(fits(topic) for fits in self._compiled.values())

    def __call__(self, topic: str) -> bool:
        """True if messages of this topic are carried."""
        return self._known[topic]

    def any_of(self, topics: Iterable[str]) -> bool:
        """True if one of these is carried."""
        return any(map(self._known.__getitem__, topics))

    def all_of(self, topics: Iterable[str]) -> bool:
        """True if all of these are carried."""
        return all(map(self._known.__getitem__, topics))

    def covers(self, pattern: str) -> bool:
        """True if all topics of another pattern are carried, as far as one pattern says so."""
        text = _STARS.sub(ANY, pattern)
        return not self.patterns or any(fits(text) for fits in self._compiled.values())

    @property
    def is_everything(self) -> bool:
        """True if nothing is left out."""
        return not self.patterns and not self.filter

    @cached_property
    def digest(self) -> int:
        """What names this in rows and Hellos: 0 of everything, else 1 to 2**63 - 1."""
        if self.is_everything:
            return 0
        data = "\0".join(self.patterns).encode()
        if self.filter:
            data = _APART.join((data, self.filter.encode(), b"%d" % self.types))
        return int.from_bytes(blake2b(data, digest_size=8).digest()) & U63_MAX or 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkTopics) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[tuple[str, ...], str, int]:
        return self.patterns, self.filter, self.types

    def __str__(self) -> str:
        """For people."""
        topics = ", ".join(self.patterns) or "all topics"
        return f"{topics} where {self.filter}" if self.filter else topics

    def __repr__(self) -> str:
        return f"LinkTopics({list(self.patterns)}, {self.filter!r}, {self.types})"


EVERYTHING: Final = LinkTopics()


def checked(text: str) -> str:
    """A name or pattern that some topic fits. Raises: ClientError bad_topic."""
    if not text or not text.isprintable():
        raise ClientError("bad_topic", f"{text[:64]!r} is not printable text")
    if len(text.replace(ANY, "").encode()) > TOPIC_MAX_BYTES:
        raise ClientError("bad_topic", f"{text[:64]!r} is longer than {TOPIC_MAX_BYTES} bytes")
    return text


def _expression(text: str) -> str:
    return ".*".join(map(re.escape, text.split(ANY)))


def types_digest(types: Sequence[TopicType]) -> int:
    """What names the types by which payloads are read: 0 if all are the default, else up to
    2**63 - 1. types: the first one that fits a topic counts; the default if none does."""
    last = max((n for n, one in enumerate(types, 1) if one.type != TYPE_DEFAULT), default=0)
    if not last:
        return 0
    fields = [(one.topic, "r" if one.regex else "", one.type) for one in types[:last]]
    data = "\0".join(text for each in fields for text in each).encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest()) & U63_MAX or 1


def _spaced(text: str) -> str:
    """A filter with one space for all white space between its words."""
    return _KEPT.sub(lambda found: found[1] or " ", text).strip()
