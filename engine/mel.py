"""Log-mel features of a short utterance followed by silence, at the price of the utterance alone.

Numerically the reference front end of the family (25 ms Hann windows, 10 ms hop, Slaney mel scale,
dynamic range of 8 decades); frames that hold nothing but padding are filled in instead of computed. PURE.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .contract import Audio

HOP = 160
"""Samples from one feature frame to the next (10 ms)."""
_FFT = 400
_RATE = 16_000
_FLOOR = 1e-10
_BLOCK = 32

Features = npt.NDArray[np.float32]


@lru_cache(maxsize=4)
def mel_filters(bands: int) -> Features:
    """Triangular Slaney-normalised filters, shape (bands, 201)."""
    # Slaney's scale: 3 mel per 200 Hz up to 1 kHz, then 27 mel for each factor of 6.4.
    top = 15.0 + 27.0 * np.log(8.0) / np.log(6.4)
    mel = np.linspace(0.0, top, bands + 2)
    hertz = np.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * np.exp((mel - 15.0) * np.log(6.4) / 27.0))
    bins = np.arange(_FFT // 2 + 1) * (_RATE / _FFT)
    left, centre, right = hertz[:-2, None], hertz[1:-1, None], hertz[2:, None]
    rising = (bins - left) / (centre - left)
    falling = (right - bins) / (right - centre)
    weights: Features = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (right - left))
    return np.asarray(weights, np.float32)


@lru_cache(maxsize=1)
def _hann() -> Features:
    window: Features = np.hanning(_FFT + 1)[:-1].astype(np.float32)
    return window


def log_mel(audio: Audio, frames: int, bands: int = 80) -> Features:
    """Features of `audio` padded with digital silence to `frames` hops, shape (bands, frames), C order.

    `audio` is float32 mono at 16 kHz; raises `ValueError` where it is longer than the frames.
    """
    total = frames * HOP
    if len(audio) > total:
        raise ValueError(f"{len(audio)} samples do not fit into {frames} frames of {HOP}")
    heard = min(frames, -(-(len(audio) + _FFT // 2) // HOP))
    signal = np.zeros(heard * HOP + _FFT, np.float32)
    signal[_FFT // 2 : _FFT // 2 + len(audio)] = audio
    _reflect(signal, total)
    windows = np.lib.stride_tricks.sliding_window_view(signal, _FFT)[::HOP][:heard]
    spectrum = np.fft.rfft(windows * _hann(), axis=-1)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
    heard_mel = np.log10(np.maximum(_project(power, bands), _FLOOR)).T
    peak = max(float(heard_mel.max()), np.log10(_FLOOR)) if heard_mel.size else np.log10(_FLOOR)
    floor = np.float32(max(peak - 8.0, np.log10(_FLOOR)))
    features = np.full((bands, frames), floor, np.float32)
    features[:, :heard] = np.maximum(heard_mel, floor)
    features += np.float32(4.0)
    features /= np.float32(4.0)
    return features


def _project(power: Features, bands: int) -> Features:
    """Mel energies, shape (frames, bands).

    In small blocks, because a threaded matrix product waits up to 16 ms for a second core that a decode
    is using.
    """
    filters = mel_filters(bands).T
    out = np.empty((len(power), bands), np.float32)
    for start in range(0, len(power), _BLOCK):
        np.matmul(power[start : start + _BLOCK], filters, out=out[start : start + _BLOCK])
    return out


def _reflect(signal: Features, total: int) -> None:
    """Mirror the edges in place, as a centred transform of the whole padded window does."""
    half = _FFT // 2
    signal[:half] = signal[half + 1 : 2 * half + 1][::-1]
    end = half + total
    if len(signal) > end:
        room = len(signal) - end
        signal[end:] = signal[end - 1 - room : end - 1][::-1]
