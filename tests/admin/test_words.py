"""zbroker/admin/words.py: numbers in sentences."""

from __future__ import annotations

import pytest

from zbroker.admin import words


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB"),
     (800 << 20, "800 MiB"), (5 << 40, "5 TiB")],
)  # fmt: skip
def test_sizes_are_rounded(count: int, text: str) -> None:
    assert words.size(count) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (8 * 86_400_000, "8 d")],
)
def test_durations_are_rounded(ms: int, text: str) -> None:
    assert words.duration(ms) == text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([4], "segment 4"), ([4, 5, 6], "segments 4 to 6"), ([4, 7], "segments 4, 7")],
)
def test_a_stretch_of_serials_is_reported_by_its_ends(numbers: list[int], text: str) -> None:
    assert words.serials(numbers) == text
