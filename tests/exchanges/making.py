"""Random keys and headers that meet: few words, few values, every kind of them."""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis import strategies as st

WILD = ("*", "#")
patterns = st.lists(st.sampled_from(("a", "b", "", *WILD, *WILD, "a*")), max_size=7).map(".".join)
keys = st.lists(st.sampled_from(("a", "b", "c", "", *WILD)), max_size=7).map(".".join)

names = st.sampled_from(["n", "m", "x-n"])
values = st.sampled_from([None, True, False, 1, 1.0, 0, "1", "v", b"v", b"\xff", 2**64 - 1, 0.5])
matches = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])
headers = st.none() | st.dictionaries(names, values, max_size=3)
arguments = st.just({}) | st.builds(
    lambda match, more: {"x-match": match, **more}, matches, st.dictionaries(names, values)
)


def cases(examples: int) -> settings:
    """So many of them, the same each time; one that fails is shown as it came."""
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
