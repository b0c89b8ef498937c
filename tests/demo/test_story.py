"""Claims about what the demo says."""

from __future__ import annotations

import io

from rich.console import Console

from zbroker.demo.check import CarrierTally
from zbroker.demo.story import Story


def reported(story_of: Story) -> str:
    file = story_of._console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def a_story() -> Story:
    return Story(Console(file=io.StringIO(), width=120))


def test_equal_tallies_are_no_failure() -> None:
    story = a_story()
    story.carriers({"UA": CarrierTally(2, 11)}, {"UA": CarrierTally(2, 11)})
    assert story.failures == []
    assert "✓" in reported(story)
    assert "✗" not in reported(story)


def test_each_differing_carrier_is_a_failure_with_its_name() -> None:
    story = a_story()
    story.carriers(
        {"UA": CarrierTally(2, 11), "AA": CarrierTally(1, 0)}, {"UA": CarrierTally(2, 12)}
    )
    assert [failure.split(":")[0] for failure in story.failures] == ["carrier AA", "carrier UA"]
    assert "✗" in reported(story)


def test_a_verdict_with_a_difference_is_a_failure() -> None:
    story = a_story()
    story.verdict("as published", "")
    assert story.failures == []
    story.verdict("as published", "row 7 [differs]")
    assert story.failures == ["row 7 [differs]"]
    assert "row 7 [differs]" in reported(story)
