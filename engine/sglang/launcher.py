"""`seamscribe engine MODEL [options] [-- flags]`: start an SGLang server the way the model needs it.

Flags come from the model's policy; the operator's own, after `--`, win, unless they are known to crash.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.contract import EngineError
from engine.kv import FRACTION, GIB, Fit, Load, fit
from engine.policies.opening import OMNI, named_of, open_named, open_serving
from engine.policies.serving import ModelFacts
from engine.tuning import Row, see

from .child import run
from .compat import adapt_flags, installed
from .flags import (
    LaunchSettings,
    Machine,
    as_arguments,
    environment,
    parse_arguments,
    plan_flags,
    refuse,
)
from .folders import serving_folder
from .omni import launch as omni

WINDOW_S = 24.0
"""Audio of a live request at most, where the service's settings are not changed."""


def find_machine() -> Machine:
    """This machine's first GPU as the driver reports it; a CPU where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None or os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return Machine()
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
        return Machine(memory_gib=float(answer.split()[0]) / 1024, flash_attention=_has_flash_attention())
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return Machine()


def _has_flash_attention() -> bool:
    """Whether the kernels that SGLang takes by default on Hopper are there; some installs leave them out."""
    from importlib.util import find_spec

    spec = find_spec("sgl_kernel")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return any(any(Path(folder).glob("flash_ops*")) for folder in folders)


def server_command(
    folder: Path, facts: ModelFacts, machine: Machine, settings: LaunchSettings, extra: dict[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """Command and added environment of one server; raises `ValueError` for refused flag sets."""
    flags = adapt_flags(plan_flags(facts, machine, settings), installed()) | extra
    reasons = refuse(facts, flags)
    if reasons:
        raise ValueError("\n".join(reasons))
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(folder)]
    flags.setdefault("port", settings.port)
    return [*command, *as_arguments(flags)], environment(facts, settings, machine)


def what_fits(
    facts: ModelFacts,
    machine: Machine,
    settings: LaunchSettings,
    *,
    weights_gib: float,
    fraction: float | None = None,
    recording_s: float = 0.0,
) -> Fit:
    """KV arithmetic of one model on one machine; `fraction` is the share of its memory, None for SGLang's."""
    if machine.memory_gib is None:
        return Fit(("no GPU here: for tests only, in 32-bit numbers",))
    if facts.kv_bytes_per_token is None:
        return Fit(("KV cache: how many bytes a position takes is not known for this model",))
    return fit(
        Load(audio_tokens_per_s=facts.audio_tokens_per_s, output_per_s=facts.budget_per_s),
        facts.kv_bytes_per_token,
        memory_gib=machine.memory_gib,
        fraction=FRACTION if fraction is None else fraction,
        weights_gib=weights_gib,
        native_s=facts.native_s,
        window_s=min(max(WINDOW_S, facts.window_s or 0.0), facts.native_s),
        running=settings.running,
        recording_s=recording_s,
    )


def weights_of(folder: Path) -> float:
    """GiB of a folder's weights."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / GIB


def main(argv: Sequence[str]) -> int:
    """Run the server in the foreground; its exit status, or 2 for what cannot work."""
    own, _, rest = _split(list(argv))
    options = _parser().parse_args(own)
    settings = LaunchSettings(
        running=options.running,
        chunk=options.chunk,
        tokenizers=options.tokenizers,
        memory_fraction=options.memory_fraction,
        variable_window=not options.full_window,
        port=options.port,
    )
    machine = find_machine()
    if options.model in OMNI:
        sys.stderr.write(
            f"refused: {options.model} is a family of models: name the folder of its weights instead; what"
            f" fits: seamscribe doctor --model {options.model} --memory GIB\n"
        )
        return 2
    if (name := named_of(Path(options.model).expanduser())) is not None:
        return _omni(name, options, settings, machine, rest)
    if installed() is None and not options.print:
        sys.stderr.write("refused: SGLang is not installed in this environment: pip install sglang\n")
        return 2
    try:
        extra = parse_arguments(rest)
        folder = serving_folder(options.model)
        facts = open_serving(folder).facts
        command, added = server_command(folder, facts, machine, settings, extra)
        fraction = extra.get("mem_fraction_static", settings.memory_fraction)
        found = what_fits(
            facts,
            machine,
            settings,
            weights_gib=weights_of(folder),
            fraction=None if fraction is None else float(fraction),
            recording_s=options.recording,
        )
    except (ValueError, EngineError) as error:
        sys.stderr.write(f"refused: {error}\n")
        return 2
    if _refused(found):
        return 2
    if options.print:
        sys.stdout.write(" ".join([*(f"{k}={v}" for k, v in added.items()), *command]) + "\n")
        return 0
    return _serve(command, added)


def _refused(found: Fit) -> bool:
    """Tell what fits; whether it does not."""
    sys.stderr.writelines(f"{line}\n" for line in found.lines)
    if found.problem is not None:
        sys.stderr.write(f"refused: {found.problem}; {see(Row.START_MEMORY, Row.RUN_MEMORY)}\n")
        return True
    sys.stderr.writelines(f"{risk}; {see(row)}\n" for risk, row in found.risks)
    return False


def _omni(
    name: str,
    options: argparse.Namespace,
    settings: LaunchSettings,
    machine: Machine,
    rest: Sequence[str],
) -> int:
    """Another server, for models that SGLang's own does not serve."""
    facts, folder = open_named(name).facts, Path(options.model).expanduser()
    assert facts.pipeline is not None
    stage = omni.stage_of(facts, settings, machine)
    try:
        environment = omni.find_environment(options.environment)
    except ValueError as error:
        sys.stderr.write(f"refused: {error}\n")
        return 2
    found = what_fits(
        facts,
        machine,
        replace(settings, running=stage.running),
        weights_gib=weights_of(folder) or facts.weights_gib or 0.0,
        fraction=settings.memory_fraction,
        recording_s=options.recording,
    )
    if _refused(found):
        return 2
    if options.print:
        config = Path("omni.json")
        sys.stdout.write(f"{json.dumps(omni.described(environment, facts.pipeline, folder, stage))}\n")
        sys.stdout.write(" ".join(omni.command(environment, config, settings, rest)) + "\n")
        return 0
    if (fault := omni.missing(environment)) is not None:
        sys.stderr.write(f"refused: {fault}\n")
        return 2
    sys.stderr.write(
        f"once it answers: seamscribe serve --engine sglang --model {name}, with"
        f' engine.servers = ["http://127.0.0.1:{settings.port}"]\n'
    )
    return _ended(omni.serve(environment, facts.pipeline, folder, stage, settings, rest))


def _serve(command: list[str], added: dict[str, str]) -> int:
    return _ended(run(command, os.environ | added))


def _ended(status: int) -> int:
    if status:
        rows = see(Row.START_MEMORY, Row.RUN_MEMORY, Row.BROKEN)
        sys.stderr.write(f"the SGLang server ended with status {status}; {rows}\n")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="seamscribe engine", description=__doc__)
    parser.add_argument("model", help="a packaged model's name, or a Hugging Face model folder")
    parser.add_argument("--port", type=_number(int, 1, 65_535), default=30000)
    running, chunk, front = _number(int, 1, 8192), _number(int, 1, 1 << 20), _number(int, 1, 128)
    parser.add_argument("--running", type=running, default=256, help="requests decoded at once")
    parser.add_argument("--chunk", type=chunk, default=2048, help="prefill tokens between two decode steps")
    parser.add_argument("--tokenizers", type=front, default=1, help="front-end processes")
    parser.add_argument(
        "--memory-fraction", type=_number(float, 0.05, 0.99), help="share of the GPU's memory to take"
    )
    parser.add_argument(
        "--recording",
        type=_number(float, 0, 86_400),
        default=0.0,
        metavar="S",
        help="refuse unless S seconds fit in one request",
    )
    parser.add_argument(
        "--environment",
        metavar="DIR",
        help="the environment of another server that the model needs, where this one does not hold it",
    )
    parser.add_argument("--full-window", action="store_true", help="encode the full window always")
    parser.add_argument("--print", action="store_true", help="show the command and what fits; start nothing")
    return parser


def _number(kind: type[int] | type[float], least: float, most: float) -> Callable[[str], float]:
    """Reads an argument from `least` to `most`: another one SGLang would refuse after minutes, if at all."""

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = kind(most + 1)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} cannot be: use {least:g} to {most:g}")
        return number

    return read


def _split(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in argv:
        return argv, False, []
    place = argv.index("--")
    return argv[:place], True, argv[place + 1 :]
