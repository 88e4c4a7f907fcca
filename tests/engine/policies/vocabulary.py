"""A small vocabulary with every control token: one id a byte, then the controls."""

from __future__ import annotations

LANGUAGES = ("en", "zh", "ja", "jw", "hi")
_CONTROLS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{code}|>" for code in LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)


class ByteTokens:
    """A `TokenTable` whose text tokens are single bytes."""

    def id(self, token: str) -> int | None:
        return 256 + _CONTROLS.index(token) if token in _CONTROLS else None

    def name(self, token_id: int) -> str | None:
        if token_id < 256:
            return chr(token_id)
        return _CONTROLS[token_id - 256] if token_id - 256 < len(_CONTROLS) else None

    def piece(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def __len__(self) -> int:
        return 256 + len(_CONTROLS)


def named(ids: list[int] | tuple[int, ...]) -> str:
    """Ids as readable text, control tokens by name."""
    tokens = ByteTokens()
    return "".join(tokens.name(token) or "?" for token in ids)
