"""Topic patterns (zbroker/exchanges/topic_trie.py): vectors, and a model without a trie."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.exchanges.making import cases, keys, patterns
from tests.exchanges.naive_matching import topic_matches
from tests.exchanges.planted import planted
from zbroker.exchanges import topic_trie
from zbroker.exchanges.topic_trie import TopicTrie, hashes_of, normal_form, words_of

EXAMPLES = 500
SOUGHT = 2_000  # in which a planted bug is found
TARGETS = 3  # several patterns have one

#: pattern, keys that it matches, keys that it does not match; "" is the empty key
VECTORS = [
    ("a.*.b", ["a.xx.b", "a..b", "a.*.b"], ["a.b", "a.x.y.b", "a.xx.b."]),
    ("*.x", [".x", "y.x"], ["x", "", "x.x.x"]),
    ("x.x.*", ["x.x.", "x.x.y"], ["x.x", "x.x.y.z"]),
    ("a.#.b", ["a.b", "a..b", "a.x.b", "a..x.y.zz.b"], ["a.b.", "a", "b", ".a.b", "ab"]),
    ("a.#", ["a", "a.", "a.b", "a.b.c"], ["", "b", "ab", ".a"]),
    ("#.a", ["a", ".a", "b.a", "a.a.a"], ["", "a.", "a.b", "ba"]),
    ("*.x.#.y", ["a.x.y", ".x..y", "a.x.b.c.y", "x.x.y.y"], ["a.a.x.y", "x.y", "a.x.y.z"]),
    ("*.*.*.#", ["x.y.z", "..", "x.y.z.w"], ["x.y", ".", ""]),
    ("#.*.#.*.#.#.*", ["x.y.z", "..", "x.y.z.w"], ["x.y", ".", ""]),
    ("#", ["", "a", ".", "a.b.c", "#"], []),
    ("#.#", ["", "a", ".", "a.b.c"], []),
    ("*", ["a", "*", "#", "oneword"], ["", ".", "a.b"]),
    ("#.*", ["a", ".", "a.b"], [""]),
    ("*.#", ["a", ".", "a.b"], [""]),
    ("", [""], ["a", ".", "#", "*"]),
    (".", ["."], ["", "..", "a.", ".a"]),
    ("a..b", ["a..b"], ["a.b", "a...b", "a.x.b"]),
    ("a.", ["a."], ["a", "a.b", "a.."]),
    ("*.", ["a.", "."], ["a", "", ".."]),
    ("#.", [".", "a.", ".."], ["", "a", ".a"]),
    ("a*", ["a*"], ["ab", "a", "a.b"]),
    ("#a.b", ["#a.b"], ["a.b", "x.a.b"]),
    ("#.a.#.a.#", ["a.a", "a.b.a", "x.a.a.x", "a.a.a"], ["a", "a.b", ""]),
    ("é.*", ["é.ü"], ["e.ü", "é"]),
]


def matches(pattern: str, key: str, module: ModuleType = topic_trie) -> bool:
    trie = module.TopicTrie()
    trie.add(pattern.encode(), "target")
    return bool(trie.match(key.encode()) == {"target"})


@pytest.mark.parametrize(("pattern", "yes", "no"), VECTORS, ids=[row[0] or "-" for row in VECTORS])
def test_a_pattern_matches_its_keys_and_no_others(
    pattern: str, yes: list[str], no: list[str]
) -> None:
    assert [key for key in yes if not matches(pattern, key)] == []
    assert [key for key in no if matches(pattern, key)] == []


@pytest.mark.parametrize(("pattern", "yes", "no"), VECTORS, ids=[row[0] or "-" for row in VECTORS])
def test_the_model_has_the_same_vectors(pattern: str, yes: list[str], no: list[str]) -> None:
    assert all(topic_matches(pattern, key) for key in yes)
    assert not any(topic_matches(pattern, key) for key in no)


@pytest.mark.parametrize(
    ("pattern", "normal"),
    [
        ("#.#", "#"),
        ("#.*", "*.#"),
        ("#.*.#.*.#.#.*", "*.*.*.#"),
        ("a.#.#.b.*.#.*", "a.#.b.*.*.#"),
        ("a.*.b", "a.*.b"),
        ("", ""),
        ("..", ".."),
    ],
)
def test_wildcards_side_by_side_have_one_form(pattern: str, normal: str) -> None:
    assert normal_form(words_of(pattern.encode())) == words_of(normal.encode())


def test_a_pattern_costs_its_hashes_after_they_were_joined() -> None:
    assert hashes_of(b"#.#.*.#.a.#.b#") == 2


def test_a_target_of_several_patterns_is_found_once() -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in (b"a.*", b"a.#", b"#"):
        trie.add(pattern, "q")
    assert trie.match(b"a.b") == {"q"}


def test_an_added_pair_is_there_until_it_was_removed_as_often() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(b"#.#.a", "q")
    trie.add(b"#.a", "q")  # the same, in another form
    trie.remove(b"#.#.a", "q")
    assert trie.match(b"x.a") == {"q"}
    trie.remove(b"#.a", "q")
    assert trie.match(b"x.a") == set()


def test_nothing_is_left_of_removed_patterns() -> None:
    trie: TopicTrie[int] = TopicTrie()
    many = [b"a.b.c", b"a.b", b"a.*.#", b"#", b"", b"a.b.c.#.d"]
    for number, pattern in enumerate(many):
        trie.add(pattern, number)
    for number, pattern in enumerate(many):
        trie.remove(pattern, number)
    assert trie._root.is_empty()


def test_many_hashes_take_polynomial_time() -> None:
    """Trying one way after the other would take longer than any limit of a test."""
    trie: TopicTrie[str] = TopicTrie()
    trie.add(b"#." + b"a.#." * 20 + b"b", "q")
    assert trie.match(b".".join([b"a"] * 120)) == set()
    assert trie.match(b".".join([b"a"] * 120) + b".b") == {"q"}


# -- against the model ----------------------------------------------------------------------------


def compare(module: ModuleType, examples: int) -> None:
    """Patterns are added, some are removed again; then keys find what the model says."""

    @cases(examples)
    @given(st.lists(patterns, max_size=6), st.lists(keys, min_size=1, max_size=4), st.integers(0))
    def judge(added: list[str], asked: list[str], gone: int) -> None:
        trie = module.TopicTrie()
        for number, pattern in enumerate(added):
            trie.add(pattern.encode(), number % TARGETS)
        left = dict(enumerate(added))
        for number, pattern in enumerate(added):
            if gone >> number & 1:
                trie.remove(pattern.encode(), number % TARGETS)
                del left[number]
        for key in asked:
            expected = {
                number % TARGETS for number, text in left.items() if topic_matches(text, key)
            }
            assert trie.match(key.encode()) == expected, key

    judge()


def test_any_patterns_and_keys_match_as_in_the_model() -> None:
    compare(topic_trie, EXAMPLES)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_hundred_thousand_patterns_and_keys_match_as_in_the_model() -> None:
    compare(topic_trie, 100_000)


PLANTED = {
    "a # needs a word": ("        yield node.tail\n", "        pass\n"),
    "a # takes one word at most": ("dict.fromkeys(tails)\n            for", "{}\n            for"),
    "a # in the beginning ends with the first word": (
        "active = dict.fromkeys(_reached(self._root, tails))",
        "active = dict.fromkeys(_reached(self._root, {}))",
    ),
    "what follows a # is not looked for": (
        "            for node in active:\n",
        "            for node in (one for one in active if one not in tails):\n",
    ),
    "a * beside a # is lost": ("[_STAR] * many.count(_STAR) + ", ""),
    "a * stays behind its #": (
        "[_STAR] * many.count(_STAR) + [_HASH] * (_HASH in many)",
        "[_HASH] * (_HASH in many) + [_STAR] * (_STAR in many)",
    ),
    "a * is forgotten": ("(node.words.get(word), node.star)", "(node.words.get(word),)"),
    "a * hides a word": (
        "(node.words.get(word), node.star)",
        "(node.star or node.words.get(word),)",
    ),
    "a * takes no empty word": (
        "(node.words.get(word), node.star)",
        "(node.words.get(word), node.star if word else None)",
    ),
    "the empty key has a word": ("key.split(_DOT) if key else []", "key.split(_DOT)"),
    "a removed pattern takes its like along": (
        "        if not node.targets[target]:\n",
        "        if True:\n",
    ),
    "a removed pattern takes shorter ones along": (
        "            if not node.is_empty():\n                return\n",
        "",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_by_the_model(name: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        compare(planted(topic_trie, *PLANTED[name]), SOUGHT)
