"""STRFTIME and STRPTIME: seconds since 1970 as text and back; always UTC, the same everywhere."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from zbroker.filters.values import Number

_DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)
_KNOWN: Final = "YmdHMSfj%"  # none that depends on a language or a system


def bad_directive(form: str) -> str | None:
    """The first directive of a format that is not known here."""
    for found in _DIRECTIVE.finditer(form):
        if not found[1] or found[1] not in _KNOWN:
            return found[0]
    return None


def strftime(form: str, seconds: Number) -> str | None:
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except OSError:
        return None
    year = f"{moment.year:04}"  # %Y has no leading zeros everywhere
    return moment.strftime(_DIRECTIVE.sub(lambda d: year if d[1] == "Y" else d[0], form))


def strptime(text: str, form: str) -> float:
    return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
