"""Modularity: how many more of a graph's edges a partition keeps within its clusters than chance would.

Q_γ = Σ_c [ w_c/m − γ (d_c/m)² ], w_c the weight within cluster c, d_c its degrees, m all degrees (Newman 2006;
Reichardt, Bornholdt 2006). It needs no truth and, unlike the objective, does not reward a cluster of a few rows
that hang together as much as a large one. Results report γ = 1. That one is fond of clusters of equal size: it
would cut the largest of unequal classes in two, so clusterings are compared with each other by γ = 0.4.
"""

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Value
from snmf_dist.solve.kernels import weight_inside

REPORTED = 1.0  # γ of the modularity in results
COMPARED = 0.4  # γ that clusterings are compared by; one single cluster scores 1 − γ


def modularities(
    A: Graph, labels: Rows, weights: Rows, *, K: int, resolutions: tuple[float, ...] = (REPORTED,)
) -> Value:
    """Q_γ of each column of labels, (resolutions, R); rows labelled −1 count as kept in no cluster.

    Parameters
    ----------
    labels : rows of int, (n, R)
        Partitions into clusters 0 to K − 1.
    weights : rows, (n, 2)
        For each row its factor r, with W = rAr, and its degree in W.
    resolutions : tuple of float, default (1.0,)
        The values of γ.
    """
    rows = A.map(_beside, weights, labels, width=2 + labels.shape[1], dtype=np.float64)
    inside = A.sweep_sum(weight_inside, rows, rows={"rows": rows})
    return A.central(_modularity, inside, A.sum(_volumes, rows, K=K), resolutions=resolutions)


def _beside(weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.concatenate([weights, labels], axis=1, dtype=np.float64)


def _volumes(rows: np.ndarray, *, K: int) -> np.ndarray:
    """The degrees of each cluster of each partition; the last place is for rows in none, (R, K + 1)."""
    return np.stack([np.bincount(label.astype(int) % (K + 1), rows[:, 1], K + 1) for label in rows[:, 2:].T])


def _modularity(inside: np.ndarray, volumes: np.ndarray, *, resolutions: tuple[float, ...]) -> np.ndarray:
    m = volumes.sum(axis=1)
    chance = np.square(volumes[:, :-1] / m[:, None]).sum(axis=1)
    return inside / m - np.multiply.outer(resolutions, chance)
