"""What whoever reads or changes something has to show: new at each start, for the owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from zbroker.errors import ConfigError


def make(path: Path) -> str:
    """Writes a new one. Raises: ConfigError."""
    token = secrets.token_hex(32)
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor
            file.write(token)
        temporary.replace(path)
    except OSError as error:
        reason = f"the token of the admin cannot be written: {path}: {error.strerror}"
        raise ConfigError("bad_config", reason, "see instance.data_dir") from None
    return token
