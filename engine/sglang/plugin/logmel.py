"""Log-mel features in torch, equal to the reference extractor, for the CPU and for the GPU.

The reference pads every clip to 30 s and transforms all of it. Here the spoken part is transformed and the
silence behind it filled in: its value is known, and it is most of a live window.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import torch

RATE = 16_000
HOP = 160
FFT = 400
LOG_FLOOR = 1e-10
RANGE = 8.0
"""Decades below the loudest value that are kept."""


def filters(bins: int) -> npt.NDArray[np.float32]:
    """Slaney-style triangular mel filters, area normalised: (bins, FFT // 2 + 1)."""
    edges = _hertz(np.linspace(_mel(0.0), _mel(RATE / 2), bins + 2))
    frequencies = np.linspace(0.0, RATE / 2, FFT // 2 + 1)
    lower, centre, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (frequencies - lower) / (centre - lower)
    falling = (upper - frequencies) / (upper - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return (triangles * (2.0 / (upper - lower))).astype(np.float32)


def _mel(hertz: float) -> float:
    """Linear below 1 kHz, logarithmic above."""
    return (
        3.0 * hertz / 200.0 if hertz < 1000.0 else float(15.0 + np.log(hertz / 1000.0) * 27.0 / np.log(6.4))
    )


def _hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    linear = 200.0 * mel / 3.0
    return np.where(mel < 15.0, linear, 1000.0 * np.exp(np.log(6.4) * (mel - 15.0) / 27.0))


@cache
def _tables(bins: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    window = torch.hann_window(FFT, dtype=torch.float32, device=device)
    return window, torch.from_numpy(filters(bins)).to(device)


def log_mel(samples: torch.Tensor, bins: int) -> torch.Tensor:
    """Features of whole windows: (n, hops * HOP) float32 in [-1, 1] -> (n, bins, hops) float32.

    Each row is scaled by its own loudest value. Rows must have been padded with silence.
    """
    return _scaled(log_energies(samples, bins))


def log_mel_padded(samples: torch.Tensor, bins: int, frames: int) -> torch.Tensor:
    """Features of one clip in a window of `frames`: (n,) float32 -> (bins, frames).

    Only the clip and the frames that still touch it are transformed.
    """
    # A frame reaches FFT / 2 to both sides; the last one that touches the clip starts a little after it.
    spoken = min(frames, (len(samples) + FFT // 2) // HOP + 2)
    padded = torch.zeros(spoken * HOP, dtype=torch.float32)
    usable = samples[: len(padded)]
    padded[: len(usable)] = usable
    out = torch.full((bins, frames), float(np.log10(LOG_FLOOR)))
    out[:, :spoken] = log_energies(padded.unsqueeze(0), bins)[0]
    return _scaled(out.unsqueeze(0))[0]


def log_energies(samples: torch.Tensor, bins: int) -> torch.Tensor:
    """Decades of mel power: (n, hops * HOP) -> (n, bins, hops); edges are mirrored."""
    window, mel = _tables(bins, samples.device)
    spectrum = torch.stft(samples, FFT, HOP, window=window, return_complex=True)
    power = spectrum[..., :-1].abs().square()
    return torch.log10((mel @ power).clamp(min=LOG_FLOOR))


def _scaled(energies: torch.Tensor) -> torch.Tensor:
    return scaled_to(energies, energies.amax(dim=(-2, -1), keepdim=True))


def scaled_to(energies: torch.Tensor, loudest: torch.Tensor) -> torch.Tensor:
    """Clipped to `RANGE` decades below `loudest`, then about [-1, 1]."""
    return (torch.maximum(energies, loudest - RANGE) + 4.0) / 4.0
