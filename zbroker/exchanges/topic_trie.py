"""Bindings of a topic exchange as a trie of words, and what matches a routing key. Pure.

    binding key   words between dots; `*` is exactly one word, `#` any number of them, also none
    routing key   words between dots; `*` and `#` are words like others here

The AMQP texts leave open what empty words are. Here it is as in RabbitMQ: the empty key has no
words, every dot parts two words, and a word may be empty. So `a..b` has three words, `.` has two,
and `#` matches the empty key, which `*` does not. A `*` or `#` beside other characters of its word,
as in `a*`, is an ordinary character.

All nodes that the words so far lead to are followed at once, each of them once a word. Trying one
way after the other, as RabbitMQ does, takes exponential time for keys with several `#`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, Generic, TypeVar

_STAR: Final = b"*"
_HASH: Final = b"#"
_DOT: Final = b"."

T = TypeVar("T")


def words_of(key: bytes) -> list[bytes]:
    """The words of a key; none of an empty one."""
    return key.split(_DOT) if key else []


def normal_form(words: Iterable[bytes]) -> list[bytes]:
    """The shortest binding key that matches the same: in a run of wildcards each `*`, then one `#`.

    `#.#` becomes `#`, and `#.*` becomes `*.#`: one node for each, and no `#` follows another one.
    """
    found: list[bytes] = []
    for wild, run in groupby(words, lambda word: word in (_STAR, _HASH)):
        many = list(run)
        if wild:
            found += [_STAR] * many.count(_STAR) + [_HASH] * (_HASH in many)
        else:
            found += many
    return found


def hashes_of(key: bytes) -> int:
    """How many `#` a binding key has in its normal form: what its matching costs."""
    return normal_form(words_of(key)).count(_HASH)


class _Node(Generic[T]):
    """A place after some words. words: what a word leads to; star: any word; tail: the node of a
    `#`, which is reached without a word, and stays for every word that follows."""

    __slots__ = ("star", "tail", "targets", "words")

    def __init__(self) -> None:
        self.words: dict[bytes, _Node[T]] = {}
        self.star: _Node[T] | None = None
        self.tail: _Node[T] | None = None
        self.targets: dict[T, int] = {}

    def is_empty(self) -> bool:
        """True if no binding ends here or goes through here."""
        return not (self.words or self.targets or self.star or self.tail)

    def next(self, word: bytes) -> _Node[T] | None:
        """Where a word of a binding key leads."""
        if word == _STAR:
            return self.star
        return self.tail if word == _HASH else self.words.get(word)

    def link(self, word: bytes, node: _Node[T] | None) -> None:
        """Lets a word of a binding key lead to `node`; None: to nothing any more."""
        if word == _STAR:
            self.star = node
        elif word == _HASH:
            self.tail = node
        elif node is None:
            del self.words[word]
        else:
            self.words[word] = node


class TopicTrie(Generic[T]):
    """Targets by binding key. The same pair may be added several times, and is counted."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, key: bytes, target: T) -> None:
        """`target` gets what matches `key`."""
        node = self._root
        for word in normal_form(words_of(key)):
            after = node.next(word)
            if after is None:
                after = _Node()
                node.link(word, after)
            node = after
        node.targets[target] = node.targets.get(target, 0) + 1

    def remove(self, key: bytes, target: T) -> None:
        """Takes back one `add` of the same pair, and the nodes that nothing needs any more."""
        path: list[tuple[_Node[T], bytes]] = []
        node = self._root
        for word in normal_form(words_of(key)):
            after = node.next(word)
            assert after is not None, "it was added"
            path.append((node, word))
            node = after
        node.targets[target] -= 1
        if not node.targets[target]:
            del node.targets[target]
        for before, word in reversed(path):
            if not node.is_empty():
                return
            before.link(word, None)
            node = before

    def match(self, key: bytes) -> set[T]:
        """The targets that have a binding for this routing key.

        Costs at most one step for each node and word; limits of bindings bound the nodes.
        """
        tails: dict[_Node[T], None] = {}  # nodes of a `#`, which stay
        active = dict.fromkeys(_reached(self._root, tails))
        for word in words_of(key):
            after: dict[_Node[T], None] = dict.fromkeys(tails)
            for node in active:
                for found in (node.words.get(word), node.star):
                    if found is not None:
                        after.update(dict.fromkeys(_reached(found, tails)))
            active = after
        return {target for node in active for target in node.targets}


def _reached(node: _Node[T], tails: dict[_Node[T], None]) -> Iterator[_Node[T]]:
    """`node`, and that of a `#` after it, which is remembered in `tails`."""
    yield node
    if node.tail is not None:
        tails[node.tail] = None
        yield node.tail
