"""Which instances with empty logs may open as new ones."""

from __future__ import annotations

import pytest

from zbroker.replication.asking_instances import asking_rows, has_answered
from zbroker.replication.holdings import Holdings
from zbroker.wire.replication import ASKING_HOPS_MAX, AskingInstance, Statement

Links = dict[str, str]  # of each instance: the names of those that it asks
STAR = {"a": "bc", "b": "a", "c": "a"}
MESH = {"a": "bc", "b": "ac", "c": "ab"}
CHAIN = {"a": "b", "b": "ac", "c": "bd", "d": "c"}
RING = {"a": "bd", "b": "ac", "c": "bd", "d": "ac"}


class Instances:
    """New ones, and `has`: those that are not, or are silent. Each beat all hear all that they ask,
    as it was before."""

    def __init__(self, links: Links, has: str = "", silent: str = "") -> None:
        self.links, self.has, self.silent = links, has, silent
        self.awaits = {name: set(links[name]) for name in links if name not in has}
        self.said: dict[str, list[AskingInstance]] = {name: [] for name in links}
        self.opened: set[str] = set()
        self.say()

    def asks(self, name: str) -> bool:
        return name not in self.has and name not in self.opened

    def peers(self, name: str) -> dict[str, Holdings]:
        """What it hears."""
        found = {}
        for number, other in enumerate(self.links[name]):
            if other not in self.silent:
                found[other] = peer = Holdings()
                peer.take(Statement(number + 1, 1, 1, 1, [], asking=self.said[other]), whole=True)
        return found

    def say(self) -> None:
        rows = {}
        for name in self.links:
            awaits = sorted(self.awaits[name]) if self.asks(name) else None
            rows[name] = asking_rows(name, awaits, self.peers(name).values())
        self.said = rows

    def beat(self) -> None:
        for name in filter(self.asks, self.links):
            if name in self.silent:
                continue
            for other, peer in self.peers(name).items():
                if other not in self.has and has_answered(peer, self.said[name], name):
                    self.awaits[name].discard(other)
        self.opened |= {name for name in filter(self.asks, self.links) if not self.awaits[name]}
        self.say()


@pytest.mark.parametrize("links", [{"a": "b", "b": "a"}, STAR, MESH, CHAIN, RING])
def test_all_open_where_all_are_new(links: Links) -> None:
    at = Instances(links)
    for _ in range(2 * len(links)):
        at.beat()
    assert at.opened == {*links}


@pytest.mark.parametrize(("links", "silent"), [(STAR, "c"), (MESH, "c"), (CHAIN, "d"), (RING, "c")])
def test_none_opens_while_one_is_silent(links: Links, silent: str) -> None:
    at = Instances(links, silent=silent)
    for _ in range(3 * len(links)):
        at.beat()
        assert at.opened == set()


@pytest.mark.parametrize(("links", "has"), [(STAR, "c"), (MESH, "c"), (CHAIN, "d"), (RING, "c")])
def test_none_opens_while_one_has_something(links: Links, has: str) -> None:
    """Those beside it get it, and say that they do; the others wait for these."""
    at = Instances(links, has=has)
    for _ in range(3 * len(links)):
        at.beat()
        assert at.opened == set()


def test_one_that_is_open_and_has_nothing_has_answered() -> None:
    assert has_answered(Holdings(), [], "a")


def test_one_that_fills_has_not() -> None:
    peer = Holdings()
    peer.filling = True
    assert not has_answered(peer, [], "a")


@pytest.mark.parametrize(("name", "answered"), [("a", True), ("", False)])
def test_one_that_asks_counts_at_an_instance_that_is_not_open(name: str, *, answered: bool) -> None:
    """Also at one that has something already. An open one closes nothing by the word of a new
    disk."""
    peer = Holdings()
    peer.asking = [AskingInstance("b", ["a"])]
    assert has_answered(peer, [], name) == answered


def test_what_was_heard_of_others_before_counts() -> None:
    peer, other = Holdings(), AskingInstance("c", ["a", "b"], 1)
    peer.asking = [AskingInstance("b", ["a", "c"])]
    assert not has_answered(peer, [], "a")
    assert has_answered(peer, [other], "a")


def test_a_word_that_is_repeated_ends() -> None:
    """Two instances repeat to each other that a third one asks, which does not any more."""
    one, other = Holdings(), Holdings()
    other.asking = [AskingInstance("gone", ["x"], 1)]
    for _ in range(ASKING_HOPS_MAX):
        one.asking = asking_rows("one", None, [other])
        other.asking = asking_rows("other", None, [one])
    assert one.asking == other.asking == []


def test_an_instance_speaks_for_itself() -> None:
    """What others repeat of it is older than what it says."""
    peer = Holdings()
    peer.asking = [AskingInstance("b", ["a"]), AskingInstance("a", ["b", "c"], 1)]
    assert asking_rows("a", ["c"], [peer]) == [
        AskingInstance("a", ["c"]), AskingInstance("b", ["a"], 1),
    ]  # fmt: skip
    assert asking_rows("a", None, [peer]) == [AskingInstance("b", ["a"], 1)]
