"""Hashes of passwords (zbroker/access/passwords.py)."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest

from tests.access.build import HASH
from zbroker.access import passwords

SALT = "AAAAAAAAAAAAAAAAAAAAAA=="
MADE = "A" * 43 + "="


def test_only_the_password_fits_its_hash() -> None:
    hashed = passwords.hash_password("pässword \udc80")
    assert hashed.startswith("scrypt$16384$8$1$")
    assert passwords.verify("pässword \udc80", hashed)
    assert not passwords.verify("password", hashed)
    assert not passwords.verify("", hashed)


def test_a_hash_that_was_made_before_still_fits() -> None:
    assert passwords.verify("correct horse", HASH)
    assert not passwords.verify("correct horse ", HASH)


def test_a_password_has_another_hash_each_time() -> None:
    assert passwords.hash_password("x") != passwords.hash_password("x")


@pytest.mark.parametrize("given", ["", "x" * (passwords.PASSWORD_MAX_BYTES + 1), "ä" * 513])
def test_an_empty_or_too_long_one_has_no_hash(given: str) -> None:
    with pytest.raises(ValueError, match="1 to 1024 bytes"):
        passwords.hash_password(given)
    assert not passwords.verify(given, HASH)


def test_a_guess_that_is_too_long_is_not_hashed() -> None:
    given, salt = b"x" * (passwords.PASSWORD_MAX_BYTES + 1), bytes(16)
    made = hashlib.scrypt(given, salt=salt, n=1 << 14, r=8, p=1, maxmem=1 << 25, dklen=32)
    hashed = f"scrypt$16384$8$1${SALT}${b64encode(made).decode()}"
    assert not passwords.verify(given.decode(), hashed)


def test_nothing_is_the_password_of_no_one() -> None:
    assert passwords.read(passwords.UNUSABLE).hash == bytes(passwords.HASH_BYTES)
    assert not passwords.verify("", passwords.UNUSABLE)


@pytest.mark.parametrize(
    ("n", "r", "p"), [(1 << 14, 8, 1), (1 << 16, 8, 1), (1 << 14, 32, 1), (1 << 15, 16, 4)]
)
def test_what_is_allowed_can_be_computed(n: int, r: int, p: int) -> None:
    assert not passwords.verify("x", f"scrypt${n}${r}${p}${SALT}${MADE}")


@pytest.mark.parametrize(
    "hashed",
    [
        "",
        "secret",
        f"scrypt$16384$8$1${SALT}",
        f"scrypt$16384$8$1${SALT}${MADE}$",
        f"bcrypt$16384$8$1${SALT}${MADE}",
        f"scrypt$8192$8$1${SALT}${MADE}",
        f"scrypt$131072$8$1${SALT}${MADE}",
        f"scrypt$20000$8$1${SALT}${MADE}",
        f"scrypt$65536$16$1${SALT}${MADE}",
        f"scrypt$16384$7$1${SALT}${MADE}",
        f"scrypt$16384$33$1${SALT}${MADE}",
        f"scrypt$16384$8$0${SALT}${MADE}",
        f"scrypt$16384$8$5${SALT}${MADE}",
        f"scrypt$-16384$8$1${SALT}${MADE}",
        f"scrypt$16384$8$²${SALT}${MADE}",
        f"scrypt$99999999999$8$1${SALT}${MADE}",
        f"scrypt$16384$8$1$AAAA${MADE}",
        f"scrypt$16384$8$1${SALT}$AAAA",
        f"scrypt$16384$8$1$not base64!${MADE}",
        f"scrypt$16384$8$1$é${MADE}",
        f"scrypt$16384$8$1${'A' * 400}${MADE}",
    ],
)
def test_what_is_no_hash_or_too_weak_or_too_dear_is_refused(hashed: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        passwords.read(hashed)
    assert not hashed or hashed not in str(caught.value)
