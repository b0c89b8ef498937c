"""docs/reference/access.md says what the code does."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from zbroker.access import format as access_format
from zbroker.access.core import MADE_UP
from zbroker.access.file import LOOK_MS
from zbroker.access.grants import ACTIONS
from zbroker.access.passwords import PASSWORD_MAX_BYTES
from zbroker.limits import MIB

PAGE = (ROOT / "docs" / "reference" / "access.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def test_the_table_of_actions_is_that_of_the_code() -> None:
    shown = [(row[0].strip("`"), row[1]) for row in table("Actions")]
    assert shown == list(ACTIONS.items())


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("[principal.NAME]", access_format.PrincipalTable),
        ("[[role.NAME.allow]] and [[role.NAME.deny]]", access_format.GrantTable),
    ],
)
def test_every_key_is_described(heading: str, kind: type) -> None:
    shown = [row[0].strip("`") for row in table(heading)]
    assert shown == list(kind.__struct_fields__)  # type: ignore[attr-defined]


def test_the_limits_are_those_of_the_code() -> None:
    shown = [row[1] for row in table("Limits")][:4]
    assert shown == [
        f"{access_format.FILE_MAX_BYTES // MIB} MiB",
        f"{access_format.PATTERNS_MAX:,}",
        f"{access_format.FILTERS_MAX:,}",
        f"{PASSWORD_MAX_BYTES:,} bytes",
    ]
    assert f"every {LOOK_MS} ms" in PAGE


def test_the_names_that_everybody_has_are_those_of_the_code() -> None:
    shown = re.search(r"generated\s+names, ([^.]*)\. A name", PAGE)
    assert shown is not None
    assert re.findall(r"`([^`]+)`", shown[1]) == list(MADE_UP)
