"""Names of branches of distributed transactions. Pure. Source: X/Open XA; PEP 249, "xid"."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple
from urllib.parse import quote, unquote

from msgspec import Meta, ValidationError, convert

XID_PART_MAX: Final = 64  # characters of either part
_PRINTABLE: Final = r"^[ -~]*\Z"  # `$` would take a line end, too
XID_TEXT_MAX: Final = 10 + 2 * (1 + 3 * XID_PART_MAX)  # characters, if each is quoted
#: characters that a text has as they are: all but the colon, the percent sign and the space
_PLAIN: Final = "!\"#$&'()*+,-./;<=>?@[\\]^_`{|}~"


class Xid(NamedTuple):
    """The name of a branch, of its principal. format: which rule the other two follow. gtrid: the
    whole transaction; bqual: this branch of it. A program whose names are other bytes writes
    them as hex. As text: the three joined by colons, where a colon, a percent sign or a space of
    the other two is quoted as in a URL."""

    format: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
    gtrid: Annotated[str, Meta(min_length=1, max_length=XID_PART_MAX, pattern=_PRINTABLE)]
    bqual: Annotated[str, Meta(max_length=XID_PART_MAX, pattern=_PRINTABLE)] = ""

    def __str__(self) -> str:
        return f"{self.format}:{_quoted(self.gtrid)}:{_quoted(self.bqual)}"


def parse_xid(text: str) -> Xid:
    """The Xid that has this text; the colon before an empty last part may be left out.

    Raises: ValueError.
    """
    parts = text.split(":")
    if not 2 <= len(parts) <= 3 or not (parts[0].isascii() and parts[0].isdigit()):
        raise ValueError(f"{text[:64]!r} is not of the form FORMAT:GTRID:BQUAL")
    try:
        found = [int(parts[0][:XID_PART_MAX]), *(unquote(part, "latin-1") for part in parts[1:])]
        return convert(found, Xid)
    except ValidationError as error:
        raise ValueError(f"{text[:64]!r}: {error}") from None


def _quoted(part: str) -> str:
    return quote(part, safe=_PLAIN)
