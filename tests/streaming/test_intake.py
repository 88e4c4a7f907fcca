"""Tracks side by side: each judged by its own detector, all on one clock."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from engine.contract import FRAME, SAMPLE_RATE, Audio, Voice, VoiceStream
from streaming.audio.intake import SLICE, Intake
from streaming.wire.messages import AudioFormat


class Remembering:
    """Voices that tell which frame of which stream they are about."""

    def __init__(self) -> None:
        self.opened: list[_Stream] = []

    def open(self) -> VoiceStream:
        self.opened.append(_Stream())
        return self.opened[-1]


class _Stream:
    def __init__(self) -> None:
        self.heard: list[Audio] = []

    def feed(self, audio: Audio) -> list[Voice]:
        self.heard.append(audio)
        return [Voice(True, float(frame[0])) for frame in audio.reshape(-1, FRAME)]


@pytest.mark.parametrize("inline", [0, SLICE])
def test_every_track_has_its_own_detector_and_all_are_equally_long(inline: int) -> None:
    detector = Remembering()
    ramp = np.arange(2 * SAMPLE_RATE + 100) // FRAME / 1000
    channels = np.stack([ramp, -ramp, ramp / 2], axis=1).astype("<f4")

    async def run() -> list[tuple[tuple[Audio, ...], tuple[list[Voice], ...]]]:
        intake = Intake(AudioFormat("pcm_f32le", channels=3), detector, 3, inline)  # type: ignore[arg-type]
        data = channels.tobytes()
        pieces = [piece for at in (0, 100_000) async for piece in intake.feed(data[at : at + 100_000])]
        pieces += [piece async for piece in intake.feed(data[200_000:])]
        frames, voices, tails = intake.finish()
        assert (frames[0].size, voices) == (0, ([], [], []))
        assert [tail.size for tail in tails] == [100] * 3
        return pieces

    pieces = asyncio.run(run())
    for frames, voices in pieces:
        assert 0 < sum(track.size for track in frames) <= SLICE
        assert {track.size for track in frames} == {len(verdicts) * FRAME for verdicts in voices}
    assert len(detector.opened) == 3
    for number, stream in enumerate(detector.opened):
        heard = np.concatenate(stream.heard)
        assert np.array_equal(heard, channels[: heard.size, number])
        assert heard.size == 2 * SAMPLE_RATE
        judged = [voice.neural for _, voices in pieces for voice in voices[number]]
        assert judged == channels[: heard.size : FRAME, number].tolist()
