"""What ingest's core hears besides messages of the wire and the common events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from zbroker.wire.internal import LiveCredit


class Verified(Struct, gc=False):
    """A Verify was done."""

    number: int
    good: bool


class Granted(Struct, gc=False):
    """A delivery worker grants credit. worker: they are counted from 0."""

    worker: int
    grant: LiveCredit


class EndpointsRead(Struct, gc=False):
    """The endpoints of the instance. missing: the listeners whose endpoint is not known yet."""

    endpoints: Mapping[str, str]
    missing: Sequence[str] = ()
