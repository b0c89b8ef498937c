"""Passwords as hashes: scrypt, slow on purpose (some 40 ms and 16 MiB for each guess).

scrypt$16384$8$1$<salt in base64>$<hash in base64>
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from zbroker.limits import KIB, MIB

N: Final = 1 << 14
R: Final = 8
P: Final = 1
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
PASSWORD_MAX_BYTES: Final = 1 * KIB  # a client's guess is not hashed if it is longer

_N_MAX: Final = 1 << 16  # four times the time and memory of ours: others wait meanwhile
_MEMORY_MAX_BYTES: Final = 64 * MIB
_SALT_MAX_BYTES: Final = 64


class Hashed(NamedTuple):
    """A hash and how it was made."""

    n: int
    r: int
    p: int
    salt: bytes
    hash: bytes


def hash_password(password: str) -> str:
    """The text for the access file. Raises: ValueError for an empty or too long one."""
    data = _encoded(password)
    if not data or len(data) > PASSWORD_MAX_BYTES:
        raise ValueError(f"a password has 1 to {PASSWORD_MAX_BYTES} bytes")
    salt = secrets.token_bytes(SALT_BYTES)
    return _text(salt, _scrypt(data, Hashed(N, R, P, salt, b"")))


def verify(password: str, hashed: str) -> bool:
    """True if the password is the one that `hashed` was made from; some 40 ms either way.

    Raises: ValueError, unless `hashed` is what `read` takes.
    """
    wanted, data = read(hashed), _encoded(password)
    if len(data) > PASSWORD_MAX_BYTES:
        return False
    return hmac.compare_digest(_scrypt(data, wanted), wanted.hash)


def read(hashed: str) -> Hashed:
    """The parts of a hash, none of them weaker or dearer than is sensible. Raises: ValueError."""
    try:
        scheme, n, r, p, salt, made = hashed.split("$")
        found = Hashed(
            _number(n), _number(r), _number(p),
            b64decode(salt, validate=True), b64decode(made, validate=True),
        )  # fmt: skip
    except (ValueError, binascii.Error):
        raise ValueError("it is not of the form scrypt$n$r$p$salt$hash") from None
    if scheme != "scrypt":
        raise ValueError("only scrypt is known")
    if not N <= found.n <= _N_MAX or found.n & (found.n - 1):
        raise ValueError(f"n is a power of two from {N} to {_N_MAX}")
    if not R <= found.r <= 4 * R or not P <= found.p <= 4 * P:
        raise ValueError(f"r is {R} to {4 * R}, p is {P} to {4 * P}")
    if 128 * found.n * found.r > _MEMORY_MAX_BYTES:
        raise ValueError(f"128 * n * r is at most {_MEMORY_MAX_BYTES}")
    if not SALT_BYTES <= len(found.salt) <= _SALT_MAX_BYTES or len(found.hash) != HASH_BYTES:
        raise ValueError(f"the salt has {SALT_BYTES} bytes or more, the hash {HASH_BYTES}")
    return found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(text)
    return int(text)


def _encoded(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")


def _scrypt(data: bytes, like: Hashed) -> bytes:
    memory = 128 * like.r * (like.n + like.p) + MIB
    return hashlib.scrypt(
        data, salt=like.salt, n=like.n, r=like.r, p=like.p, maxmem=memory, dklen=HASH_BYTES
    )


def _text(salt: bytes, made: bytes) -> str:
    return f"scrypt${N}${R}${P}${b64encode(salt).decode()}${b64encode(made).decode()}"


#: No password fits it. Verified for a user that does not exist, so that he takes as long.
UNUSABLE: Final = _text(bytes(SALT_BYTES), bytes(HASH_BYTES))
