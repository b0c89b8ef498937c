"""CURVE keys in files: the certificates of CZMQ, as zmq.auth reads and writes them, too.

NAME.key holds the public key and may be read by anybody; NAME.key_secret holds both and may be
read by its owner only. Keys are 40 characters of Z85, 32 bytes.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from zbroker.errors import ConfigError, ZBrokerError
from zbroker.limits import KIB

KEY_CHARS: Final = 40
SECRET_SUFFIX: Final = ".key_secret"
PUBLIC_SUFFIX: Final = ".key"
FILE_MAX_BYTES: Final = 64 * KIB

_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_DIGITS: Final = {character: value for value, character in enumerate(_Z85)}
_LINE: Final = re.compile(r"\s*(public|secret)-key\s*=\s*(.*?)\s*")
_QUOTES: Final = "\"'"
_CODE: Final = "bad_config"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both keys, in Z85."""

    public: str
    secret: str = field(repr=False)


def is_key(text: str) -> bool:
    """True if `text` is 32 bytes in Z85."""
    if len(text) != KEY_CHARS or not _DIGITS.keys() >= set(text):
        return False
    return all(_number(text[at : at + 5]) < 1 << 32 for at in range(0, KEY_CHARS, 5))


def _number(five: str) -> int:
    number = 0
    for character in five:
        number = 85 * number + _DIGITS[character]
    return number


def secret_path(path: Path) -> Path:
    """NAME.key_secret of NAME, NAME.key or NAME.key_secret."""
    return _stem(path).with_name(_stem(path).name + SECRET_SUFFIX)


def public_path(path: Path) -> Path:
    """NAME.key likewise."""
    return _stem(path).with_name(_stem(path).name + PUBLIC_SUFFIX)


def _stem(path: Path) -> Path:
    for suffix in (SECRET_SUFFIX, PUBLIC_SUFFIX):
        if path.name.endswith(suffix) and path.name != suffix:
            return path.with_name(path.name.removesuffix(suffix))
    return path


def make(path: Path, *, force: bool = False) -> KeyPair:
    """New keys in `secret_path` and `public_path`; `force`: in place of others.

    Raises: ZBrokerError exists; ConfigError.
    """
    import zmq  # reading public keys does without it

    public, secret = (key.decode() for key in zmq.curve_keypair())
    curve = f'curve\n    public-key = "{public}"\n'
    texts = {
        secret_path(path): f'# CURVE secret key\n\n{curve}    secret-key = "{secret}"\n',
        public_path(path): f"# CURVE public key\n\n{curve}",
    }
    try:
        with ExitStack() as undo:
            for place, text in texts.items():
                mode = 0o600 if place == secret_path(path) else 0o644
                _write(_new(place) if force else place, text, mode, undo)
            for place in texts if force else ():
                _new(place).replace(place)
            undo.pop_all()
    except FileExistsError as error:
        reason = f"{error.filename} is there already"
        raise ZBrokerError("exists", reason, "--force puts new keys in its place") from None
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        raise ConfigError(_CODE, reason, "name a directory that is there and yours") from None
    return KeyPair(public, secret)


def _new(path: Path) -> Path:
    """Where what will replace `path` is written."""
    return path.with_name(f"{path.name}.{os.getpid()}.new")


def _write(path: Path, text: str, mode: int, undo: ExitStack) -> None:
    """A new file, which others cannot read before it has its mode; `undo` removes it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    undo.callback(path.unlink, missing_ok=True)
    with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
        file.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)


def load_secret(path: Path) -> KeyPair:
    """Both keys of NAME.key_secret. Raises: ConfigError, also if others may read it."""
    text, mode = _read(path)
    if mode & 0o077:
        reason = f"{path} has a secret key, and others may read or write it"
        raise ConfigError(_CODE, reason, f"chmod 600 {path}")
    found = _keys(path, text)
    if "secret" not in found:
        _fail(path, "has no secret key", f"name the file that ends with {SECRET_SUFFIX}")
    import zmq

    if zmq.curve_public(found["secret"].encode()).decode() != found["public"]:
        _fail(path, "has a public key that does not belong to its secret key")
    return KeyPair(found["public"], found["secret"])


def load_public(path: Path) -> str:
    """The public key of NAME.key or NAME.key_secret. Raises: ConfigError."""
    return _keys(path, _read(path)[0])["public"]


def _read(path: Path) -> tuple[str, int]:
    """Its text and mode, of the same file."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a fifo must not block a start
    try:
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a descriptor
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                _fail(path, "is not a file")
            data = file.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        reason = f"{path}: {error.strerror}"
        raise ConfigError(_CODE, reason, "`zbroker-admin key new` makes key files") from None
    if len(data) > FILE_MAX_BYTES:
        _fail(path, "is too large for a key file")
    return data.decode("utf-8", "replace"), mode


def _keys(path: Path, text: str) -> dict[str, str]:
    """Its keys, "public" and maybe "secret"."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line):
            key = match[2].strip(_QUOTES)
            if not is_key(key):
                _fail(path, f"has a {match[1]}-key that is not 40 characters of Z85")
            found.setdefault(match[1], key)
    if "public" not in found:
        _fail(path, "has no public-key")
    return found


def _fail(path: Path, reason: str, hint: str = "") -> NoReturn:
    raise ConfigError(_CODE, f"{path} {reason}", hint or "`zbroker-admin key new` makes key files")
