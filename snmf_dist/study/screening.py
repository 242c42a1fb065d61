"""Every K at the cost of little more than one start: k-means on one spectral basis of the largest K."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.solve.basis import Basis, leading_basis
from snmf_dist.solve.kernels import side_by_side, take_columns
from snmf_dist.solve.kmeans import candidate_centres, nearest_centres
from snmf_dist.solve.modularity import modularities
from snmf_dist.solve.parts import begin_with_parts, read_parts
from snmf_dist.solve.pipeline import GraphFacts
from snmf_dist.solve.products import multiply
from snmf_dist.solve.start import pivot_rows, sample_rows, unit_rows
from snmf_dist.study.stability import stability

STARTS = 4  # k-means runs for each K
NO_GAP = 1e-4  # eigengap, relative to the largest eigenvalue, that vectors found to 2e-3 do not resolve


@dataclass(frozen=True)
class Screen:
    """What one basis says of every K.

    Attributes
    ----------
    values : ndarray
        The leading eigenvalues of A, at least one more than the largest K if A has as many.
    rows : list of dict
        For each K: ``k``, ``eigengap``, ``separation``, ``kept_share`` (tr(HᵀAH) of the partition, a share of Σλ),
        ``modularity``, ``balanced_modularity`` (F of `solve.modularity`) and ``agreement`` (mean adjusted Rand
        index of the k-means runs).
    labels : ndarray of int32, (n, number of K)
        The best k-means partition for each K, in the graph store's row order.
    products : int
        Passes over A.
    """

    values: np.ndarray
    rows: list[dict[str, Any]]
    labels: np.ndarray
    products: int


def screen(graph: GraphFacts, ks: Sequence[int], *, seed: int) -> Screen:
    """Partition the rows of the leading K eigenvectors by k-means, for each K, and measure each partition.

    Parameters
    ----------
    ks : sequence of int
        The numbers of clusters, in ascending order.
    """
    A, top = graph.A, max(ks)
    weights = A.hold(A.rows(graph.weights, 2, dtype=np.float64))
    basis = _basis(graph, min(top + 1, A.shape[0]), weights, seed=seed)
    chosen: list[Rows] = []
    volumes: list[np.ndarray] = []
    agreements: list[float] = []
    for K in ks:
        labels, volume, agreement = _partition(A, basis, weights, K, seed=seed)
        chosen.append(labels)
        volumes.append(volume)
        agreements.append(agreement)
    inside, passes = cluster_weights(A, chosen, weights, ks, width=top)
    within = [
        float(np.divide(one, volume, out=np.zeros(len(one)), where=volume > 0).sum())
        for one, volume in zip(inside, volumes, strict=True)
    ]
    together = A.hold(A.map(side_by_side, *chosen, width=len(chosen)))
    _, (modularity, balanced) = A.settle((), modularities(A, together, weights, K=top))
    values = basis.values if basis.next_value is None else np.append(basis.values, basis.next_value)
    rows = [
        {
            "k": K,
            "eigengap": _gap(values, K),
            "separation": separation(values, K, kept),
            "kept_share": kept / max(float(np.maximum(values[:K], 0).sum()), np.finfo(float).tiny),
            "modularity": float(Q),
            "balanced_modularity": float(F),
            "agreement": agreement,
        }
        for K, kept, Q, F, agreement in zip(ks, within, modularity, balanced, agreements, strict=True)
    ]
    return Screen(values, rows, A.fetch(together), basis.products + passes + 1)


def separation(values: np.ndarray, K: int, kept: float) -> float:
    """How well a partition into K clusters is set apart from all others, between 0 and 1.

    No partition H (orthonormal indicator columns) keeps more than tr(HᵀAH) = Σλ over the K leading eigenvalues.
    With e what it lacks, e/(λ_K − λ_{K+1}) bounds how far its clusters, and those of any partition as good, are
    from the leading eigenvectors (Meilă 2006). With δ this ratio for each of the K − 1 cuts, the result is
    1/(1 + δ): 1 if the eigenvectors are constant on the clusters, ½ if e is as large as the eigengap for each cut.

    Parameters
    ----------
    values : ndarray
        Leading eigenvalues.
    kept : float
        tr(HᵀAH) of the partition.

    Examples
    --------
    >>> separation(np.array([1.0, 1.0, 0.5]), 2, 2.0), separation(np.array([1.0, 1.0, 0.5]), 2, 1.5)
    (1.0, 0.5)
    """
    gap = _gap(values, K)
    if K < 2 or not gap > NO_GAP * values[0]:
        return 0.0
    lacking = max(float(values[:K].sum()) - kept, 0.0)
    return float(1 / (1 + lacking / gap / (K - 1)))


def _gap(values: np.ndarray, K: int) -> float:
    return float(values[K - 1] - values[K]) if len(values) > K else float("nan")


def _basis(graph: GraphFacts, K: int, weights: Rows, *, seed: int) -> Basis:
    """The leading eigenvectors, beginning with those of the parts that the graph falls into."""
    A, facts, begin = graph.A, graph.parts, None
    if facts is not None:
        parts, count = read_parts(A, facts), facts.count

        def begin(V: Rows) -> Rows:
            return A.map(begin_with_parts, V, parts, weights, count=count, K=K)

    return leading_basis(A, K, seed=seed, dtype=graph.dtype, begin=begin, weights=weights, limit=graph.limit)


def _partition(A: Graph, basis: Basis, weights: Rows, K: int, *, seed: int) -> tuple[Rows, np.ndarray, float]:
    """The k-means partition nearest to the leading K eigenvectors, its clusters' Σr², and how far runs agree."""
    width = min(K, basis.U.shape[1])
    points = A.hold(A.map(_leading_unit_rows, basis.U, K=width, width=width))
    sample = sample_rows(A, points, K, seed=seed)
    pivots = pivot_rows(sample)
    centres = candidate_centres(sample, K, runs=STARTS, seed=seed, first=pivots if len(pivots) == K else None)
    labels = A.hold(A.map(_nearest, points, centres=centres, width=len(centres), dtype=np.int32))
    _, sums = A.settle((), A.sum(_cluster_sums, basis.U, weights, labels, K=K, columns=width))
    volumes = sums[:, :, -1]
    filled = np.where(volumes > 0, volumes, 1)
    overlap = (sums[:, :, :-1] ** 2 / filled[:, :, None]).sum(axis=(1, 2))  # ‖HᵀU‖² of each run
    best = int(overlap.argmax())
    agreement = stability(A.fetch(labels), pairs=1).ari
    return A.hold(A.map(take_columns, labels, columns=np.array([best]), width=1)), volumes[best], agreement


def cluster_weights(
    A: Graph, partitions: Sequence[Rows], weights: Rows, ks: Sequence[int], *, width: int
) -> tuple[list[np.ndarray], int]:
    """hᵀAh of each cluster of each partition, h being r within the cluster and 0 outside, and the passes over A.

    Parameters
    ----------
    ks : sequence of int
        Clusters of each partition.
    width : int
        Columns of a pass, at most; a partition of more has a pass of its own.
    """
    found: list[np.ndarray] = []
    passes, at = 0, 0
    while at < len(partitions):
        end, columns = at, 0
        while end < len(partitions) and (end == at or columns + ks[end] <= width):
            columns += ks[end]
            end += 1
        sizes = ks[at:end]
        columns_of = {"sizes": sizes, "kind": A.dtype}
        H = A.hold(A.map(_indicators, weights, *partitions[at:end], **columns_of, width=columns, dtype=A.dtype))
        _, inside = A.settle((), A.sum(_column_products, H, multiply(A, H)))
        found += np.split(inside, np.cumsum(sizes)[:-1])
        passes, at = passes + 1, end
    return found, passes


def _leading_unit_rows(U: np.ndarray, *, K: int) -> np.ndarray:
    return unit_rows(np.ascontiguousarray(U[:, :K]))


def _nearest(points: np.ndarray, *, centres: np.ndarray) -> np.ndarray:
    """Nearest centres; −1 for rows of zeros, which are in no part that is clustered."""
    return np.where(points.any(axis=1, keepdims=True), nearest_centres(points, centres), -1)


def _cluster_sums(U: np.ndarray, weights: np.ndarray, labels: np.ndarray, *, K: int, columns: int) -> np.ndarray:
    """Σ r·u of each column and Σ r² over the rows of each cluster of each partition, (R, K, columns + 1)."""
    r = weights[:, :1]
    terms = np.concatenate([r * U[:, :columns], r * r], axis=1)
    found = np.zeros((labels.shape[1], K + 1, columns + 1))
    for sums, label in zip(found, labels.T, strict=True):
        for column in range(columns + 1):
            sums[:, column] = np.bincount(label % (K + 1), terms[:, column], K + 1)  # −1 goes last
    return found[:, :K]


def _indicators(weights: np.ndarray, *labels: np.ndarray, sizes: Sequence[int], kind: np.dtype) -> np.ndarray:
    """For each partition a column a cluster: r within it, 0 outside."""
    H = np.zeros((len(weights), sum(sizes)), kind)
    for start, label in zip(np.cumsum([0, *sizes[:-1]]), labels, strict=True):
        rows = np.flatnonzero(label[:, 0] >= 0)
        H[rows, start + label[rows, 0]] = weights[rows, 0]
    return H


def _column_products(H: np.ndarray, AH: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->j", H, AH, dtype=np.float64)
