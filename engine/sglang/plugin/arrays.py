"""Features as numpy arrays on their way to the scheduler: SGLang puts every tensor into shared memory of its
own and pickles it, which costs both processes more than the copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The tensor as an array; bfloat16, which numpy lacks, as the 16-bit integers of the same bits."""
    array: npt.NDArray[Any] = (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return array


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """What `as_array` was given."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if array.dtype == np.int16 else tensor
