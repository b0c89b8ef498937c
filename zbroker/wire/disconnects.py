"""Which clients an operator disconnected, so that their tokens from before count no more. Pure.

Disconnects are numbered. A token carries how many there were when it was made, so no clock decides
which of the two came first. `<data>/run/disconnects.json` has the value that this file describes.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from zbroker.errors import ClientError
from zbroker.wire.token import Token

CLIENTS_MAX: Final = 1_000  # names that are remembered; see `floor`


class Disconnects(Struct, frozen=True):
    """All disconnects since the instance started.

    number: of the newest. clients: of the newest of each client, the oldest first. floor: tokens
    from before this one are refused whoever has them, since not all names from then are known.
    """

    number: int = 0
    floor: int = 0
    clients: dict[str, int] = {}

    def add(self, client: str, number: int) -> Disconnects:
        """The same with one more. Numbers may come out of order."""
        clients, floor = dict(self.clients), self.floor
        clients[client] = max(clients.pop(client, 0), number)
        if len(clients) > CLIENTS_MAX:
            floor = max(floor, clients.pop(next(iter(clients))))
        return Disconnects(max(self.number, number), floor, clients)

    def check(self, token: Token) -> None:
        """Raises: ClientError auth_failed, if `token` is from before a disconnect of its client."""
        if token.disconnects < max(self.floor, self.clients.get(token.name, 0)):
            reason = "the token was made before an operator disconnected this client"
            raise ClientError("auth_failed", reason, "log on at ingest again")


NONE: Final = Disconnects()
encode: Final = msgspec.json.encode
decode: Final = msgspec.json.Decoder(Disconnects).decode  # raises ValueError
