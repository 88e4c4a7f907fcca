"""Everything that differs between the SGLang versions we run on (0.5.17 and 0.5.23), in one place.

Imported only where sglang is installed. Anything else that uses SGLang takes its names from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem, MultimodalProcessorOutput


def audio_item(feature: torch.Tensor, item_hash: int, **extra: Any) -> MultimodalDataItem:
    """One audio input. The hash is ours, so that SGLang does not hash the feature again.

    `extra` travels with the item (offsets, masks, frame counts). 0.5.23 keeps items as structs and masks
    the hash to 64 bits, 0.5.17 as plain objects; both take these keywords.
    """
    offsets = extra.pop("offsets", None)
    item = MultimodalDataItem(
        modality=Modality.AUDIO, feature=feature, hash=item_hash & (2**64 - 1), offsets=offsets
    )
    for name, value in extra.items():
        setattr(item, name, value)
    return item


def processor_output(
    input_ids: Sequence[int], items: list[MultimodalDataItem], **extra: Any
) -> MultimodalProcessorOutput:
    """What a processor hands on; `extra` are the token ids and positions that some models need."""
    return MultimodalProcessorOutput(input_ids=list(input_ids), mm_items=items, **extra)


def sampling(request: Any) -> dict[str, Any]:
    """The request's sampling parameters, as the caller sent them."""
    return dict(getattr(request, "sampling_params", None) or {})
