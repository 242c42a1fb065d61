"""The paper's similarity graph, one row block or vector at a time.

W_ij = exp(−d²_ij / (σ_i σ_j)) if j is among the q nearest neighbours of i or i among those of j;
A = D^−½ W D^−½.
"""

import numpy as np
from scipy import sparse


def local_scales(distances: np.ndarray, *, p: int = 7) -> np.ndarray:
    """σ_i: the distance of each row to its `p`-th neighbour, (n,) from sorted distances (n, ≥ p)."""
    return distances[:, min(p, distances.shape[1]) - 1]


def gaussian_weights(distances: np.ndarray, scales: np.ndarray, neighbor_scales: np.ndarray) -> np.ndarray:
    """exp(−d² / (σ_i σ_j)), (n, q); a distance of 0 weighs 1 whatever the scales."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = distances**2 / (scales[:, None] * neighbor_scales)
    return np.exp(-np.where(distances == 0, 0, exponent))


def normalize(W: sparse.csr_matrix, root: np.ndarray, all_roots: np.ndarray) -> sparse.csr_matrix:
    """D^−½ W D^−½ of a row block: `root` is √degree of its rows, `all_roots` of all n rows.

    Dividing by the product of the roots keeps A symmetric to the last bit, and a degree is never
    below one of its own weights, so nothing is divided by zero.
    """
    rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    data = W.data / (root[rows] * all_roots[W.indices])
    return sparse.csr_matrix((data, W.indices, W.indptr), shape=W.shape)
