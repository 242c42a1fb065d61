"""Modularity: how many more of a graph's edges a partition keeps within its clusters than chance would.

Q = Σ_c [ w_c/m − (d_c/m)² ], w_c the weight within cluster c, d_c its degrees, m all degrees (Newman 2006). It
needs no truth and, unlike the objective, does not reward a cluster of a few rows that hang together as much as a
large one.

Q is fond of clusters of equal size: it would cut the largest of unequal classes in two. The assortativity
r = Q / (1 − Σ_c (d_c/m)²), the share of the highest Q that clusters of these sizes could have (Newman 2003), is
fond of one giant cluster. Partitions are compared by a mean of both, F = ∜(Q r³), and results report Q.
"""

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Value
from snmf_dist.solve.kernels import weight_inside


def modularities(A: Graph, labels: Rows, weights: Rows, *, K: int | np.ndarray) -> Value:
    """Q and F of each column of labels, (2, R); rows labelled −1 count as kept in no cluster.

    Parameters
    ----------
    labels : rows of int, (n, R)
        Partitions into clusters 0 to K − 1.
    weights : rows, (n, 2)
        For each row its factor r, with W = rAr, and its degree in W.
    K : int or ndarray of int, (R,)
        Clusters of all partitions, or of each.
    """
    Ks = np.broadcast_to(K, labels.shape[1])
    rows = A.map(_beside, weights, labels, width=2 + labels.shape[1], dtype=np.float64)
    inside = A.sweep_sum(weight_inside, rows, rows={"rows": rows})
    return A.central(_each_modularity, inside, A.sum(_volumes, rows, K=int(Ks.max())), Ks=Ks)


def _beside(weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.concatenate([weights, labels], axis=1, dtype=np.float64)


def _volumes(rows: np.ndarray, *, K: int) -> np.ndarray:
    """The degrees of each cluster of each partition; the last place is for rows in none, (R, K + 1)."""
    return np.stack([np.bincount(label.astype(int) % (K + 1), rows[:, 1], K + 1) for label in rows[:, 2:].T])


def _each_modularity(inside: np.ndarray, volumes: np.ndarray, *, Ks: np.ndarray) -> np.ndarray:
    """Q and F of each partition, from its own clusters alone: zeros beside them would change the rounding."""
    if (Ks == volumes.shape[1] - 1).all():
        return _modularity(inside, volumes)
    own = [np.append(volume[:K], volume[-1])[None] for volume, K in zip(volumes, Ks, strict=True)]
    return np.concatenate([_modularity(inside[r : r + 1], one) for r, one in enumerate(own)], axis=1)


def _modularity(inside: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    m = volumes.sum(axis=1)
    chance = np.square(volumes[:, :-1] / m[:, None]).sum(axis=1)
    Q = inside / m - chance
    r = np.divide(Q, 1 - chance, out=np.zeros_like(Q), where=chance < 1 - 1e-12)  # one cluster has no r
    return np.stack([Q, np.sign(Q) * np.abs(Q * r**3) ** 0.25])
