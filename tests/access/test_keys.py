"""Key files (zbroker/access/keys.py)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import zmq
import zmq.auth
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from zbroker.access import keys
from zbroker.errors import ConfigError, ZBrokerError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestMake:
    @pytest.mark.parametrize("name", ["broker", "broker.key", "broker.key_secret", "a.b"])
    def test_both_files_have_their_modes(self, tmp_path: Path, name: str) -> None:
        before = os.umask(0o077)
        try:
            keys.make(tmp_path / name)
        finally:
            os.umask(before)
        stem = name.removesuffix(".key").removesuffix(".key_secret")
        assert mode(tmp_path / f"{stem}.key") == 0o644
        assert mode(tmp_path / f"{stem}.key_secret") == 0o600
        assert len(list(tmp_path.iterdir())) == 2

    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        made = keys.make(tmp_path / "a")
        assert keys.load_secret(tmp_path / "a.key_secret") == made
        assert keys.load_public(tmp_path / "a.key") == made.public
        assert keys.load_public(tmp_path / "a.key_secret") == made.public
        assert zmq.curve_public(made.secret.encode()).decode() == made.public

    def test_pyzmq_reads_the_same(self, tmp_path: Path) -> None:
        made = keys.make(tmp_path / "a")
        public, secret = made.public.encode(), made.secret.encode()
        assert zmq.auth.load_certificate(tmp_path / "a.key_secret") == (public, secret)
        assert zmq.auth.load_certificate(tmp_path / "a.key") == (public, None)

    def test_what_pyzmq_writes_is_read(self, tmp_path: Path) -> None:
        public_file, secret_file = zmq.auth.create_certificates(tmp_path, "a", {"name": "x"})
        Path(secret_file).chmod(0o600)
        assert keys.load_secret(Path(secret_file)).public == keys.load_public(Path(public_file))

    @pytest.mark.parametrize("there", ["a.key", "a.key_secret"])
    def test_nothing_is_overwritten(self, tmp_path: Path, there: str) -> None:
        (tmp_path / there).write_text("precious")
        with pytest.raises(ZBrokerError, match=r"exists:.*there already"):
            keys.make(tmp_path / "a")
        assert [path.name for path in tmp_path.iterdir()] == [there]
        assert (tmp_path / there).read_text() == "precious"

    def test_a_dangling_link_is_not_written_through(self, tmp_path: Path) -> None:
        (tmp_path / "a.key_secret").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ZBrokerError, match="exists"):
            keys.make(tmp_path / "a")
        assert not (tmp_path / "elsewhere").exists()

    def test_force_puts_new_ones_in_their_place(self, tmp_path: Path) -> None:
        old = keys.make(tmp_path / "a")
        (tmp_path / "a.key_secret").chmod(0o644)
        new = keys.make(tmp_path / "a", force=True)
        assert new.public != old.public
        assert keys.load_secret(tmp_path / "a.key_secret") == new
        assert keys.load_public(tmp_path / "a.key") == new.public
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.key", "a.key_secret"]

    def test_without_a_directory_it_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"No such file or directory.*a directory that is"):
            keys.make(tmp_path / "none" / "a")


class TestRead:
    @pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o601])
    def test_a_secret_that_others_can_reach_is_refused(self, tmp_path: Path, bits: int) -> None:
        made = keys.make(tmp_path / "a")
        path = tmp_path / "a.key_secret"
        path.chmod(bits)
        with pytest.raises(ConfigError) as caught:
            keys.load_secret(path)
        assert caught.value.hint == f"chmod 600 {path}"
        assert made.secret not in str(caught.value)
        assert keys.load_public(path) == made.public

    def test_a_public_file_has_no_secret(self, tmp_path: Path) -> None:
        keys.make(tmp_path / "a")
        (tmp_path / "a.key").chmod(0o600)
        with pytest.raises(ConfigError, match=r"no secret key \(name the file.*key_secret"):
            keys.load_secret(tmp_path / "a.key")

    def test_keys_that_do_not_belong_together_are_refused(self, tmp_path: Path) -> None:
        one, other = keys.make(tmp_path / "a"), keys.make(tmp_path / "b")
        path = tmp_path / "a.key_secret"
        path.write_text(path.read_text().replace(one.public, other.public))
        with pytest.raises(ConfigError, match="does not belong"):
            keys.load_secret(path)

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "no public-key"),
            (b"\xff\xfe\x00", "no public-key"),
            (b'public-key = "short"', "public-key that is not 40 characters"),
            (b'# public-key = "x"', "no public-key"),
            (b"x" * (keys.FILE_MAX_BYTES + 1), "too large"),
        ],
    )
    def test_what_is_no_key_file_is_refused(
        self, tmp_path: Path, content: bytes, reason: str
    ) -> None:
        path = tmp_path / "a.key"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=reason) as caught:
            keys.load_public(path)
        assert "short" not in str(caught.value)

    def test_what_is_no_file_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        for path in (tmp_path / "fifo", tmp_path, tmp_path / "none"):
            with pytest.raises(ConfigError, match=str(path)):
                keys.load_secret(path)


@given(st.binary(min_size=32, max_size=32))
def test_every_key_is_a_key(data: bytes) -> None:
    assert keys.is_key(z85.encode(data).decode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 39,
        "0" * 41,
        "0" * 39 + " ",
        "0" * 39 + "é",
        "#" * 40,
        "0" * 35 + "%nSc1",
        "~" * 40,
    ],
)
def test_what_is_not_32_bytes_is_none(text: str) -> None:
    assert not keys.is_key(text)


def test_the_largest_group_is_a_key() -> None:
    assert keys.is_key(z85.encode(b"\xff" * 32).decode())
    assert z85.encode(b"\xff" * 4) == b"%nSc0"


def test_a_pair_does_not_show_its_secret(tmp_path: Path) -> None:
    made = keys.make(tmp_path / "a")
    assert made.secret not in f"{made} {made!r}"
    assert made.public in repr(made)
