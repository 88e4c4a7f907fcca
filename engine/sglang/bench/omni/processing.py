"""What the checkpoints that `checkpoint.py` makes bring along for transformers: audio and text to positions.

Copied into them. One position is 1,280 samples; every five seconds the elapsed seconds stand among the audio,
digit by digit, so that the model can tell the time.
"""

from __future__ import annotations

from transformers import ProcessorMixin

POSITIONS_PER_S = 12.5
MARK_S = 5


class RandomProcessor(ProcessorMixin):
    """Feature extractor, tokenizer, and the places of the audio in the prompt."""

    audio_token = "<|audio_pad|>"
    audio_merge_size = 4

    def __init__(self, feature_extractor=None, tokenizer=None, chat_template=None):  # type: ignore[no-untyped-def]
        super().__init__(feature_extractor, tokenizer, chat_template=chat_template)
        self.audio_token_id = tokenizer.convert_tokens_to_ids(self.audio_token)
        self._digits = {digit: tokenizer.convert_tokens_to_ids(digit) for digit in "0123456789"}

    def _audio_span_ids(self, positions: int) -> list[int]:
        """The name is what SGLang-Omni calls."""
        ids: list[int] = []
        done = 0
        for second in range(MARK_S, int(positions / POSITIONS_PER_S) + 1, MARK_S):
            place = second // MARK_S * int(MARK_S * POSITIONS_PER_S)
            ids += [self.audio_token_id] * (place - done)
            ids += [self._digits[digit] for digit in str(second)]
            done = place
        return ids + [self.audio_token_id] * (positions - done)
