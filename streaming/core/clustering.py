"""Agglomerative clustering with average linkage: functions on similarity matrices.

The similarity of two clusters is the weighted mean over all pairs of their members, which for vectors is the
dot product of the clusters' mean vectors: so a cluster of hours can stand in one row and nothing is lost.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
Labels = npt.NDArray[np.intp]

NEVER = np.float32(-np.inf)
"""A similarity that keeps two rows, and the clusters they come into, apart for good."""


def agglomerate(similarity: Matrix, weights: Matrix, threshold: float) -> Labels:
    """The cluster of each row: the index of its first row.

    `similarity` is n x n and symmetric, `weights` n; the diagonal does not count. The two most similar
    clusters are merged for as long as they reach `threshold`; of equal pairs the one with the lower rows.
    """
    near = similarity.astype(np.float32)
    np.fill_diagonal(near, NEVER)
    weight = weights.astype(np.float32)
    labels = np.arange(len(near))
    while len(near) > 1:
        i, j = sorted(divmod(int(near.argmax()), len(near)))
        if near[i, j] < threshold:
            break
        # -inf stays -inf: what may not be linked to a part may not be linked to the whole.
        row = (weight[i] * near[i] + weight[j] * near[j]) / (weight[i] + weight[j])
        row[i] = NEVER
        near[i], near[:, i] = row, row
        near[j], near[:, j] = NEVER, NEVER
        weight[i] += weight[j]
        labels[labels == j] = i
    return labels


def assign(similarity: Matrix) -> list[tuple[int, int]]:
    """Pairs (row, column), greatest first, no row and no column twice; pairs at or below 0 are left out."""
    left = similarity.astype(np.float32)
    pairs: list[tuple[int, int]] = []
    while left.size and left.max() > 0:
        row, column = divmod(int(left.argmax()), left.shape[1])
        pairs.append((row, column))
        left[row], left[:, column] = NEVER, NEVER
    return pairs
