"""The life of a queue over several parts: what is kept from one to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.queue_life import QueueLife, load


def test_the_next_part_knows_what_was_published_before(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    first = QueueLife("group-local", "b")
    first.begin_part(tmp_path)
    first.add({"p1-0": 2}, {"kill_instance": 3})
    first.end_part(tmp_path)
    second = load(tmp_path)
    assert second == first
    second.begin_part(tmp_path)
    second.add({"p2-0": 1}, {"kill_instance": 1, "cut_a_pair": 1})
    assert second.named() == {"p1-0:0", "p1-0:1", "p2-0:0"}
    assert (second.messages, second.counts) == (3, {"kill_instance": 4, "cut_a_pair": 1})


def test_no_part_follows_one_that_did_not_end(tmp_path: Path) -> None:
    QueueLife("distributed").begin_part(tmp_path)
    again = load(tmp_path)
    assert again is not None
    with pytest.raises(AssertionError, match="did not end well"):
        again.begin_part(tmp_path)
