"""tools/code_lines.py: what is code and what is not."""

from __future__ import annotations

import pytest

from tools.code_lines import Count, code_lines, count, cython_lines, table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ('"""Doc.\n\nMore."""\n', 0),
        ("import a\nfrom b import (\n    c,\n    d,\n)\n", 0),
        ("# comment\n\nx = 1  # why\n", 1),
        ("x = [\n    1,\n\n    # comment\n    2,\n]\n", 4),
        ('x = """a\n\nb"""\n', 3),
        (
            'class A:\n    """Doc."""\n\n    def f(self):\n        """Doc."""\n        return 1\n',
            3,
        ),
        ('class A:\n    x: int\n    """No docstring."""\n', 3),
        ("def f() -> None:\n    import a\n\n    a.b()\n", 2),
    ],
)
def test_code_is_what_is_left_without_docs_imports_blanks(text: str, expected: int) -> None:
    assert code_lines(text) == expected


CYTHON = '''# cython: language_level=3
"""Doc."""
from libc.string cimport memcpy
import a

cdef extern from *:
    """
    #define ONE 1
    """
    int ONE

cdef inline int f(char* at,
                  int n) except -1:
    """Doc."""
    memcpy(<char*>at, "x", &n)  # why
    return ONE
'''


def test_c_in_cython_is_code_and_its_docs_are_not() -> None:
    assert cython_lines(CYTHON) == 9
    assert count([("a.pyx", CYTHON)]) == {".": Count(1, 16, 9)}


def test_files_are_counted_by_folder() -> None:
    found = count([("a.py", "x = 1\n"), ("b/c.py", "import a\n\ny = 1\n"), ("b/d/e.py", "z = 1\n")])
    assert found == {".": Count(1, 1, 1), "b": Count(2, 4, 2)}
    assert "| all | 3 | 5 | 3 |" in table(found, {})
    assert "| b/ | 2 (0) | 4 (0) | 2 (0) |" in table(found, {".": Count(1, 1, 1)})
