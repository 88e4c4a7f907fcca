"""Echo between tracks is silenced; people are not. Noise in bursts stands for speech where no recording is
needed, real speech through a simulated room where it is."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clients.audio import load
from engine.contract import FRAME, SAMPLE_RATE, Audio, Voice
from engine.detector import open_detector
from streaming.core.echo import SILENT, EchoGate, EchoSettings
from streaming.core.gate import SpeechGate, Started
from streaming.core.settings import SessionSettings
from tests.support.data import DATA, needs_data

Voices = list[Voice]

SPEAKERS = ("1688", "2033", "2414", "3005", "3080", "367")


def bursts(seed: int, seconds: float, level_db: float = -20.0) -> Audio:
    """Noise that comes and goes like syllables and phrases."""
    random = np.random.default_rng(seed)
    size = round(seconds * SAMPLE_RATE) // FRAME * FRAME
    loud = np.repeat(random.uniform(0, 1, size // 1600 + 1) ** 2, 1600)[:size]
    phrases = np.repeat(random.random(size // 8000 + 1) < 0.7, 8000)[:size]
    audio: Audio = (random.normal(size=size) * loud * phrases * 10 ** (level_db / 20)).astype(np.float32)
    return audio


def voices_of(audio: Audio) -> Voices:
    """Speech is what is loud enough."""
    powers = np.square(audio.reshape(-1, FRAME)).mean(axis=1)
    return [Voice(power > 1e-7, 0.9 if power > 1e-7 else 0.0) for power in powers.tolist()]


def delayed(audio: Audio, samples: int) -> Audio:
    return np.concatenate((np.zeros(samples, np.float32), audio))[: audio.size]


def room(audio: Audio, seed: int, gain_db: float, delay_ms: float, rt60_s: float) -> Audio:
    """As another microphone hears it: a loudspeaker's band, the direct sound and a decaying tail of half of
    its energy, later and quieter."""
    random = np.random.default_rng(seed)
    time = np.arange(6400) / SAMPLE_RATE
    response = random.normal(size=time.size) * 10 ** (-3 * time / rt60_s) * (time > 0.002)
    response *= np.sqrt(0.5 / np.square(response).sum())
    response[0] = 1.0
    size = audio.size + response.size
    band = np.fft.rfftfreq(size, 1 / SAMPLE_RATE)
    weight = 1 / np.sqrt((1 + (200 / np.maximum(band, 1)) ** 4) * (1 + (band / 5000) ** 4))
    heard = np.fft.irfft(np.fft.rfft(audio, size) * np.fft.rfft(response, size) * weight, size)[: audio.size]
    heard *= np.sqrt(np.square(audio).sum() / np.square(heard).sum()) * 10 ** (gain_db / 20)
    return delayed(heard.astype(np.float32), round(delay_ms * SAMPLE_RATE / 1000))


def speaks(voice: Voice) -> bool:
    return voice.cheap and voice.neural >= 0.5


def changed(before: Voices, after: Voices) -> list[int]:
    """Frames whose verdict is another one."""
    assert len(before) == len(after)
    return [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def cut(tracks: tuple[Audio, ...], voices: tuple[Voices, ...], frames: list[int]) -> tuple[Voices, ...]:
    """The verdicts of a gate fed with pieces of so many frames."""
    gate, at = EchoGate(len(tracks)), 0
    out: tuple[Voices, ...] = tuple([] for _ in tracks)
    for count in [*frames, len(voices[0])]:
        piece = slice(at * FRAME, (at + count) * FRAME)
        got = gate.judge(tuple(t[piece] for t in tracks), tuple(v[at : at + count] for v in voices))
        for all_of_it, part in zip(out, got, strict=True):
            all_of_it.extend(part)
        at += count
    return out


def test_the_quieter_copy_is_silenced_and_counted() -> None:
    talk = bursts(1, 10)
    tracks = talk, 0.1 * delayed(talk, 1234)
    voices = voices_of(tracks[0]), voices_of(tracks[1])
    gate = EchoGate(2)
    first, second = gate.judge(tracks, voices)
    assert not changed(voices[0], first)
    spoken = sum(map(speaks, voices[1]))
    kept = sum(map(speaks, second))
    assert kept <= 0.02 * spoken
    assert gate.suppressed == (0, (spoken - kept) * FRAME)


def test_only_what_was_taken_for_speech_is_counted() -> None:
    talk = bursts(1, 10)
    tracks = talk, 0.1 * talk
    faint = [Voice(voice.cheap, 0.2 * voice.neural) for voice in voices_of(tracks[1])]
    gate = EchoGate(2)
    _, second = gate.judge(tracks, (voices_of(talk), faint))
    assert changed(faint, second)
    assert gate.suppressed == (0, 0)


def test_who_speaks_at_the_same_time_is_heard() -> None:
    tracks = bursts(1, 10), bursts(2, 10, level_db=-35)
    voices = voices_of(tracks[0]), voices_of(tracks[1])
    gate = EchoGate(2)
    for before, after in zip(voices, gate.judge(tracks, voices), strict=True):
        assert not changed(before, after)
    assert gate.suppressed == (0, 0)


def test_equally_loud_copies_both_stay() -> None:
    talk = bursts(1, 5)
    tracks = talk, 0.8 * talk
    voices = voices_of(tracks[0]), voices_of(tracks[1])
    for before, after in zip(voices, EchoGate(2).judge(tracks, voices), strict=True):
        assert not changed(before, after)


def test_what_nobody_hears_on_the_louder_track_stays_on_the_quieter() -> None:
    talk = bursts(1, 5)
    deaf = [Voice(False, 0.0)] * (talk.size // FRAME)
    voices = voices_of(0.1 * talk)
    _, other = EchoGate(2).judge((talk, 0.1 * talk), (deaf, voices))
    assert not changed(voices, other)


def test_from_where_the_louder_track_is_not_heard_any_more_the_quieter_is() -> None:
    talk = bursts(1, 6)
    echo = 0.1 * delayed(talk, 4 * FRAME)
    heard = [voice if at < 150 else SILENT for at, voice in enumerate(voices_of(talk))]
    voices = voices_of(echo)
    _, other = EchoGate(2).judge((talk, echo), (heard, voices))
    assert changed(voices, other)
    assert max(changed(voices, other)) <= 150 + 4 + 5 + 1  # its delay, the slack, and where a frame lies


def test_an_echo_does_not_hide_the_one_it_came_back_from() -> None:
    """Three tracks of one voice: only the loudest stays, and it makes no difference which one comes first."""
    talk = bursts(3, 8)
    copies = {"source": talk, "near": 0.3 * talk, "far": 0.09 * delayed(talk, 6000)}
    found: dict[str, list[Voices]] = {name: [] for name in copies}
    for order in itertools.permutations(copies):
        tracks = tuple(copies[name] for name in order)
        verdicts = EchoGate(3).judge(tracks, tuple(voices_of(track) for track in tracks))
        for name, voices in zip(order, verdicts, strict=True):
            found[name].append(voices)
    for name, (first, *others) in found.items():
        assert [changed(first, other) for other in others] == [[]] * 5
        kept = sum(map(speaks, first)) / sum(map(speaks, voices_of(copies[name])))
        assert kept == 1 if name == "source" else kept <= 0.05


@example(seed=293, gains_db=[0.0, 0.0, 1.0], delays=[0, 0, 5407, 0], mixed=False, frames=[])
@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    gains_db=st.lists(st.floats(-40, 10), min_size=2, max_size=4),
    delays=st.lists(st.integers(0, 9000), min_size=4, max_size=4),
    mixed=st.booleans(),
    frames=st.lists(st.integers(0, 40), max_size=8),
)
def test_only_beside_a_louder_track_that_is_heard_and_however_it_is_packed(
    seed: int, gains_db: list[float], delays: list[int], mixed: bool, frames: list[int]
) -> None:
    talk = bursts(seed, 3)
    tracks = tuple(
        10 ** (gain / 20) * (delayed(talk, delay) + (bursts(seed + number + 1, 3) if mixed else 0))
        for number, (gain, delay) in enumerate(zip(gains_db, delays, strict=False))
    )
    tracks = tuple(np.clip(track, -1, 1).astype(np.float32) for track in tracks)
    voices = tuple(voices_of(track) for track in tracks)
    got = cut(tracks, voices, frames)
    for whole, pieces in zip(EchoGate(len(tracks)).judge(tracks, voices), got, strict=True):
        assert not changed(whole, pieces)
    back = round((0.5 + 0.1) * SAMPLE_RATE) // FRAME + 2
    for number, (before, after) in enumerate(zip(voices, got, strict=True)):
        for at, (raw, kept) in enumerate(zip(before, after, strict=True)):
            assert kept in (raw, SILENT)
            if speaks(raw) and not speaks(kept):
                assert any(
                    speaks(voice)
                    for other, verdicts in enumerate(got)
                    if other != number
                    for voice in verdicts[max(0, at - back) : at + 1]
                ), "nobody is heard instead"
    if not mixed:
        loudest = int(np.argmax([np.square(track).sum() for track in tracks]))
        spoken = {at for at, voice in enumerate(voices[loudest]) if speaks(voice)}
        assert spoken & covered(voices[loudest]) <= covered(got[loudest])


@pytest.mark.parametrize("wrong", [{"on": 0.3, "off": 0.4}, {"off": 0.0}, {"on": 1.0}, {"louder_db": 0.0}])
def test_settings_that_could_silence_everybody_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"need|louder_db"):
        EchoSettings(**wrong)  # type: ignore[arg-type]


# -- real speech ----------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def utterance(speaker: str, number: int) -> Audio:
    folder = DATA / "utterances_en" / "librispeech-test-other"
    path = sorted(path for path in folder.rglob(f"{speaker}-*"))[number]
    audio = load(path, print).astype(np.float32)
    return audio * np.float32(10 ** (-24 / 20) / np.sqrt(np.square(audio).mean()))


def turns(speaker: str, first: int, silences_s: list[float], seconds: float) -> Audio:
    """Utterances of one speaker with these silences before them."""
    parts: list[Audio] = []
    for number, silence in enumerate(silences_s):
        parts += [
            np.zeros(round(silence * SAMPLE_RATE), np.float32),
            utterance(speaker, (first + number) % 10),
        ]
    size = round(seconds * SAMPLE_RATE) // FRAME * FRAME
    return np.concatenate([*parts, np.zeros(size, np.float32)])[:size]


def hiss(seed: int, size: int) -> Audio:
    return (np.random.default_rng(seed).normal(size=size) * 10 ** (-60 / 20)).astype(np.float32)


def covered(voices: Voices) -> set[int]:
    """Frames that a session would decode."""
    gate, frames, start = SpeechGate(SessionSettings().gate()), set[int](), 0
    for edge in [*(gate.step(voice) for voice in voices), gate.close()]:
        if isinstance(edge, Started):
            start = edge.at
        elif edge is not None:
            frames |= set(range(start // FRAME, edge.at // FRAME))
    return frames


def longest_run(frames: set[int]) -> int:
    longest = run = 0
    for frame in range(max(frames, default=0) + 1):
        run = run + 1 if frame in frames else 0
        longest = max(longest, run)
    return longest


rooms = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "gain_db": st.floats(-30, -10),
        "delay_ms": st.floats(5, 400),
        "rt60_s": st.floats(0.15, 0.6),
    }
)


@needs_data
def test_real_speech_out_of_a_loudspeaker_is_not_decoded_twice() -> None:
    """Over rooms, delays and levels together; in the worst room some of it passes."""
    detector, decoded, would_be = open_detector(), 0, 0
    for number, speaker in enumerate(SPEAKERS):
        talk = turns(speaker, number, [0.4, 0.8], 12)
        echo = room(talk, number, -10 - 3 * number, 5 + 75 * number, 0.2 + 0.08 * number)
        echo = echo + hiss(number, talk.size)
        voices = detector.open().feed(talk), detector.open().feed(echo)
        one, other = EchoGate(2).judge((talk, echo), voices)
        assert not changed(voices[0], one)
        would_be += len(covered(voices[1]))
        decoded += len(covered(other))
    assert would_be * FRAME > 20 * SAMPLE_RATE
    assert decoded <= 0.1 * would_be


@needs_data
def test_a_loud_voice_with_somebody_else_in_it_is_not_what_that_one_says() -> None:
    """The far track alone is quiet where the other, loud one, carries its echo: it is nobody's echo."""
    talk, near = turns("1688", 1, [0.2, 0.4], 12), turns("2033", 1, [0.0] * 3, 12)
    mixed = near + room(talk, 0, -10.0, 5.0, 0.5) + hiss(2, talk.size)
    detector = open_detector()
    voices = detector.open().feed(talk), detector.open().feed(mixed)
    assert not changed(voices[0], EchoGate(2).judge((talk, mixed), voices)[0])


@needs_data
@settings(max_examples=12, derandomize=True)
@given(
    room_of=rooms,
    speakers=st.permutations(SPEAKERS),
    first=st.integers(0, 9),
    above_db=st.floats(8, 16),
    silences_s=st.lists(st.floats(0, 3), min_size=3, max_size=3),
)
def test_who_speaks_into_the_echo_keeps_every_word(
    room_of: dict[str, float],
    speakers: list[str],
    first: int,
    above_db: float,
    silences_s: list[float],
) -> None:
    """The near speaker is clearly louder than the echo: of what would be decoded without this gate, no
    stretch as long as a word is missing. (Under an echo about as loud as itself a faint syllable may go.)"""
    talk = turns(speakers[0], first, [0.2, 0.4], 12)
    near_db = min(0.0, room_of["gain_db"] + above_db)
    near = np.float32(10 ** (near_db / 20)) * turns(speakers[1], first, silences_s, 12)
    mixed = near + room(talk, **room_of) + hiss(2, talk.size)  # type: ignore[arg-type]
    detector = open_detector()
    voices = detector.open().feed(talk), detector.open().feed(mixed)
    one, other = EchoGate(2).judge((talk, mixed), voices)
    assert not changed(voices[0], one)
    spoken = {at for at, voice in enumerate(detector.open().feed(near)) if speaks(voice)}
    lost = (spoken & covered(voices[1])) - covered(other)
    assert longest_run(lost) * FRAME <= 0.2 * SAMPLE_RATE
