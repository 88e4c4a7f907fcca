"""Several schedulers for one GPU: the processes that run them, and which of them a request goes to.

A scheduler is one Python process and runs one batch at a time; what it does between two batches leaves the
GPU idle. SGLang's data parallelism starts several, but wants a GPU for each: here they share those there are.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

_SESSIONS = 4096
"""Sessions whose scheduler is remembered."""


class Spread:
    """Gives each request the number of a scheduler: the one with the fewest requests under way.

    Where prompts' beginnings are found again (`sticky`), a session stays where its prefix is cached.
    """

    def __init__(self, schedulers: int, *, sticky: bool) -> None:
        self._busy = [0] * schedulers
        self._homes: OrderedDict[str, int] = OrderedDict()
        self._sticky = sticky

    def take(self, session: str) -> int:
        """The scheduler for a request of `session`; give it back with `done`."""
        home = self._homes.get(session) if self._sticky else None
        if home is None:
            home = self._emptiest()
        if self._sticky:
            self._homes[session] = home
            self._homes.move_to_end(session)
            if len(self._homes) > _SESSIONS:
                self._homes.popitem(last=False)
        self._busy[home] += 1
        return home

    def done(self, scheduler: int) -> None:
        self._busy[scheduler] -= 1

    def _emptiest(self) -> int:
        """Sessions at home count where they stay: many may begin before the first of them asks."""
        load = list(self._busy)
        for home in self._homes.values():
            load[home] += 1
        return load.index(min(load))


def run_scheduler(server_args: Any, port_args: Any, gpu_id: int, *rest: Any) -> Any:
    """SGLang's scheduler process on GPU `gpu_id` modulo the GPUs there are. Runs as that process."""
    import torch
    from sglang.srt.managers.scheduler import run_scheduler_process

    return run_scheduler_process(server_args, port_args, gpu_id % max(torch.cuda.device_count(), 1), *rest)


def engine_class() -> Any:
    """`sglang.Engine`, its schedulers started so."""
    from sglang.srt.entrypoints.engine import Engine

    return type("SharingEngine", (Engine,), {"run_scheduler_process_func": staticmethod(run_scheduler)})


def serve(arguments: list[str]) -> None:
    """An HTTP server as `sglang.launch_server` runs it, its schedulers started so."""
    import os

    from sglang.srt.entrypoints.http_server import launch_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        launch_server(prepare_server_args(arguments), run_scheduler_process_func=run_scheduler)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    import sys

    from engine.sglang import schedulers

    # Under its own name: the scheduler processes find the function by it.
    schedulers.serve(sys.argv[1:])
