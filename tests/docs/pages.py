"""The pages of the manual and their code blocks: what the tests of the manual look at. Pure.

Conventions of the pages:

- all `python` blocks of one page are one program, run in order; the page says so where it matters
- `<!-- without zbroker -->` at the top of a page: its program runs where zbroker cannot be imported
- `<!-- alone -->` before a `python` block: a program of its own, run twice, without zbroker
- `sh` blocks are run by bash between them; lines that start a broker or belong to the desk (see
  `LEFT_OUT`) are left out: a broker runs already, on ./zbroker-data and the default ports
- `<!-- prints -->` before a `text` block: the block before it prints exactly this; each … stands
  for whatever differs from run to run
- everything else is not run
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
LEFT_OUT: Final = ("zbroker start", "zbroker demo", "scripts/", "cd ", "git ")
WITHOUT: Final = "<!-- without zbroker -->"

_FENCE: Final = re.compile(r"^```(\w*)\s*$")
_MARK: Final = re.compile(r"^<!-- (alone|prints) -->$")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block: its language, text, first line in the page, and the mark before it."""

    language: str
    text: str
    line: int
    mark: str


class Page(NamedTuple):
    """One file of the manual."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def blocks(self) -> list[Block]:
        """Every fenced block, in order."""
        return blocks_of(self.text)

    @property
    def runs(self) -> bool:
        """True if something of it is to be run."""
        return any(block.language in ("python", "sh") for block in self.blocks)

    @property
    def links(self) -> list[str]:
        """Targets of its links."""
        return _LINK.findall(prose_of(self.text))

    @property
    def anchors(self) -> set[str]:
        """What a link to a heading of it may name."""
        return {anchor_of(line) for line in prose_of(self.text).splitlines() if line[:1] == "#"}


def blocks_of(text: str) -> list[Block]:
    found: list[Block] = []
    lines: list[str] | None = None
    language, start, mark = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if lines is not None:
            if line.startswith("```"):
                found.append(Block(language, "\n".join(lines) + "\n", start, mark))
                lines, mark = None, ""
            else:
                lines.append(line)
        elif fence:
            lines, language, start = [], fence[1], number + 1
        elif line.strip():
            known = _MARK.match(line)
            mark = known[1] if known else ""
    if lines is not None:
        raise AssertionError(f"the block at line {start} has no end")
    return found


def prose_of(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```\s*$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchor_of(heading: str) -> str:
    """The anchor that a heading gets where pages are shown."""
    text = heading.lstrip("#").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def read_pages() -> list[Page]:
    """README.md and all of docs/."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [Page(path, path.read_text()) for path in paths]


def shell_lines(text: str) -> str:
    """A `sh` block as it is run."""
    kept = [line for line in text.splitlines() if not line.startswith(LEFT_OUT)]
    return "\n".join(kept) + "\n"


def matches(expected: str, printed: str) -> bool:
    """True if `printed` is `expected` with something in place of each …"""
    pattern = ".*?".join(re.escape(part) for part in expected.rstrip().split("…"))
    return re.fullmatch(pattern, printed.rstrip(), re.DOTALL) is not None
