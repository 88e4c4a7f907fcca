"""The `seamscribe` command: finds the subcommand and imports only that."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from .version import version

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("streaming.serve:main", "serve live transcription"),
    "replay": ("clients.replay:main", "play files as live streams and show the captions"),
    "captions": ("clients.egress:main", "send a session's captions to Zoom or OBS"),
    "demo": ("clients.demo:main", "server, real engine and real speech in one command"),
    "bench": ("clients.bench:main", "measure delays and accuracy on live streams"),
    "chaos": ("clients.chaos:main", "break lines, clients and servers, and see whether promises hold"),
    "engine": ("engine.sglang.launcher:main", "start an SGLang server the way a model needs it"),
    "key": ("streaming.access.keys:main", "make API keys"),
    "voice": ("streaming.enrol:main", "enrol, list and delete voices that sessions may recognize"),
    "doctor": ("engine.doctor:main", "what is installed, what is missing"),
    "weights": ("engine.weights:main", "which weights are here, and whether they are intact"),
}
"""By name: the function (argv) -> exit status as "module:function", and what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand with the rest of the arguments; its status is the answer."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Everything behind the name is the subcommand's own; argparse would take its options for ours.
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        _parser().parse_args(arguments or ["--help"])
        return 2
    module, _, function = COMMANDS[name][0].partition(":")
    command: Callable[[Sequence[str]], int] = vars(importlib.import_module(module))[function]
    try:
        status = command(arguments[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has left (`| head`). What is still buffered goes nowhere, in silence.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seamscribe",
        description="Live meeting transcription whose committed words never change.",
        epilog="\n".join(f"  {name:8} {about}" for name, (_, about) in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version()}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    return parser
