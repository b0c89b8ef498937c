"""Names of branches of distributed transactions. Pure. Source: X/Open XA; PEP 249, "xid"."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from msgspec import Meta

XID_PART_MAX: Final = 64  # characters of either part
_PRINTABLE: Final = r"^[ -~]*$"


class Xid(NamedTuple):
    """The name of a branch, of its principal. format: which rule the other two follow. gtrid: the
    whole transaction; bqual: this branch of it. A program whose names are other bytes writes
    them as hex."""

    format: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
    gtrid: Annotated[str, Meta(min_length=1, max_length=XID_PART_MAX, pattern=_PRINTABLE)]
    bqual: Annotated[str, Meta(max_length=XID_PART_MAX, pattern=_PRINTABLE)] = ""

    def __str__(self) -> str:
        return f"{self.format}:{self.gtrid}:{self.bqual}"
