"""Everything that differs between the SGLang versions we run on (0.5.17 and 0.5.23), in one place.

The functions of the first half import sglang when they are called: flags are planned without it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from .payload import read_options

DECODE_ROUNDS = "SEAMSCRIBE_DECODE_ROUNDS"
"""Variable for `interleave`: decode steps between two prefill batches, for versions without the flag."""

_ADDED = {
    "prefill_decode_interval": (0, 5, 18),
    "prefill_decode_interval_min_bs": (0, 5, 18),
}
"""Flags that older versions do not know: they are dropped there, because each is only a refinement."""


def installed() -> tuple[int, ...] | None:
    """SGLang's version here; None where it is not installed."""
    try:
        text = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def adapt_flags(flags: Mapping[str, Any], version: tuple[int, ...] | None) -> dict[str, Any]:
    """`flags` (names of `ServerArgs`) without those that `version` does not know."""
    if version is None:
        return dict(flags)
    return {name: value for name, value in flags.items() if version >= _ADDED.get(name, (0,))}


def interleave() -> None:
    """In a scheduler's process: what `prefill_decode_interval` does since 0.5.18, for an older SGLang."""
    version = installed()
    rounds = int(os.environ.get(DECODE_ROUNDS, "0"))
    if rounds and version is not None and version < _ADDED["prefill_decode_interval"]:
        from sglang.srt.managers.schedule_batch import NextBatchPlan
        from sglang.srt.managers.scheduler import Scheduler

        hold_prefill(Scheduler, rounds, NextBatchPlan)


def hold_prefill(scheduler: type[Any], rounds: int, plan_type: Any) -> None:
    """Have `scheduler` run `rounds` decode steps after each prefill batch, while there is anything to decode.

    Left to itself it prefills as long as anything waits. With hundreds of live streams something always
    does, in batches of a few requests that cost as much as large ones, and nobody's words are decoded until
    all streams wait at once.
    """
    prefill = scheduler.get_new_batch_prefill
    held: dict[int, int] = {}

    def get_new_batch_prefill(self: Any, running_batch: Any) -> Any:
        left = held.get(id(self), 0)
        if left and not running_batch.is_empty():
            held[id(self)] = left - 1
            return plan_type(batch_to_run=None, running_batch=running_batch)
        plan = prefill(self, running_batch)
        held[id(self)] = rounds if plan.batch_to_run is not None else 0
        return plan

    scheduler.get_new_batch_prefill = get_new_batch_prefill


def audio_item(feature: Any, item_hash: int, **extra: Any) -> Any:
    """One audio input of a request, a tensor or a numpy array.

    The hash is ours, so that SGLang does not hash the feature again.

    `extra` travels with the item (offsets, masks, frame counts). 0.5.23 keeps items as structs and masks
    the hash to 64 bits, 0.5.17 as plain objects; both take these keywords.
    """
    from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem

    offsets = extra.pop("offsets", None)
    item = MultimodalDataItem(
        modality=Modality.AUDIO, feature=feature, hash=item_hash & (2**64 - 1), offsets=offsets
    )
    for name, value in extra.items():
        # Both versions route unknown names into the item's own dictionary, by item access only in the old.
        item.set(name, value)
    return item


def processor_output(input_ids: Sequence[int], items: list[Any], **extra: Any) -> Any:
    """What a processor hands on; `extra` are the token ids and positions that some models need."""
    from sglang.srt.managers.schedule_batch import MultimodalProcessorOutput

    return MultimodalProcessorOutput(input_ids=list(input_ids), mm_items=items, **extra)


def sampling(request: Any) -> dict[str, Any]:
    """The request's sampling parameters, as the caller sent them."""
    return dict(getattr(request, "sampling_params", None) or {})


def own_options(request: Any, payload: Any) -> Mapping[str, Any]:
    """What a request says to our plugin: with its audio over HTTP, in its sampling parameters in process."""
    return {**(sampling(request).get("custom_params") or {}), **read_options(payload)}
