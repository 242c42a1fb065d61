"""The paper's similarity graph, one row block or vector at a time.

W_ij = exp(−d²_ij / (σ_i σ_j)) if j is among the q nearest neighbours of i or i among those of j;
A = D^−½ W D^−½.
"""

import numpy as np
from scipy import sparse


def local_scales(distances: np.ndarray, *, p: int = 7) -> np.ndarray:
    """σ_i: the distance of each row to its `p`-th neighbour, (n,) from sorted distances (n, ≥ p).

    Where that is 0 (a row with p duplicates) the nearest distance above 0 stands in, if there is one; where
    the p-th neighbour was not found, the farthest that was.
    """
    known = np.where(np.isfinite(distances), distances, 0)
    scale = known[:, min(p, distances.shape[1]) - 1]
    farthest = known.max(axis=1)
    nearest = np.where(known > 0, known, np.inf).min(axis=1)
    lost = ~np.isfinite(distances[:, min(p, distances.shape[1]) - 1])
    scale = np.where(lost, farthest, scale)
    return np.where((scale == 0) & np.isfinite(nearest), nearest, scale)


def gaussian_weights(distances: np.ndarray, scales: np.ndarray, neighbor_scales: np.ndarray) -> np.ndarray:
    """exp(−d² / (σ_i σ_j)); a distance of 0 weighs 1 and an infinite one 0, whatever the scales.

    A scale of 0 belongs to a row whose whole list is duplicates: the other end's scale stands in for it.
    """
    one = np.where(scales > 0, scales, neighbor_scales)
    two = np.where(neighbor_scales > 0, neighbor_scales, scales)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exponent = (distances / one) * (distances / two)
    return np.exp(-np.where(distances == 0, 0, exponent))


def symmetric_union(own: sparse.csr_matrix, turned: sparse.csr_matrix) -> sparse.csr_matrix:
    """An edge if either end has it; the larger weight where both do and differ by rounding."""
    W = own.maximum(turned)
    W.eliminate_zeros()
    W.sort_indices()
    return W
