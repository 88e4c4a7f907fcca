"""The likeliest words behind words that are known, which cost a pass together instead of a step each.

The embedded runtime has no such search, so this one runs beside it, over the same encoder's states. Two kinds
of words are known: those that are committed, and a draft, what the last decode heard after them. The draft
is only checked: as far as the model says the same it is taken, from there on it is searched word by word, so
the text is the one without it (speculative decoding, Leviathan et al., 2022, arXiv:2211.17192).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.contract import EngineError
from engine.policies.whisper import Output, Plan, WhisperPolicy
from engine.policies.whisper_convert import ConversionError, read_variables

from . import graphs

Floats = npt.NDArray[np.float32]

_BEST, _ALLOWED, _ALL = range(3)
"""Of a row of `scores`."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What was searched: `chances` is one number a token of `output.ids`; `attention` (heads, rows, frames)
    has a row for each token of prefix and output, from the one it is said after, and one for the end."""

    output: Output
    chances: tuple[float, ...]
    attention: Floats


class GreedySearch:
    """Safe to share between threads: each call runs in the thread that makes it."""

    def __init__(self, folder: Path, policy: WhisperPolicy, *, rounded: bool) -> None:
        """Read the weights again, in the form the graphs want. Raises `EngineError`: "missing", "weights"."""
        try:
            config = json.loads((folder / "config.json").read_text("utf-8"))
            with (folder / "model.bin").open("rb") as file:
                tensors = read_variables(file)
            heads = [(int(layer), int(head)) for layer, head in config["alignment_heads"]]
            first = [int(token) for token in config["suppress_ids_begin"]]
            self._sizes = graphs.Sizes.of(tensors)
            self._heard = _session(graphs.heard(tensors, rounded=rounded))
            self._spoken = _session(graphs.spoken(tensors, heads, policy.suppressed, first, rounded=rounded))
        except ImportError as error:
            message = f"{error.name} is not installed; bring it with: pip install 'seamscribe[engine]'"
            raise EngineError("missing", message, retryable=False) from error
        except (OSError, ConversionError, KeyError, ValueError) as error:
            raise EngineError("weights", f"{folder.name}: {error}", retryable=False) from error
        self._special = policy.special

    def __call__(self, states: Floats, plan: Plan, draft: Sequence[int]) -> Found:
        """Go on after `plan.prompt`. `states` is (1, frames, width); the draft may be wrong, and is cut to
        the budget."""
        walk = _Walk(self._spoken, self._sizes, _named(self._heard, {"states": states}))
        prompt, draft = plan.prompt, draft[: plan.budget]
        start, end = plan.head.index(self._special.start), len(prompt) - 1
        first = 0 if plan.prefix and not plan.goes_on else 1
        rows = walk.on(
            [*prompt, *draft],
            asked=[start, *range(end, len(prompt) + len(draft))],
            barred=[0, first, *[0] * len(draft)],
            watch=len(plan.head) - 1,
        )
        no_speech = float(np.exp(rows.logits[0, self._special.no_speech] - rows.scores[0, _ALL]))
        best, scores = list(rows.best[1:]), list(rows.scores[1:])
        said = 0
        while said < len(draft) and best[said] == draft[said]:
            said += 1
        walk.forget(len(draft) - said)
        del best[said + 1 :], scores[said + 1 :]
        while best[-1] != self._special.end and len(best) <= plan.budget:
            rows = walk.on([best[-1]], asked=[0], barred=[0], watch=0)
            best.append(rows.best[0])
            scores.append(rows.scores[0])
        full = best[-1] != self._special.end
        ids = best[: plan.budget] if full else best[:-1]
        logprob = sum(float(row[_BEST] - row[_ALLOWED]) for row in scores)
        output = Output(tuple(map(int, ids)), logprob / len(scores), no_speech, full)
        chances = tuple(float(np.exp(row[_BEST] - row[_ALL])) for row in scores[: len(ids)])
        return Found(output, chances, walk.attention())


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """What comes after the tokens that were asked about, a row each."""

    best: npt.NDArray[np.int64]
    scores: Floats
    logits: Floats


class _Walk:
    """One sequence as far as it has come."""

    def __init__(self, session: Any, sizes: graphs.Sizes, heard: dict[str, Any]) -> None:
        self._session, self._heard = session, heard
        self._length = 0
        self._watched: list[Floats] = []
        empty = np.zeros((1, sizes.heads, sizes.depth, 0), np.float32)
        self._past: dict[str, Floats] = {}
        for layer in range(sizes.layers):
            self._past |= {f"past_key{layer}": empty, f"past_value{layer}": empty.transpose(0, 1, 3, 2)}

    def on(self, tokens: Sequence[int], *, asked: Sequence[int], barred: Sequence[int], watch: int) -> _Rows:
        """Take `tokens`; attention is kept from the token numbered `watch` on."""
        count, before = len(tokens), self._length
        mask = np.triu(np.full((count, before + count), -1e9, np.float32), 1 + before)
        found = _named(
            self._session,
            {
                "tokens": np.array([tokens], np.int64),
                "positions": np.arange(before, before + count),
                "mask": mask,
                "asked": np.array(asked, np.int64),
                "barred": np.array(barred, np.int64),
                **self._heard,
                **self._past,
            },
        )
        self._length += count
        self._past = {f"past_{name[4:]}": value for name, value in found.items() if name.startswith("new_")}
        self._watched.append(found["attention"][0, :, watch:])
        return _Rows(found["best"][0], found["scores"][0], found["logits"][0])

    def forget(self, count: int) -> None:
        """The last `count` tokens were never said."""
        if count:
            self._length -= count
            for name, value in self._past.items():
                key = name.startswith("past_key")
                self._past[name] = value[..., :-count] if key else value[:, :, :-count]
            self._watched[-1] = self._watched[-1][:, :-count]

    def attention(self) -> Floats:
        """(heads, tokens watched, frames)."""
        return np.concatenate(self._watched, axis=1)


def _named(session: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _session(graph: bytes) -> Any:
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    # The thread that asks computes; as many ask as there are cores.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # No two calls have the same shapes: plans of memory made for each would only pile up.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
