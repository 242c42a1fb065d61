"""Sums of the weights rᵢ Aᵢⱼ rⱼ over pairs of labelled rows, compiled as those of `fused` and part of them."""

import numpy as np
from numba import njit

from snmf_dist.engine.halo import Block
from snmf_dist.solve.kernels.compiled import FAST


@njit(**FAST)
def _weight_inside(indptr, indices, data, own, halo, rows, total):  # type: ignore[no-untyped-def]
    """total += rᵢ Aᵢⱼ rⱼ over entries whose rows have the same label ≥ 0; rows: r, degree, labels."""
    cut = len(own)
    for i in range(len(rows)):
        for p in range(indptr[i], indptr[i + 1]):
            c = np.int64(indices[p])
            there = own[c] if c < cut else halo[c - cut]
            weight = data[p] * rows[i, 0] * there[0]
            for r in range(len(total)):
                if rows[i, 2 + r] == there[2 + r] and there[2 + r] >= 0:
                    total[r] += weight


@njit(**FAST)
def _group_weights(indptr, indices, data, own, halo, rows, first, total):  # type: ignore[no-untyped-def]
    """total[group of i − first, group of j] += rᵢ Aᵢⱼ rⱼ; rows: r, group."""
    cut = len(own)
    for i in range(len(rows)):
        line = total[np.int64(rows[i, 1]) - first]
        for p in range(indptr[i], indptr[i + 1]):
            c = np.int64(indices[p])
            there = own[c] if c < cut else halo[c - cut]
            line[np.int64(there[1])] += data[p] * rows[i, 0] * there[0]


def weight_inside(
    A: Block, own: np.ndarray, halo: np.ndarray, rows: np.ndarray, *, out: list[np.ndarray]
) -> np.ndarray:
    """Σᵢⱼ rᵢ Aᵢⱼ rⱼ over the entries whose rows have the same label ≥ 0, for each partition, (R,)."""
    total = np.zeros(rows.shape[1] - 2)
    _weight_inside(*A[:3], own, halo, rows, total)
    return total


def group_weights(
    A: Block, own: np.ndarray, halo: np.ndarray, rows: np.ndarray, *, groups: int, out: list[np.ndarray]
) -> list[tuple[int, np.ndarray]]:
    """Σᵢⱼ rᵢ Aᵢⱼ rⱼ of each pair of groups, as `plain.group_weights` has them."""
    if not len(rows):
        return []
    first, last = int(rows[0, 1]), int(rows[-1, 1])
    total = np.zeros((last - first + 1, groups))
    _group_weights(*A[:3], own, halo, rows, first, total)
    return [(first, total)]
