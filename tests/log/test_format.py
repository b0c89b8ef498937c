"""The bytes of the journal: golden ones, cut at every byte, of a version that does not exist."""

from __future__ import annotations

from tests.journal.build import publish
from zbroker.checksums import crc32c
from zbroker.log.format import (
    BATCH_MAGIC,
    COLUMN_CONTENT_CRC,
    COLUMN_EXPIRY,
    COLUMN_HEADERS,
    COLUMN_INDEX,
    COLUMN_KEYS,
    FLAG_LATE,
    FLAG_UNIT,
    GROUP_LENGTH,
    KIND_PUBLISH,
    KIND_TIE,
    AckedNote,
    Batch,
    GroupHeader,
    ParseStop,
    SegmentHeader,
    batch_crc,
    check_group,
    content_column,
    decode_batch_header,
    decode_group_header,
    decode_note,
    decode_segment_header,
    encode_batch_header,
    encode_group_header,
    encode_note,
)
from zbroker.wire.messages import Columns

SEGMENT = SegmentHeader(
    instance=0x0123456789ABCDEF, generation=2, serial=3, first_position=1001,
    previous_last_position=1000, previous_end=54_321, salt=0xFEEDFACECAFEBEEF,
    created_ns=1_700_000_000_000_000_000, size=1 << 20,
)  # fmt: skip
BODY = b"\x92\xc4\x01a\xc4\x02bc"
BATCH = Batch(
    KIND_PUBLISH, 1001, 0x1122334455667788, 42, 7, 5, 2, 1_700_000_000_000_000_123,
    ["orders", "trades/eu"], BODY, crc32c(BODY), len(BODY), skip=1, flags=FLAG_LATE,
    origin_instance=9, origin_generation=1, origin_position=77,
    columns=Columns(index=b"\0\0\1\0", time=bytes(range(16))), extra=[(900, b"later")],
)  # fmt: skip
EXTRAS = Batch(
    KIND_PUBLISH, 1002, 0x1122334455667788, 42, 9, 8, 2, 1_700_000_000_000_000_124, ["orders"],
    BODY, crc32c(BODY), len(BODY), origin_instance=9, origin_generation=1, origin_position=78,
    columns=Columns(
        keys=b"\x92\xc4\x02id\xc0", headers=b"\x92\xc0\x81\xa1a\x01",
        expiry=b"\1\2\3\4\5\6\7\0" + bytes(8),
    ),
)  # fmt: skip
TIE = Batch(
    KIND_TIE, 1003, 0x1122334455667788, 42, 9, 8, 2, 1_700_000_000_000_000_125, [], b"", 0, 0,
    skip=1, flags=FLAG_UNIT, origin_instance=9, origin_generation=1, origin_position=79,
    extra=[content_column(0xAABBCCDD)],
)  # fmt: skip
OFFSET = 8192 + GROUP_LENGTH
GROUP = GroupHeader(8192, 320, 1, 1001, 1_700_000_000_000_000_123, 1000, 1, 0xAABBCCDD)
NOTE = AckedNote(5, 0x0123456789ABCDEF, 2, 1002, 3)

GOLDEN = {
    "segment": (
        "7a62726b7365676d0100000060000000efcdab896745230102000000000000000300000000000000e903000000000000"
        "e80300000000000031d4000000000000efbefecacefaedfe00002a36fe9c9717000010000000000000000000e4e3fcb0"
    ),
    "batch": (
        "7a62524201000100b80000000800000002000000020000000100000002000000e9030000000000008877665544332211"
        "2a00000000000000070000000000000005000000000000007b002a36fe9c971709000000000000004d00000000000000"
        "010000005f40c267000000004858762906006f726465727309007472616465732f657501000000040000000000010002"
        "00000010000000000102030405060708090a0b0c0d0e0f84030000050000006c6174657200000000"
    ),
    "group": (
        "7a6247520100000000200000000000004001000001000000e9030000000000007b002a36fe9c9717e803000000000000"
        "01000000ddccbbaa8dbca7a600000000"
    ),
    "note": (
        "7a624154010000000500000000000000efcdab89674523010200000000000000ea030000000000000300000000000000"
        "000000000000000000000000767f7351"
    ),
}


#: readers that are older than these columns carry them along as unknown ones
GOLDEN_EXTRAS = (
    "7a62524201000100b00000000800000000000000020000000000000001000000ea030000000000008877665544332211"
    "2a00000000000000090000000000000008000000000000007c002a36fe9c971709000000000000004e00000000000000"
    "010000005f40c267000000004de5541806006f7264657273040000000600000092c4026964c0050000000600000092c0"
    "81a1610106000000100000000102030405060700000000000000000000000000"
)


#: a reader that knows neither the flag nor the column carries them along
GOLDEN_TIE = (
    "7a62524201000780800000000000000008000000020000000100000000000000eb030000000000008877665544332211"
    "2a00000000000000090000000000000008000000000000007d002a36fe9c971709000000000000004f00000000000000"
    "010000000000000000000000f4a601520800000004000000ddccbbaa00000000"
)


def batch_bytes() -> bytes:
    return encode_batch_header(BATCH, OFFSET, SEGMENT.seed)


def group_bytes() -> bytes:
    return encode_group_header(GROUP, [batch_crc(batch_bytes())], SEGMENT.seed)[0]


def test_golden_bytes_never_change() -> None:
    encoded = {
        "segment": SEGMENT.encode(),
        "batch": batch_bytes(),
        "group": group_bytes(),
        "note": encode_note(NOTE),
    }
    assert {name: data.hex() for name, data in encoded.items()} == GOLDEN


def test_golden_bytes_of_keys_headers_and_expiry_never_change() -> None:
    data = encode_batch_header(EXTRAS, OFFSET, SEGMENT.seed)
    assert data.hex() == GOLDEN_EXTRAS
    found = decode_batch_header(data, 0, OFFSET, SEGMENT.seed)
    assert isinstance(found, Batch)
    assert (found.columns, found.extra) == (EXTRAS.columns, [])
    assert (COLUMN_KEYS, COLUMN_HEADERS, COLUMN_EXPIRY) == (4, 5, 6)


def test_golden_bytes_of_a_unit_and_a_content_crc_never_change() -> None:
    assert encode_batch_header(TIE, OFFSET, SEGMENT.seed).hex() == GOLDEN_TIE
    found = decode_batch_header(bytes.fromhex(GOLDEN_TIE), 0, OFFSET, SEGMENT.seed)
    assert isinstance(found, Batch)
    assert (found.content_crc, found.body_crc, found.flags) == (0xAABBCCDD, 0, FLAG_UNIT)
    assert (EXTRAS.content_crc, FLAG_UNIT, COLUMN_CONTENT_CRC) == (crc32c(BODY), 8, 8)


def test_a_segment_header_comes_back() -> None:
    assert decode_segment_header(SEGMENT.encode() + b"more") == SEGMENT


def test_a_batch_header_comes_back_with_everything() -> None:
    data = batch_bytes()
    found = decode_batch_header(b"junk" + data + BODY, 4, OFFSET, SEGMENT.seed)
    assert isinstance(found, Batch)
    assert (found.offset, found.header_length, len(data) % 8) == (OFFSET, len(data), 0)
    expected = Batch(**{name: getattr(BATCH, name) for name in BATCH.__struct_fields__})
    expected.body, expected.offset, expected.header_length = b"", OFFSET, len(data)
    assert found == expected


def test_a_batch_counts_its_messages() -> None:
    assert (BATCH.taken, BATCH.end_position) == (1, 1002)


def test_a_group_header_comes_back_with_its_crc() -> None:
    data = group_bytes()
    found = decode_group_header(data, 0, 8192)
    assert isinstance(found, GroupHeader)
    assert (found.length, found.batches, found.synced_through, found.previous_crc) == (
        320,
        1,
        1000,
        0xAABBCCDD,
    )
    assert len(data) == GROUP_LENGTH
    assert check_group(data, 0, found, [batch_crc(batch_bytes())], SEGMENT.seed)
    assert not check_group(data, 0, found, [1], SEGMENT.seed)


def test_a_note_comes_back() -> None:
    assert decode_note(encode_note(NOTE)) == NOTE


def test_every_cut_is_short() -> None:
    segment, batch, group, note = SEGMENT.encode(), batch_bytes(), group_bytes(), encode_note(NOTE)
    assert all(
        decode_segment_header(segment[:n]) == ParseStop(0, "short") for n in range(len(segment))
    )
    assert all(
        decode_group_header(group[:n], 0, 8192) == ParseStop(8192, "short")
        for n in range(len(group))
    )
    assert all(decode_note(note[:n]) == ParseStop(0, "short") for n in range(len(note)))
    for n in range(len(batch)):
        assert decode_batch_header(batch[:n], 0, OFFSET, SEGMENT.seed) == ParseStop(OFFSET, "short")


def test_every_flipped_bit_is_noticed() -> None:
    segment, batch, group, note = SEGMENT.encode(), batch_bytes(), group_bytes(), encode_note(NOTE)
    crcs = [batch_crc(batch)]
    for bit in range(len(segment) * 8):
        assert isinstance(decode_segment_header(_flip(segment, bit)), ParseStop)
    for bit in range(len(batch) * 8):
        assert isinstance(
            decode_batch_header(_flip(batch, bit), 0, OFFSET, SEGMENT.seed), ParseStop
        )
    for bit in range(60 * 8):
        data = _flip(group, bit)
        found = decode_group_header(data, 0, 8192)
        assert isinstance(found, ParseStop) or not check_group(data, 0, found, crcs, SEGMENT.seed)
    for bit in range(len(note) * 8):
        assert isinstance(decode_note(_flip(note, bit)), ParseStop)


def _flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_batch_is_valid_at_its_own_place_only() -> None:
    data = batch_bytes()
    assert decode_batch_header(data, 0, OFFSET + 8, SEGMENT.seed) == ParseStop(OFFSET + 8, "crc")
    assert decode_batch_header(data, 0, OFFSET, SEGMENT.seed ^ 1) == ParseStop(OFFSET, "crc")


def test_a_group_is_valid_at_its_own_place_only() -> None:
    assert decode_group_header(group_bytes(), 0, 8704) == ParseStop(8704, "length")


def test_unwritten_zeros_never_parse() -> None:
    zeros = bytes(8192)
    assert decode_segment_header(zeros) == ParseStop(0, "zero")
    assert decode_batch_header(zeros, 0, OFFSET, SEGMENT.seed) == ParseStop(OFFSET, "zero")
    assert decode_group_header(zeros, 0, 8192) == ParseStop(8192, "zero")
    assert decode_note(zeros[:64]) == ParseStop(0, "zero")


def test_a_version_that_does_not_exist_is_named_before_anything_else() -> None:
    segment, batch, group, note = SEGMENT.encode(), batch_bytes(), group_bytes(), encode_note(NOTE)
    assert decode_segment_header(segment[:8] + b"\x63" + segment[9:]) == ParseStop(0, "version")
    assert decode_batch_header(batch[:4] + b"\x63" + batch[5:], 0, OFFSET, 0) == ParseStop(
        OFFSET, "version"
    )
    assert decode_group_header(group[:4] + b"\x63" + group[5:], 0, 8192) == ParseStop(
        8192, "version"
    )
    assert decode_note(note[:4] + b"\x63" + note[5:]) == ParseStop(0, "version")


def test_topics_of_any_alphabet_come_back() -> None:
    batch = publish(1, b"x")
    batch.topics = ["größe", "価格", "a" * 255]
    found = decode_batch_header(encode_batch_header(batch, OFFSET, 1), 0, OFFSET, 1)
    assert isinstance(found, Batch)
    assert (found.topics, found.columns, found.extra) == (batch.topics, None, [])


def test_a_batch_without_topics_has_the_shortest_header() -> None:
    batch = publish(1, b"")
    batch.topics = []
    data = encode_batch_header(batch, OFFSET, 1)
    assert (len(data), data[:4]) == (112, BATCH_MAGIC)


def test_a_single_column_stays_single() -> None:
    batch = publish(1, b"x")
    batch.columns = Columns(index=b"\0\0")
    found = decode_batch_header(encode_batch_header(batch, OFFSET, 1), 0, OFFSET, 1)
    assert isinstance(found, Batch)
    assert found.columns == Columns(index=b"\0\0")
    assert COLUMN_INDEX == 1


def test_messages_that_are_cut_take_no_position() -> None:
    batch = publish(1, b"body", 9)
    batch.skip, batch.cut = 2, 3
    found = decode_batch_header(encode_batch_header(batch, OFFSET, 1), 0, OFFSET, 1)
    assert isinstance(found, Batch)
    assert (found.skip, found.cut, found.taken, found.end_position) == (2, 3, 4, 5)


def test_a_batch_of_which_nothing_counts_is_none() -> None:
    batch = publish(1, b"body", 5)
    batch.skip, batch.cut = 2, 3
    data = encode_batch_header(batch, OFFSET, 1)
    assert decode_batch_header(data, 0, OFFSET, 1) == ParseStop(OFFSET, "length")
