"""K-means of rows in memory, from several starts: distances kept up to date, Lloyd steps that end at rest.

A start by k-means++ costs one product with the rows for each new centre, and a Lloyd step one matrix product, so
that a start costs O(n·K·d) and not O(n·K²·d).
"""

import math

import numpy as np
from scipy import sparse

BUDGET = 4e9  # multiplications of a Lloyd step of sixteen starts together, before there are fewer of them
LLOYD_STEPS = 20  # at most
REST = 5e-4  # share of the rows that still change their centre when a start is at rest
SAME = 1e-6  # squared distances, relative to the squares of the rows, that are rounding in float32
COMPARED_ROWS = 2048  # rows compared with all centres at a time


def candidate_centres(
    rows: np.ndarray,
    K: int,
    *,
    runs: int,
    seed: int,
    first: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """K-means centres from several starts, (R, K, d) float32.

    Parameters
    ----------
    rows : ndarray, (n, d)
        The rows.
    runs : int
        Number of starts; a quarter of it, at least, where n·K·d is large.
    first : ndarray, (K, d), optional
        The centres that the first start begins with; the others begin with k-means++.
    weights : ndarray, (n,), optional
        How much each row counts; by default all the same.
    """
    X = np.ascontiguousarray(rows, dtype=np.float32)
    w = np.ones(len(X), np.float32) if weights is None else (weights / weights.mean()).astype(np.float32)
    runs = max(int(runs * min(BUDGET / (16 * X.size * K), 1)), -(-runs // 4))
    starts = [] if first is None else [first.astype(np.float32)]
    starts += [plus_plus(X, w, K, np.random.default_rng([seed, i])) for i in range(len(starts), runs)]
    return np.stack([lloyd(X, w, centres) for centres in starts])


def plus_plus(X: np.ndarray, weights: np.ndarray, K: int, rng: np.random.Generator) -> np.ndarray:
    """K rows of X by greedy k-means++: each the best of a few, drawn by their distance from those chosen.

    The distances are kept from one choice to the next (Arthur, Vassilvitskii 2007). If all rows are near a centre
    before there are K, the last ones repeat the first.
    """
    squares = np.einsum("ij,ij->i", X, X)
    chosen = [int(rng.integers(len(X)))]
    nearest = _distances(X, squares, chosen)[:, 0]
    trials, same = 2 + int(math.log(K)), SAME * float(weights @ squares)
    while len(chosen) < K:
        heap = np.cumsum(nearest * weights, dtype=np.float64)
        if heap[-1] <= same:
            chosen += [chosen[0]] * (K - len(chosen))
            break
        drawn = np.searchsorted(heap, rng.random(trials) * heap[-1]).clip(max=len(X) - 1)
        found = np.minimum(_distances(X, squares, drawn), nearest[:, None])
        best = int((weights @ found).argmin())
        chosen.append(int(drawn[best]))
        nearest = np.ascontiguousarray(found[:, best])
    return X[chosen]


def lloyd(X: np.ndarray, weights: np.ndarray, centres: np.ndarray, *, steps: int = LLOYD_STEPS) -> np.ndarray:
    """The centres after Lloyd steps, until hardly a row changes its own; an empty one stays where it is."""
    labels = np.full(len(X), -1, dtype=np.int32)
    for _ in range(steps):
        before, labels = labels, nearest_centres(X, centres[None])[:, 0]
        if np.count_nonzero(labels != before) <= REST * len(X):
            break
        sizes = np.bincount(labels, weights, minlength=len(centres))[:, None].astype(np.float32)
        sums = sparse.csc_matrix((weights, labels, np.arange(len(X) + 1)), shape=(len(centres), len(X))) @ X
        centres = np.divide(sums, sizes, out=centres.copy(), where=sizes > 0)
    return centres


def nearest_centres(X: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The nearest centre of each row for each of R sets of centres (R, K, d): (rows, R) int32."""
    R, K, _ = centres.shape
    flat = centres.reshape(R * K, -1).astype(X.dtype)
    half = (flat**2).sum(axis=1) / 2
    labels = np.empty((len(X), R), dtype=np.int32)
    for start in range(0, len(X), COMPARED_ROWS):
        rows = slice(start, start + COMPARED_ROWS)
        labels[rows] = (X[rows] @ flat.T - half).reshape(-1, R, K).argmax(axis=2)
    return labels


def _distances(X: np.ndarray, squares: np.ndarray, chosen: list[int] | np.ndarray) -> np.ndarray:
    """Squared distances from some of the rows, (n, chosen)."""
    found = X @ (-2 * X[chosen]).T
    found += squares[:, None]
    found += squares[chosen]
    return np.asarray(np.maximum(found, 0, out=found))
