"""Where L begins: at random, or from the leading eigenvectors of A. Several starts stand side by side."""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.solve.basis import Basis
from snmf_dist.solve.kernels import column_squares, scale_columns, side_by_side, take_columns, uniform_rows
from snmf_dist.solve.kmeans import candidate_centres, nearest_centres
from snmf_dist.solve.modularity import modularities

START_SAMPLE = 10_000  # rows that pivots and k-means centres are looked for among, at least 100 a cluster
UNIT_ROWS = 12  # k-means clusterings of the eigenvectors' rows divided by their lengths,
WALK_ROWS = 4  # and of those divided by √degree: the eigenvectors of the random walk
EQUAL = 0.02  # relative difference of scores F that says nothing: the modularity decides
TIE = 1e-6  # modularities nearer than this are rounding: the first of them is taken


class Start(NamedTuple):
    """Where runs begin.

    Attributes
    ----------
    L : rows, (n, R·K)
        The starts, side by side.
    labels : rows of int, (n, 1), or None
        Plain spectral clustering, if the start was made from it.
    products : int
        Passes over A that making it took, those of the basis apart.
    """

    L: Rows
    labels: Rows | None = None
    products: int = 0


def random_start(A: Graph, K: int, *, seeds: list[int], sum_A: float, dtype: np.dtype) -> Start:
    """Uniform rows on [0, 2·sqrt(mean(A)/K)), (n, K) a seed: the convention of SymNMF and PLANC.

    A row depends on the seed and its number alone, not on the block it is in.
    """
    n = A.shape[0]
    scale = 2 * np.sqrt(sum_A / n / n / K)
    parts = [A.rows(uniform_rows, K, dtype=dtype, K=K, seed=seed, scale=scale, type=dtype) for seed in seeds]
    return Start(parts[0] if len(parts) == 1 else A.map(side_by_side, *parts, width=K * len(parts)))


def spectral_start(A: Graph, basis: Basis, K: int, *, seeds: list[int]) -> Start:
    """The leading eigenvectors, turned to be as nonnegative as a rotation makes them, and clipped.

    UΛ^½ times a rotation is as good a square root of A as any; the one chosen makes K rows that differ most
    (by pivoted QR of a sample; Damle, Minden, Ying 2019) as near to unit vectors as a rotation can. Starts
    after the first are shaken: each entry times a random number between ½ and 1½.
    """
    scaled = A.hold(A.map(scale_columns, basis.U, scale=np.sqrt(np.maximum(basis.values, 0))))
    left, _, right = np.linalg.svd(pivot_rows(sample_rows(A, scaled, K, seed=seeds[0])).T, full_matrices=False)
    L = A.hold(A.map(_turned, scaled, rotation=left @ right, K=K, width=K))
    if len(seeds) == 1:
        return Start(L)
    shakes = [
        A.rows(uniform_rows, K, dtype=L.dtype, K=K, seed=seed, scale=1.0, type=L.dtype) for seed in seeds[1:]
    ]
    return Start(A.map(side_by_side, L, *(A.map(_shaken, L, u) for u in shakes), width=K * len(seeds)))


def kmeans_start(A: Graph, basis: Basis, K: int, weights: Rows, *, seeds: list[int]) -> Start:
    """Spectral clustering's own clusters: a column for each, √degree within it and 0 outside, of length √λ₁.

    K-means of the rows of U divided by their length (Ng, Jordan, Weiss 2001) and of those divided by √degree and
    weighed by it (Shi, Malik 2000), on a sample, from several starts: the rows that pivoted QR chooses, and
    k-means++. Of those with about the highest score F of `modularities` the one with the highest modularity is
    taken, the next ones for further runs. √degree is the leading eigenvector of a cluster that
    hangs together with no other.

    Parameters
    ----------
    weights : rows, (n, 2)
        For each row its factor r, with W = rAr (√degree, or 1 if A is W), and its degree in W.
    """
    labels = _candidates(A, basis, K, weights, seed=seeds[0])
    (labels,), (modularity, scores) = A.settle((labels,), modularities(A, labels, weights, K=K))
    best = np.where(scores >= scores.max() - EQUAL * abs(scores.max()), modularity, -np.inf)
    first = int(np.argmax(best >= best.max() - TIE))
    order = [first, *(int(r) for r in np.argsort(-scores, kind="stable") if r != first)]
    chosen = [order[r % len(order)] for r in range(len(seeds))]

    labels = A.map(take_columns, labels, columns=np.array(chosen), width=len(chosen))
    (labels,), seen = A.settle((labels,), A.sum(_as_they_appear, labels))
    labels = A.hold(A.map(_renamed, labels, names=_new_names(seen, len(chosen), K)))

    type, width = basis.U.dtype, K * len(chosen)
    raw = A.hold(A.map(_indicators, weights, labels, K=K, type=type, dtype=type, width=width))
    _, squares = A.settle((), A.sum(column_squares, raw))
    length = np.sqrt(max(basis.values[0], 0))
    L = A.map(scale_columns, raw, scale=length / np.sqrt(np.where(squares > 0, squares, 1)))
    return Start(L, A.map(_first_partition, labels, weights, width=1), products=1)


def _candidates(A: Graph, basis: Basis, K: int, weights: Rows, *, seed: int) -> Rows:
    """Spectral clusterings, (n, R) int32: R is 16, or fewer where k-means is expensive."""
    points = A.hold(A.map(unit_rows, basis.U))
    sample = sample_rows(A, points, K, seed=seed)
    pivots = pivot_rows(sample)
    centres = candidate_centres(sample, K, runs=UNIT_ROWS, seed=seed, first=pivots if len(pivots) == K else None)
    found = A.hold(A.map(nearest_centres, points, centres=centres, width=len(centres), dtype=np.int32))
    del points
    points = A.hold(A.map(_walk_rows, basis.U, weights, width=basis.U.shape[1] + 1))
    sample = sample_rows(A, points, K, seed=seed)
    centres = candidate_centres(sample[:, :-1], K, runs=WALK_ROWS, seed=seed, weights=sample[:, -1])
    others = A.map(_nearest_walk, points, centres=centres, width=len(centres), dtype=np.int32)
    return A.map(side_by_side, found, others, width=found.shape[1] + others.shape[1])


def connected_only(L: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """L with zeros in the rows without entries, which then stay in no cluster."""
    return np.where(weights[:, 1:] > 0, L, 0).astype(L.dtype)


def sample_rows(A: Graph, rows: Rows, K: int, *, seed: int) -> np.ndarray:
    """Some rows, the same ones whatever the blocks; without rows of zeros."""
    n = rows.shape[0]
    size, chosen = max(START_SAMPLE, 100 * K), None
    if size < n:
        chosen = np.sort(np.random.default_rng(seed).choice(n, size, replace=False, shuffle=False))
    sample = A.fetch(rows, chosen).astype(np.float64)
    return sample[sample.any(axis=1)]


def pivot_rows(rows: np.ndarray) -> np.ndarray:
    """The rows that pivoted QR puts first, as many as there are columns."""
    _, order = linalg.qr(rows.T, mode="r", pivoting=True)
    return np.asarray(rows[order[: rows.shape[1]]])


def _turned(U: np.ndarray, *, rotation: np.ndarray, K: int) -> np.ndarray:
    L = np.zeros((len(U), K), dtype=U.dtype)
    L[:, : rotation.shape[1]] = np.maximum(U @ rotation.astype(U.dtype), 0)
    return L


def _shaken(L: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return np.asarray(L * (L.dtype.type(0.5) + noise))


def unit_rows(U: np.ndarray) -> np.ndarray:
    """The rows divided by their lengths; rows of zeros stay."""
    length = np.linalg.norm(U, axis=1, keepdims=True)
    return np.asarray(np.divide(U, length, out=np.zeros_like(U), where=length > 0))


def _walk_rows(U: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """U divided by the factors r of the rows, and beside it r², (rows, K + 1); zeros in rows without edges."""
    r = np.where(weights[:, 1:] > 0, weights[:, :1], 0)
    rows = np.divide(U, r, out=np.zeros(U.shape), where=r > 0)
    return np.concatenate([rows, r * r], axis=1).astype(U.dtype)


def _nearest_walk(points: np.ndarray, *, centres: np.ndarray) -> np.ndarray:
    scale = np.float32(np.abs(centres).max(initial=0) or 1)
    return nearest_centres(points[:, :-1] / scale, centres / scale)


def _as_they_appear(labels: np.ndarray) -> list[tuple[int, int]]:
    """(column, label) of each label of each partition in a block, by its first row."""
    pairs = []
    for column, values in enumerate(labels.T):
        found, first = np.unique(values, return_index=True)
        pairs += [(column, int(label)) for label in found[np.argsort(first)]]
    return pairs


def _new_names(seen: list[tuple[int, int]], partitions: int, K: int) -> np.ndarray:
    """Names that number clusters as they first appear, so that rounding does not permute them, (R, K)."""
    names = np.zeros((partitions, K), dtype=np.int32)
    for column in range(partitions):
        order = list(dict.fromkeys(label for of, label in seen if of == column))
        names[column, order] = np.arange(len(order))
    return names


def _renamed(labels: np.ndarray, *, names: np.ndarray) -> np.ndarray:
    return np.stack([name[values] for name, values in zip(names, labels.T, strict=True)], axis=1)


def _first_partition(labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.where(weights[:, 1:] > 0, labels[:, :1], -1).astype(labels.dtype)


def _indicators(weights: np.ndarray, labels: np.ndarray, *, K: int, type: np.dtype) -> np.ndarray:
    L = np.zeros((len(weights), labels.shape[1], K), dtype=type)
    for r, values in enumerate(labels.T):
        L[np.arange(len(L)), r, values] = weights[:, 0]
    return L.reshape(len(L), -1)
