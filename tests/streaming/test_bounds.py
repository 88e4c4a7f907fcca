"""Recordings of some hundred bytes that count a hundred million of something: FFmpeg would make room."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import pytest

from streaming.audio.bounds import UNHEARD
from streaming.audio.boxes import BYTES_A_SAMPLE, INDEX, MOST_SAMPLES, check_file
from streaming.audio.demux import file_pieces, pieces
from streaming.audio.tape import HEADER
from streaming.wire.errors import ProtocolError
from tests.support.recordings import feeding, packets, tone


def box(kind: bytes, *parts: bytes) -> bytes:
    return struct.pack(">I4s", 8 + sum(map(len, parts)), kind) + b"".join(parts)


def table(kind: bytes, *numbers: int, flags: int = 0) -> bytes:
    """A box of 32-bit numbers, with its version and flags."""
    return box(kind, struct.pack(f">{1 + len(numbers)}I", flags, *numbers))


def boxes(data: bytes, *kinds: bytes) -> bytes:
    """Those of the outermost boxes, in their order."""
    found, at = b"", 0
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        found += data[at : at + length] if kind in kinds else b""
        at += length
    return found


def counted(data: bytes, *, why: str = r"its index counts \d+ samples") -> None:
    """Refused as a file, and as it comes."""
    with pytest.raises(ProtocolError, match=why):
        list(file_pieces(io.BytesIO(data)))
    with pytest.raises(ProtocolError, match=why):
        list(pieces(feeding(*packets(data, 100))))


MANY = 10_000_000
FTYP = box(b"ftyp", b"isom", bytes(4), b"isommp42")
REAL = tone("mp4")
HEAD, BODY = boxes(REAL, b"ftyp", b"moov"), boxes(REAL, b"moof", b"mdat")
COUNTS = {
    "one size": table(b"stsz", 2, MANY) + table(b"stts", 1, MANY, 2),
    "half bytes": table(b"stz2", 4, MANY) + table(b"stts", 1, MANY, 2),
    "a fragment": table(b"trun", MANY, 0, flags=1),
    "hidden behind a name": b"stsz" + table(b"trun", MANY, 0, flags=1),
    "behind half a name": b"\0stt" + b"stsz" + struct.pack(">III", 0, 2, MANY) + bytes(16),
    "in pieces": b"".join(table(b"trun", 40_000, 0, flags=1) for _ in range(3)),
    "bare samples, too many for their runs": table(b"stts", 1, 2**32 - 1, 1) + table(b"stsz", 2, 2**32 - 1),
    "a few, shown a thousand times": table(b"elst", 1000, *[400, 0, 1] * 1000) + table(b"stsz", 2, 400),
}


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("outside", [b"moov", b"moof", b"udta", b"trak"])
def test_samples_are_not_counted_that_nobody_sent(kind: str, outside: bytes) -> None:
    data = FTYP + box(outside, box(b"any ", COUNTS[kind])) + box(b"mdat", bytes(128))
    # As it comes a box that is known must stand outermost; the rest is refused for that.
    counted(data, why=r"its index counts \d+ samples" if outside != b"trak" else "audio.encoding")


def test_what_takes_the_place_of_an_index_is_one() -> None:
    hidden = table(b"mvhd", 0) + table(b"stsz", 2, MANY)
    with pytest.raises(ProtocolError, match="its index counts"):
        list(file_pieces(io.BytesIO(FTYP + box(b"free", hidden) + box(b"mdat", bytes(128)))))
    packed = box(b"cmov", box(b"dcom", b"zlib"), box(b"cmvd", zlib.compress(hidden)))
    counted(FTYP + box(b"moov", packed) + box(b"mdat", bytes(128)), why="its index is compressed")


@pytest.mark.parametrize("name", [b"trun", b"stsz", b"stts", b"elst", b"sidx"])
def test_a_count_behind_the_end_of_its_box_counts_though(name: bytes) -> None:
    """FFmpeg reads on: what it takes for the count is the next box's length."""
    cut = box(b"moof", box(b"traf", box(name, bytes(4))))
    counted(HEAD + BODY + cut + struct.pack(">I4s", MANY, b"mdat") + bytes(100), why="breaks off|counts")


def test_every_fragment_is_noted_for_every_track() -> None:
    """8 KB of tracks and 700 KB of fragments took 3 GB."""
    moov = box(b"moov", boxes(REAL, b"moov")[8:], box(b"trak") * 60)
    for head in (bytes(22), b"\1" + bytes(29)):  # times of 32 bits, and of 64
        listed = box(b"sidx", head, struct.pack(">H", 60_000), bytes(12 * 60_000))
        counted(FTYP + moov + listed + BODY)
    counted(FTYP + moov + BODY + box(b"moof", table(b"mfhd", 1)) * 1000)


def test_a_box_with_a_long_length_hides_nothing_behind_it() -> None:
    long = struct.pack(">I4sQ", 1, b"mdat", 16 + 128) + bytes(128)
    with pytest.raises(ProtocolError, match="its index counts"):
        list(file_pieces(io.BytesIO(FTYP + long + box(b"moov", COUNTS["one size"]))))


def test_no_index_is_longer_than_a_block_however_large_the_file() -> None:
    for count, fits in ((MOST_SAMPLES, True), (MOST_SAMPLES + 1, False)):
        index = table(b"stts", 1, count, 960) + table(b"stsz", 0, count)
        data = FTYP + box(b"moov", index) + box(b"mdat", bytes(BYTES_A_SAMPLE * count))
        if fits:
            check_file(io.BytesIO(data), len(data))
        else:
            with pytest.raises(ProtocolError, match="its index counts"):
                check_file(io.BytesIO(data), len(data))


def huge_keys() -> bytes:
    handler = box(b"hdlr", bytes(8), b"mdta", bytes(12), b"x\0")
    return FTYP + box(b"meta", bytes(4), handler, table(b"keys", 200_000_000)) + boxes(REAL, b"moov") + BODY


def huge_list() -> bytes:
    handler = box(b"hdlr", bytes(8), b"pict", bytes(12), b"x\0")
    items = box(b"iinf", b"\1\0\0\0", struct.pack(">I", 200_000_000))
    return FTYP + box(b"meta", bytes(4), handler, items) + boxes(REAL, b"moov") + BODY


@pytest.mark.parametrize("made", [huge_keys, huge_list])
def test_no_table_of_any_kind_gets_more_room_than_a_block(made: Callable[[], bytes]) -> None:
    """Each took 1.5 GB for 20 KB, and only FFmpeg knows how many of the kind there are."""
    with pytest.raises(ProtocolError, match="Cannot allocate memory"):
        list(file_pieces(io.BytesIO(made())))
    broke: list[str] = []
    with pytest.raises(ProtocolError, match="not one sample"):
        list(pieces(feeding(*packets(made(), 1000)), 1, broke.append))
    assert broke == ["MemoryError"]


def test_entries_without_end_are_not_read_without_end() -> None:
    """Tags of three bytes that take 70 each."""
    data, cluster = tone("webm"), b"\x1fC\xb6\x75"
    tags = b"\x67\xc8\x80" * (UNHEARD // 3 + 10_000)
    for name in (b"\x73\x73", b"\x12\x54\xc3\x67"):
        tags = name + (len(tags) | 1 << 56).to_bytes(8, "big") + tags
    at = data.index(cluster)
    with pytest.raises(ProtocolError, match=r"\d+ bytes of it held no sample"):
        list(file_pieces(io.BytesIO(data[:at] + tags + data[at:])))
    few = tags[: 2 * 10] + bytes(HEADER // 8)
    assert list(
        file_pieces(
            io.BytesIO(data[:at] + b"\xec" + (len(few) | 1 << 56).to_bytes(8, "big") + few + data[at:])
        )
    )


def test_what_a_file_is_made_of_may_count_its_own() -> None:
    bare = table(b"stts", 1, 500_000, 1) + table(b"stsz", 2, 500_000)
    data = FTYP + box(b"moov", bare) + box(b"mdat", bytes(1_000_000))
    check_file(io.BytesIO(data), len(data))
    small = table(b"stts", 1, 200_000, 960) + table(b"stsz", 0, 200_000)
    data = FTYP + box(b"mdat", bytes(600_000)) + box(b"moov", small, bytes(4 * 200_000))
    check_file(io.BytesIO(data), len(data))
    edited = table(b"elst", 3, *[1000, 0, 1] * 3) + table(b"stts", 1, 40_000, 960) + table(b"stsz", 0, 40_000)
    data = (
        FTYP
        + box(b"free", bytes(2 * INDEX))
        + box(b"moov", edited, bytes(160_000))
        + box(b"mdat", bytes(400_000))
    )
    check_file(io.BytesIO(data), len(data))
    with pytest.raises(ProtocolError, match="its index takes"):
        check_file(io.BytesIO(FTYP + struct.pack(">I4s", 0, b"moov") + bytes(INDEX)), INDEX + 40)
