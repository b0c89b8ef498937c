"""zbroker/toml_source.py: the line of a key in a TOML text."""

from __future__ import annotations

import pytest

from zbroker.toml_source import KeyPath, find_line

TEXT = """\
# [principal.a]
[principal.a]  # a comment
keys = [
    "a=b",
]
"names" = []

[principal."b.c"]
keys = []
[[role.r.allow]]
actions = ["*"]
[[role.r.allow]]
actions = ["*"]
topics = ["x"]
[[role.r.deny]]
actions = ["*"]
[[role.s.allow]]
filter = "[x]"
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("principal", "a"), 2),
        (("principal", "a", "keys"), 3),
        (("principal", "a", "names"), 6),
        (("principal", "a", "roles"), 2),
        (("principal", "b.c", "keys"), 9),
        (("role", "r", "allow", 0), 10),
        (("role", "r", "allow", 0, "topics"), 10),
        (("role", "r", "allow", 1, "actions"), 13),
        (("role", "r", "allow", 1, "topics"), 14),
        (("role", "r", "deny", 0, "actions"), 16),
        (("role", "s", "allow", 0, "filter"), 18),
        (("nothing",), 0),
        ((), 0),
    ],
)
def test_the_line_of_a_path_is_found(path: KeyPath, line: int) -> None:
    assert find_line(TEXT, path) == line


@pytest.mark.parametrize("text", ["", "[", "[[", "= 1", "[a\n'", "[]", "[[]]", "a b = 1"])
def test_what_is_no_toml_has_no_lines(text: str) -> None:
    assert find_line(text, ("a",)) == 0
