"""Which messages of a batch are recorded where their content decides. Pure.

A payload that is not what its type says is not recorded: no filter is true for it. A batch in which
no message can be meant is seen by a search in its bytes and not unpacked.
"""

from __future__ import annotations

from collections.abc import Sequence

from zbroker.recording import RecordFilter, Recording
from zbroker.wire import bodies
from zbroker.wire.internal import Entry
from zbroker.wire.messages import Columns, Publish


class Messages:
    """The messages of a body, unpacked when somebody asks for them."""

    def __init__(
        self, entry: Entry, body: bytes, max_bytes: int, messages: list[bytes] | None = None
    ) -> None:
        """A checked body of at most `max_bytes` without its compression."""
        self._entry = entry
        self._body = body
        self._max_bytes = max_bytes
        self._plain: bodies.Body | None = None
        self._all = messages

    @property
    def plain(self) -> bodies.Body:
        """The packed body without its compression."""
        if self._plain is None:
            self._plain = bodies.inflate(self._body, self._entry.codec, self._max_bytes)
        return self._plain

    @property
    def all(self) -> list[bytes]:
        """All of them, in order."""
        if self._all is None:
            self._all = bodies.unpack(self.plain, None, self._entry.count, self._max_bytes)
        return self._all


class Contents:
    """Decides by content, and counts.

    filtered: messages that a filter kept out of the log. unreadable: those of them whose payload is
    not what its type says, as far as they were unpacked. A message that comes again counts again.
    """

    def __init__(self, recording: Recording) -> None:
        self.filtered = 0
        self.unreadable = 0
        self._recording = recording

    def decide(
        self, recorded: list[bool | None], index: Sequence[int], entry: Entry, messages: Messages
    ) -> None:
        """Puts True or False into `recorded` where it says None.

        index: for each message, which of the topics of `entry` it has.
        """
        about = About(entry.topics, index, entry.columns, entry.time_ns)
        for content, topics in self._deciders(entry.topics).items():
            at: Sequence[int] = range(entry.count)
            if len(topics) < len(entry.topics):
                at = [n for n, topic in enumerate(index) if topic in topics]
            picked = self._picked(content, at, messages, about)
            for n in at:
                recorded[n] = n in picked

    def _deciders(self, topics: list[str]) -> dict[RecordFilter, set[int]]:
        """Who decides over which of the topics; those that need no look are left out."""
        deciders: dict[RecordFilter, set[int]] = {}
        for number, topic in enumerate(topics):
            if self._recording.kind(topic) is None:
                deciders.setdefault(self._recording.content(topic), set()).add(number)
        return deciders

    def _picked(
        self, content: RecordFilter, at: Sequence[int], messages: Messages, about: About
    ) -> set[int]:
        if not content.maybe(messages.plain):
            self.filtered += len(at)
            return set()
        picked, unreadable = content.look(messages.all, at, about)
        self.filtered += len(at) - len(picked)
        self.unreadable += unreadable
        return picked


class About:
    """What a filter may ask of a message that has no place in the log yet.

    A time is there only if its publisher gave one (0 else), so that the answer stays the same when
    the message comes again.
    """

    def __init__(
        self,
        topics: Sequence[str],
        index: Sequence[int],
        columns: Columns | None,
        time_ns: int | None,
        single: Publish | None = None,
    ) -> None:
        """index: for each message, which of the topics it has. single: what is one message."""
        self._topics = topics
        self._index = index
        self._columns = columns
        self._time_ns = time_ns
        self._headers = bodies.HeaderColumn(columns, len(index))
        self._keys = bodies.KeyColumn(columns, len(index))
        self._single = single if single is not None and single.count is None else None

    def topic(self, i: int) -> str:
        """Its topic."""
        return self._topics[self._index[i]]

    def time_ns(self, i: int) -> int:
        """What its publisher gave."""
        if self._columns is not None and self._columns.time is not None:
            return bodies.times(self._columns.time[8 * i : 8 * i + 8])[0]
        return self._time_ns or 0

    def bookmark(self, _i: int) -> str:
        """None: it may never get one."""
        return ""

    def header(self, i: int, name: str) -> object:
        """What its publisher gave."""
        if self._single is None:
            return self._headers.value(i, name)
        value = (self._single.headers or {}).get(name)
        return None if value is None else bodies.scalar(value)

    def key(self, i: int) -> bytes | None:
        """What its publisher gave."""
        return self._keys.of(i) if self._single is None else self._single.key
