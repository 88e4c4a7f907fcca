"""`seamscribe engine MODEL [options] [-- flags]`: start an SGLang server the way the model needs it.

Flags come from the model's policy; the operator's own, after `--`, win, unless they are known to crash.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.kv import Load, capacity, longest_s, streams
from engine.policies.opening import open_serving
from engine.policies.serving import ModelFacts

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


def describe(folder: Path, facts: ModelFacts, machine: Machine, settings: LaunchSettings) -> list[str]:
    """What fits, in sentences for an operator."""
    if not machine.gpu or facts.kv_bytes_per_token is None or machine.memory_gib is None:
        return ["no GPU here: for tests only, in 32-bit numbers"]
    fraction = settings.memory_fraction or 0.8
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1024**3
    positions = capacity(
        machine.memory_gib, fraction, facts.kv_bytes_per_token, weights_gib=weights, overhead_gib=1.3
    )
    load = Load(audio_tokens_per_s=facts.audio_tokens_per_s)
    window = min(12.0, facts.native_s)
    return [
        f"KV cache: {facts.kv_bytes_per_token} bytes a position, {positions} positions at"
        f" mem_fraction_static {fraction:g} of {machine.memory_gib:.0f} GiB",
        f"live: {streams(positions, load, window_s=window)} requests of {window:g} s at once",
        f"recordings: {longest_s(positions, load, native_s=facts.native_s):.0f} s in one request",
    ]


def main(argv: Sequence[str]) -> int:
    """Run the server in the foreground; its exit status, or 2 for a flag set that is refused."""
    own, _, rest = _split(list(argv))
    parser = argparse.ArgumentParser(prog="seamscribe engine", description=__doc__)
    parser.add_argument("model", type=Path, help="a Hugging Face model folder")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--running", type=int, default=256, help="requests decoded at once")
    parser.add_argument("--chunk", type=int, default=2048, help="prefill tokens between two decode steps")
    parser.add_argument("--tokenizers", type=int, default=1, help="front-end processes")
    parser.add_argument("--memory-fraction", type=float, default=None)
    parser.add_argument("--full-window", action="store_true", help="encode the full window always")
    parser.add_argument("--print", action="store_true", help="show the command and what fits; start nothing")
    options = parser.parse_args(own)
    settings = LaunchSettings(
        running=options.running,
        chunk=options.chunk,
        tokenizers=options.tokenizers,
        memory_fraction=options.memory_fraction,
        variable_window=not options.full_window,
        port=options.port,
    )
    machine = find_machine()
    try:
        facts = open_serving(options.model).facts
        command, added = server_command(options.model, facts, machine, settings, parse_arguments(rest))
    except ValueError as error:
        sys.stderr.write(f"refused: {error}\n")
        return 2
    for line in describe(options.model, facts, machine, settings):
        sys.stderr.write(line + "\n")
    if options.print:
        sys.stdout.write(" ".join([*(f"{k}={v}" for k, v in added.items()), *command]) + "\n")
        return 0
    return subprocess.run(command, env=os.environ | added, check=False).returncode


def _split(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in argv:
        return argv, False, []
    place = argv.index("--")
    return argv[:place], True, argv[place + 1 :]
