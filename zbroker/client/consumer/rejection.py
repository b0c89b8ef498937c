"""What a handler raises to say that a message is no good. Pure."""

from __future__ import annotations


class Reject(Exception):
    """Raise it in a worker's handler, or in `with message:`: the message is a dead letter.

    Any other exception releases the message, so that it is tried again.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
