"""The topics that a link to another instance carries: a list of names and patterns. Pure.

`*` is any text, also for none, as in access rules. Two lists that mean the same have one
digest: patterns are sorted, and those that another one of the list has in it are left out. Digest
0 is everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from hashlib import blake2b
from typing import Final

from zbroker.errors import ClientError
from zbroker.limits import TOPIC_MAX_BYTES, U63_MAX
from zbroker.topics import CACHED_TOPICS_MAX, TopicCache, TopicPattern

ANY: Final = "*"
PATTERNS_MAX: Final = 1_000  # a topic that is new is compared with all of them
_STARS: Final = re.compile(r"\*+")


class LinkTopics:
    """Which topics a link carries. patterns: the shortest list of this meaning; none: everything.

    Equal ones have one digest. Records without topics belong to every list: they say something of
    their origin.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Raises: ClientError bad_topic, too_many."""
        texts = sorted({_STARS.sub(ANY, checked(text)) for text in patterns})
        if len(texts) > PATTERNS_MAX:
            raise ClientError("too_many", f"{len(texts)} topics, at most {PATTERNS_MAX}")
        self._compiled = {text: TopicPattern(_expression(text)) for text in texts}
        kept = [text for text in texts if not self._is_in_another(text)]
        self.patterns: tuple[str, ...] = () if ANY in kept else tuple(kept)
        self._compiled = {text: self._compiled[text] for text in self.patterns}
        self._known = TopicCache(self._judge, CACHED_TOPICS_MAX)

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
        return not self.patterns

    @cached_property
    def digest(self) -> int:
        """What names this list in rows and Hellos: 0 of everything, else 1 to 2**63 - 1."""
        if not self.patterns:
            return 0
        data = "\0".join(self.patterns).encode()
        return int.from_bytes(blake2b(data, digest_size=8).digest()) & U63_MAX or 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkTopics) and self.patterns == other.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def __repr__(self) -> str:
        return f"LinkTopics({list(self.patterns)})"


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
