"""From valid bytes to broken ones. Everything follows from the `Random` that is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

LONGEST = 4096
"""Bytes of a case; what grows with its input shows there already."""

_BORDERS = (0, 1, 0x7F, 0x80, 0xBF, 0xC0, 0xC1, 0xD4, 0xDB, 0xDD, 0xDF, 0xF8, 0xFE, 0xFF)
TOKENS = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"null", b"true", b"-", b"1e999", b"-1", b"0"),
    *(
        b"NaN",
        b"9" * 30,
        b"\\ud800",
        b"\\u0000",
        b"\xed\xa0\x80",
        b"\xc3",
        b"\xf4\x90\x80\x80",
        b"\xef\xbb\xbf",
    ),
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\x00",
        b" ",
        b"%00",
        b"%2e%2e%2f",
        b"../",
        b"%0d%0a",
        b"\x1b[2J",
        b"?",
        b"&",
        b"=",
    ),
    *(b"\xff" * 8, b"\x00" * 8, b"\x7f\xc0\x00\x00", b"\x00\x00\x80\x7f", b"\xdd\xff\xff\xff\xff"),
)
"""What parsers have gone wrong on: ends of structures and lines, numbers out of range, half characters, NaN
as bytes, paths, lengths without the bytes."""

Mutation = Callable[[bytearray, Random, Sequence[bytes]], None]


def _flip(data: bytearray, rng: Random, words: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _border(data: bytearray, rng: Random, words: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice(_BORDERS)


def _noise(data: bytearray, rng: Random, words: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at : at + rng.randrange(4)] = rng.randbytes(rng.randint(1, 16))


def _token(data: bytearray, rng: Random, words: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at : at + rng.choice((0, 0, 1, 4))] = rng.choice(words)


def _cut(data: bytearray, rng: Random, words: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.choice((1, 2, 8, LONGEST))]


def _again(data: bytearray, rng: Random, words: Sequence[bytes]) -> None:
    a = rng.randint(0, len(data))
    piece = data[a : a + rng.randint(1, 32)]
    at = rng.randint(0, len(data))
    data[at:at] = piece * rng.choice((1, 1, 2, 64))


def _nest(data: bytearray, rng: Random, words: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.choice((b"[", b'{"a":', b"\x91", b"\x81\xa1a")) * rng.choice((3, 1200))


_MUTATIONS: tuple[Mutation, ...] = (_flip, _flip, _border, _noise, _token, _token, _cut, _again)


def mutate(seed: bytes, rng: Random, words: Sequence[bytes] = TOKENS) -> bytes:
    """`seed` with one to a few things wrong; now and then nothing, or noise in its place."""
    luck = rng.random()
    if luck < 0.02:
        return seed
    if luck < 0.04:
        return rng.randbytes(rng.randint(0, 64))
    data = bytearray(seed)
    if luck < 0.05:
        _nest(data, rng, words)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        rng.choice(_MUTATIONS)(data, rng, words)
    return bytes(data[:LONGEST])
