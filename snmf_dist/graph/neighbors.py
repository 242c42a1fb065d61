"""Nearest neighbours of points in memory, exactly, by blocks of one matrix product."""

from typing import NamedTuple

import numpy as np

from snmf_dist.errors import InputError

BLOCK_ENTRIES = 1 << 24  # distances held at a time: 128 MB


class KNN(NamedTuple):
    """Neighbours of each row, nearest first, without the row itself: each (n, q)."""

    indices: np.ndarray
    distances: np.ndarray


def nearest_neighbors(points: np.ndarray, q: int) -> KNN:
    """Find the `q` nearest other rows of each row by Euclidean distance; ties by row number.

    Parameters
    ----------
    points : ndarray, shape (n, d)
        In memory.
    q : int
        Neighbours of each row, 1 to n − 1.

    Examples
    --------
    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0]]), 1).indices.ravel()
    array([1, 0, 1])
    """
    X = np.asarray(points, dtype=np.float64)
    n = len(X)
    if not 1 <= q < n:
        raise InputError(f"q is {q}; expected 1 to {n - 1}, one less than the {n} points")
    squares = np.einsum("ij,ij->i", X, X)
    indices = np.empty((n, q), dtype=np.int64)
    distances = np.empty((n, q))
    rows = max(1, BLOCK_ENTRIES // n)
    for start in range(0, n, rows):
        block = slice(start, min(start + rows, n))
        rough = squares - 2 * (X[block] @ X.T)  # |x|² is missing: the same for the whole row
        own = np.arange(block.start, block.stop)
        rough[own - start, own] = np.inf
        near = np.argpartition(rough, q - 1, axis=1)[:, :q]
        # The product loses digits where points are close: measure the chosen ones again.
        exact = np.linalg.norm(X[block, None, :] - X[near], axis=2)
        order = np.lexsort((near, exact), axis=1)
        indices[block] = np.take_along_axis(near, order, axis=1)
        distances[block] = np.take_along_axis(exact, order, axis=1)
    return KNN(indices, distances)
