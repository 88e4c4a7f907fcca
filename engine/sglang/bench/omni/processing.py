"""What the checkpoints that `checkpoint.py` makes bring along for transformers: audio and text to positions.

Copied into them. One position is 1,280 samples; every five seconds the elapsed seconds stand among the audio,
digit by digit, so that the model can tell the time. It says when features begin and end, as events of
SGLang-Omni's own recorder.
"""

from __future__ import annotations

import uuid
from importlib import import_module
from typing import Any

from transformers import ProcessorMixin

try:
    _recorder: Any = import_module("sglang_omni.profiler.event_recorder").get_recorder()
except ImportError:
    _recorder = None

POSITIONS_PER_S = 12.5
MARK_S = 5
FEATURES_START, FEATURES_END, SPANS = "processor_features_start", "processor_features_end", "processor_spans"
"""Events: SPANS comes when the prompt is there and before the encoder is asked."""


def _tell(name: str) -> None:
    if _recorder is not None:
        # Whose request it is nobody tells a processor, so each event is one of its own.
        _recorder.emit(request_id=f"processor-{uuid.uuid4().hex}", stage=None, event_name=name)


class _Told:
    """What a feature extractor's class gets in front, so that it says when it begins and ends."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        _tell(FEATURES_START)
        made = super().__call__(*args, **named)  # type: ignore[misc]
        _tell(FEATURES_END)
        return made


class RandomProcessor(ProcessorMixin):
    """Feature extractor, tokenizer, and the places of the audio in the prompt."""

    audio_token = "<|audio_pad|>"
    audio_merge_size = 4

    def __init__(self, feature_extractor=None, tokenizer=None, chat_template=None):  # type: ignore[no-untyped-def]
        super().__init__(feature_extractor, tokenizer, chat_template=chat_template)
        self.audio_token_id = tokenizer.convert_tokens_to_ids(self.audio_token)
        self._digits = {digit: tokenizer.convert_tokens_to_ids(digit) for digit in "0123456789"}
        plain = type(feature_extractor)
        if not issubclass(plain, _Told):
            # In place: whatever else asks for its attributes, copies it or shows it finds what it was.
            feature_extractor.__class__ = type(plain.__name__, (_Told, plain), {})

    def _audio_span_ids(self, positions: int) -> list[int]:
        """The name is what SGLang-Omni calls."""
        _tell(SPANS)
        ids: list[int] = []
        done = 0
        for second in range(MARK_S, int(positions / POSITIONS_PER_S) + 1, MARK_S):
            place = second // MARK_S * int(MARK_S * POSITIONS_PER_S)
            ids += [self.audio_token_id] * (place - done)
            ids += [self._digits[digit] for digit in str(second)]
            done = place
        return ids + [self.audio_token_id] * (positions - done)
