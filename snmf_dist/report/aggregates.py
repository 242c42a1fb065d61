"""What a report needs to know of a result and its graph: small tables, from one pass over each.

Nothing here grows with the rows but one label and one pixel number for each, so a report of many rows takes the
same effort as one of few, beside the passes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from snmf_dist.graph.store import GraphStore
from snmf_dist.result.foldin import strengths
from snmf_dist.result.tables import blocks

RASTER = 320  # pixels a side of the picture of A
CENTRAL = 5  # nodes named for a cluster
STRENGTH_BINS = 40
DEGREE_BINS = 40
WIDE = 20  # times the smallest degree at which degrees are shown on a logarithmic scale


@dataclass(frozen=True)
class Members:
    """What the membership says of each cluster.

    Attributes
    ----------
    strength : ndarray, shape (K, STRENGTH_BINS)
        Rows of each cluster by the share that it has of their membership, from 0 to 1.
    mean_strength : ndarray, shape (K,)
        NaN for an empty cluster.
    central : list of arrays of int
        Rows with the largest membership in each cluster, the largest first.
    """

    strength: np.ndarray
    mean_strength: np.ndarray
    central: list[np.ndarray]


@dataclass(frozen=True)
class EdgeSums:
    """What the graph says of the clusters.

    Attributes
    ----------
    density : ndarray, shape (R, R)
        Entries of A in each pixel, divided by its area; rows by cluster.
    edges : ndarray, shape (K,)
        Where each cluster ends, in pixels.
    weight : ndarray, shape (K + 1, K + 1)
        Sums of W between clusters; the last are the rows in no cluster.
    degree_counts : ndarray
        Histogram of the degrees that are not 0.
    degree_bounds : ndarray
        Bounds of that histogram, which rise by a constant factor or step.
    """

    density: np.ndarray
    edges: np.ndarray
    weight: np.ndarray
    degree_counts: np.ndarray
    degree_bounds: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """Share of each cluster's weight that goes to each cluster, (K, K); zeros for an empty one."""
        inside, total = self.weight[:-1, :-1], self.weight[:-1].sum(axis=1, keepdims=True)
        return np.divide(inside, total, out=np.zeros_like(inside), where=total > 0)

    @property
    def modularity(self) -> float:
        """Of the labels (Newman 2006)."""
        total = self.weight.sum()
        if not total:
            return float("nan")
        inside, degree = np.diag(self.weight)[:-1], self.weight[:-1].sum(axis=1)
        return float((inside / total - (degree / total) ** 2).sum())


def read_members(solution: Any) -> Members:
    """One pass over the membership."""
    labels, K = solution.labels, solution.k
    counts, sums = np.zeros((K, STRENGTH_BINS), dtype=np.int64), np.zeros(K)
    best_rows = np.full((K, CENTRAL), -1)
    best = np.zeros((K, CENTRAL))
    for start, L in blocks(solution):
        own = labels[start : start + len(L)]
        strong, known = strengths(L), own >= 0
        bins = np.minimum((strong * STRENGTH_BINS).astype(np.int64), STRENGTH_BINS - 1)
        cells = own[known] * STRENGTH_BINS + bins[known]
        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
        sums += np.bincount(own[known], strong[known], minlength=K)
        for k in range(K):
            column = np.where(own == k, L[:, k], 0)
            few = min(CENTRAL, len(column))
            top = np.sort(np.argpartition(-column, few - 1)[:few])
            values = np.concatenate([best[k], column[top]])
            rows = np.concatenate([best_rows[k], start + top])
            order = np.argsort(-values, kind="stable")[:CENTRAL]
            best[k], best_rows[k] = values[order], rows[order]
    sizes = counts.sum(axis=1)
    mean = np.divide(sums, sizes, out=np.full(K, np.nan), where=sizes > 0)
    return Members(counts, mean, [rows[value > 0] for rows, value in zip(best_rows, best, strict=True)])


def read_edges(labels: np.ndarray, K: int, graph: GraphStore) -> EdgeSums:
    """One pass over the graph.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Cluster of each row of the input.
    K : int
        Number of clusters.
    graph : GraphStore
        The graph.
    """
    own = labels[graph.order] if graph.reordered else labels
    own = np.where(own < 0, K, own).astype(np.int32)
    R = min(RASTER, graph.n)
    pixel = np.empty(graph.n, dtype=np.int32)
    pixel[np.argsort(own, kind="stable")] = np.arange(graph.n) * R // graph.n
    density, weight = np.zeros(R * R, dtype=np.int64), np.zeros((K + 1) ** 2)
    root = np.empty(graph.n)
    for start, stop in zip(graph.bounds[:-1], graph.bounds[1:], strict=True):
        root[start:stop] = graph.read_weights(int(start), int(stop))[:, 0]
    for i in range(graph.n_blocks):
        A = graph.read_block(i)
        first = int(graph.bounds[i])
        rows = np.repeat(np.arange(first, first + A.shape[0]), np.diff(A.indptr))
        density += np.bincount(pixel[rows] * R + pixel[A.indices], minlength=R * R)
        W = A.data * root[rows] * root[A.indices]
        weight += np.bincount(own[rows] * (K + 1) + own[A.indices], W, minlength=(K + 1) ** 2)
    area = np.bincount(pixel, minlength=R)
    ends = np.cumsum(np.bincount(own, minlength=K + 1))[:K] * R / graph.n
    counts, bounds = _degrees(graph)
    return EdgeSums(
        density=density.reshape(R, R) / np.outer(area, area),
        edges=ends,
        weight=weight.reshape(K + 1, K + 1),
        degree_counts=counts,
        degree_bounds=bounds,
    )


def _degrees(graph: GraphStore) -> tuple[np.ndarray, np.ndarray]:
    degree = graph.degree
    degree = degree[degree > 0]
    low, high = (float(degree.min()), float(degree.max())) if len(degree) else (1.0, 1.0)
    spaced = np.geomspace if high > WIDE * low else np.linspace
    bounds = spaced(low * 0.999, max(high, low * 1.01) * 1.001, DEGREE_BINS + 1)
    return np.histogram(degree, bounds)[0], bounds


def sample_of(solution: Any, rows: int, *, seed: int = 0) -> np.ndarray:
    """Some rows in rising order; all if they are at most `rows`."""
    n = len(solution.labels)
    if n <= rows:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, rows, replace=False, shuffle=False))
