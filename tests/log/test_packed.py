"""Packed segments: any part is read alone, damage stays where it is, other tools read them, too."""

from __future__ import annotations

import io
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import zstandard

from zbroker.errors import StorageError
from zbroker.log.format import DATA_AT
from zbroker.log.packed import (
    FRAME_BYTES,
    FRAMES_CACHE_BYTES,
    HEAD,
    Frames,
    Packed,
    PackedHeader,
    compressor,
    cuts,
    encode_head,
    encode_table,
    frames_at,
)

SIZE = 5 * FRAME_BYTES + DATA_AT + 12_345
CONTENT = b"".join(
    b"%08d some text that packs well; " % number for number in range(SIZE // 32 + 1)
)[:SIZE]


def pack(content: bytes) -> tuple[bytes, list[int]]:
    """The file, and where each data frame is."""
    zstd = compressor()
    frames = [zstd.compress(content[at : at + length]) for at, length in cuts(len(content))]
    lengths = [len(frame) for frame in frames]
    head = encode_head(PackedHeader(0xABCD, 7, len(content)), lengths)
    table = encode_table(len(head), len(content), lengths)
    starts = [len(head) + sum(lengths[:index]) for index in range(len(lengths))]
    return b"".join([head, *frames, table]), starts


PACKED, STARTS = pack(CONTENT)


def opened(data: bytes, frames: Frames | None = None) -> Packed:
    return Packed("seven", lambda at, size: data[at : at + size], len(data), frames or Frames())


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_any_part_is_read() -> None:
    packed, rng = opened(PACKED), random.Random(1)
    assert packed.size == SIZE
    for _ in range(200):
        offset, size = rng.randrange(SIZE + 10), rng.choice((0, 1, 96, 5_000, 300_000, SIZE))
        assert packed.read(offset, size) == CONTENT[offset : offset + size]


@pytest.mark.parametrize("size", [0, 1, DATA_AT, DATA_AT + 1, DATA_AT + FRAME_BYTES])
def test_every_size_is_packed(size: int) -> None:
    data, starts = pack(CONTENT[:size])
    packed = opened(data)
    assert (packed.size, packed.read(0, size + 1)) == (size, CONTENT[:size])
    assert packed.consistent()
    assert (starts or [frames_at(size)])[0] == frames_at(size)


def test_the_headers_are_read_without_the_first_frame_of_data() -> None:
    frames = Frames()
    reads = list[tuple[int, int]]()

    def read(at: int, size: int) -> bytes:
        reads.append((at, size))
        return PACKED[at : at + size]

    assert Packed("seven", read, len(PACKED), frames).read(4096, 96) == CONTENT[4096:4192]
    assert frames.decompressed == 1
    assert sum(size for _, size in reads) < 32_000


def test_who_reads_on_decompresses_each_frame_once() -> None:
    frames = Frames()
    packed = opened(PACKED, frames)
    read = b"".join(packed.read(offset, 16_384) for offset in range(0, SIZE, 16_384))
    assert (read, frames.decompressed) == (CONTENT, len(STARTS))


def test_the_memory_of_frames_is_bounded() -> None:
    frames = Frames()
    for number in range(30):
        content = CONTENT[: 3 * FRAME_BYTES]
        data, _ = pack(content)
        Packed(
            f"{number}", lambda at, size, data=data: data[at : at + size], len(data), frames
        ).read(0, len(content))
        assert sum(map(len, frames._kept.values())) <= FRAMES_CACHE_BYTES


# -- other tools --


def test_compression_is_plain_zstandard() -> None:
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(PACKED), read_across_frames=True)
    assert reader.read() == CONTENT


@pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd program here")
def test_the_zstd_program_gives_back_the_segment(tmp_path: Path) -> None:
    (tmp_path / "a.zst").write_bytes(PACKED)
    done = subprocess.run(
        ["zstd", "-d", "-q", "a.zst", "-o", "a"], cwd=tmp_path, timeout=60, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_a_seekable_file_of_another_program_is_read() -> None:
    """With checksums in its table and frames of other sizes, without our head."""
    zstd = zstandard.ZstdCompressor()
    parts = [CONTENT[at : at + 100_000] for at in range(0, SIZE, 100_000)]
    frames = [zstd.compress(part) for part in parts]
    entries = b"".join(
        struct.pack("<III", len(frame), len(part), 0)
        for frame, part in zip(frames, parts, strict=True)
    )
    table = entries + struct.pack("<IBI", len(frames), 0x80, 0x8F92EAB1)
    data = b"".join([*frames, struct.pack("<II", 0x184D2A5E, len(table)), table])
    packed = opened(data)
    assert (packed.size, packed.read(99_990, 200_000)) == (SIZE, CONTENT[99_990:299_990])


# -- damage --


@pytest.mark.parametrize("frame", [0, 1, 3, 6])
@pytest.mark.parametrize("at", [0, 5, 900])
def test_a_damaged_frame_is_zeros_and_nothing_else_is(frame: int, at: int) -> None:
    start = STARTS[frame]
    bounds = [at for at, _ in cuts(SIZE)] + [SIZE]
    low, high = bounds[frame], bounds[frame + 1]
    stop = STARTS[frame + 1] if frame + 1 < len(STARTS) else len(PACKED) - 100
    found = opened(flipped(PACKED, min(start + at, stop - 1))).read(0, SIZE)
    assert found == CONTENT[:low] + bytes(high - low) + CONTENT[high:]


@pytest.mark.parametrize("at", [0, 4, 9, 17, 30, HEAD.size + 9, HEAD.size + 30])
def test_a_damaged_head_costs_nothing(at: int) -> None:
    assert opened(flipped(PACKED, at)).read(0, SIZE) == CONTENT


@pytest.mark.parametrize("at", [1, 5, 9, 15, 60])
def test_a_damaged_table_costs_nothing(at: int) -> None:
    packed = opened(flipped(PACKED, len(PACKED) - at))
    assert packed.read(0, SIZE) == CONTENT
    assert at == 5 or not packed.consistent()  # a bit there that means nothing


def test_without_both_lists_of_sizes_it_is_unreadable() -> None:
    packed = opened(flipped(flipped(PACKED, 20), len(PACKED) - 1))
    assert (packed.size, packed.read(0, 100)) == (0, b"")


def test_a_file_that_is_cut_gives_what_is_left() -> None:
    found = opened(PACKED[: STARTS[3] + 10]).read(0, SIZE)
    bound = [at for at, _ in cuts(SIZE)][3]
    assert found == CONTENT[:bound] + bytes(SIZE - bound)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        bytes(1_000),
        b"\xff" * 100_000,
        PACKED[:30],
        PACKED[STARTS[0] : STARTS[2]],
        CONTENT,
    ],
)
def test_what_is_no_packed_segment_is_unreadable(data: bytes) -> None:
    packed = opened(data)
    assert (packed.size, packed.read(0, 10)) == (0, b"")


def test_flipped_bits_never_give_wrong_bytes() -> None:
    rng = random.Random(1)
    for _ in range(300):
        data = PACKED
        for _ in range(rng.choice((1, 1, 2, 20))):
            data = flipped(data, rng.randrange(len(data)))
        found = opened(data).read(0, SIZE)
        for at, length in cuts(SIZE):
            piece = found[at : at + length]
            assert piece in (CONTENT[at : at + length], bytes(length), b"")


def test_a_pretended_size_takes_no_memory() -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=True).compress(b"x" * (200 << 20))
    lengths = [len(bomb)]
    head = encode_head(PackedHeader(1, 1, 100), lengths)
    found = opened(head + bomb + encode_table(len(head), 100, lengths)).read(0, 100)
    assert found == bytes(100)


def test_an_unreadable_sector_costs_its_frame() -> None:
    def read(at: int, size: int) -> bytes:
        if at <= STARTS[2] < at + size and at > 0:
            raise StorageError("disk_error", "bad sector")
        return PACKED[at : at + size]

    found = Packed("seven", read, len(PACKED), Frames()).read(0, SIZE)
    bounds = [at for at, _ in cuts(SIZE)]
    low, high = bounds[2], bounds[3]
    assert found == CONTENT[:low] + bytes(high - low) + CONTENT[high:]


def test_a_file_from_the_future_is_refused_with_the_reason() -> None:
    head = encode_head(PackedHeader(1, 7, 10), [3])
    content = bytearray(head[8:-4])
    content[8:12] = struct.pack("<I", 2)
    from zbroker.checksums import crc32c

    data = head[:8] + bytes(content) + struct.pack("<I", crc32c(bytes(content)))
    with pytest.raises(StorageError, match=r"seven is packed in version 2; .* knows 1") as caught:
        opened(data)
    assert caught.value.code == "unknown_version"


def test_golden_bytes_never_change() -> None:
    head = encode_head(PackedHeader(0xABCD, 7, DATA_AT + 5), [300, 14])
    assert head.hex() == GOLDEN_HEAD
    assert encode_table(len(head), DATA_AT + 5, [300, 14]).hex() == GOLDEN_TABLE


def test_the_page_shows_the_golden_bytes() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "packed.md").read_text()
    squeezed = "".join(text.split())
    assert GOLDEN_HEAD in squeezed
    assert GOLDEN_TABLE in squeezed
    assert f"({HEAD.size} bytes)" in text


GOLDEN_HEAD = (
    "502a4d18400000007a62726b7061636b0100000002000000cdab0000000000000700000000000000"
    "05200000000000000020000000000400000000002c0100000e000000451c2854"
)
GOLDEN_TABLE = "5e2a4d182100000048000000000000002c010000002000000e000000050000000300000000b1ea928f"
