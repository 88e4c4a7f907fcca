"""Byte-level token tables: ids to bytes and text to ids, from a `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TokenTable(Protocol):
    """What a policy must know of a tokenizer, whoever loaded it."""

    def id(self, token: str) -> int | None:
        """The id of a token by its exact name; None where the vocabulary lacks it."""
        ...

    def piece(self, token_id: int) -> bytes:
        """The bytes a token spells; empty for special and unknown tokens."""
        ...

    def name(self, token_id: int) -> str | None:
        """The token's name as the vocabulary writes it."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, text that looks like a special token is plain text."""
        ...

    def __len__(self) -> int: ...


@cache
def byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level vocabularies use, each with its byte.

    Printable Latin-1 bytes stand for themselves; the 68 others take the code points from 256 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + rank): byte for rank, byte in enumerate(others)})
    return table


def merge(word: str, ranks: Mapping[str, int]) -> list[str]:
    """Byte-pair encoding of a word in the byte alphabet: join neighbours, lowest id first, while any do."""
    parts = list(word)
    while len(parts) > 1:
        known = [
            (rank, at) for at, (a, b) in enumerate(pairwise(parts)) if (rank := ranks.get(a + b)) is not None
        ]
        if not known:
            break
        _, at = min(known)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


class FileTokens:
    """A `TokenTable` over a `tokenizer.json`; safe to share between threads.

    Only the file's vocabulary is used. Its list of merges is not, because published conversions have lost
    entries (one of base lacks the very first, so that " the" becomes two tokens and context harms the
    model). In this vocabulary the order of merges is the order of ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        from tokenizers.pre_tokenizers import ByteLevel

        self._tokenizer = tokenizer
        self._splitter = ByteLevel(add_prefix_space=False)
        self._special = {
            token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special
        }
        self._ranks: dict[str, int] = tokenizer.get_vocab(with_added_tokens=False)
        self._merged = lru_cache(maxsize=20_000)(self._merge)
        self._spelled = lru_cache(maxsize=100_000)(self._spell)

    @classmethod
    def open(cls, path: Path) -> FileTokens:
        """Load `path`; raises `ValueError` where it is not a tokenizer."""
        from tokenizers import Tokenizer

        try:
            return cls(Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{path.name} is not a readable tokenizer: {error}") from error

    def id(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def name(self, token_id: int) -> str | None:
        found: str | None = self._tokenizer.id_to_token(token_id)
        return found

    def piece(self, token_id: int) -> bytes:
        return self._spelled(token_id)

    def _spell(self, token_id: int) -> bytes:
        name = self.name(token_id)
        if name is None or token_id in self._special:
            return b""
        alphabet = byte_alphabet()
        return bytes(alphabet[char] for char in name if char in alphabet)

    def encode(self, text: str) -> list[int]:
        return [token for word, _ in self._splitter.pre_tokenize_str(text) for token in self._merged(word)]

    def _merge(self, word: str) -> tuple[int, ...]:
        known = "".join(char for char in word if char in self._ranks)
        return tuple(self._ranks[part] for part in merge(known, self._ranks))

    def __len__(self) -> int:
        size: int = self._tokenizer.get_vocab_size()
        return size
