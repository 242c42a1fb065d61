"""Nearest neighbours of points: exactly, by blocks of one matrix product, or with pynndescent.

Alone in importing pynndescent. Points are NumPy arrays or CSR matrices of one block; what is read when, and
what is merged with what, is the business of `stages`.
"""

import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from snmf_dist.errors import InputError

TILE_ENTRIES = 1 << 22  # numbers held at a time by the exact search, a few times over: 32 MB each
MARGIN = 8  # candidates beyond q that are measured again: the product loses digits where points are close


class KNN(NamedTuple):
    """Neighbours of each row, nearest first, each (n, q); index −1 and distance inf where there are fewer."""

    indices: np.ndarray
    distances: np.ndarray


def nearest_neighbors(points: Any, q: int) -> KNN:
    """Find the `q` nearest other rows of each row by Euclidean distance, exactly.

    Parameters
    ----------
    points : ndarray or csr_matrix, shape (n, d)
        The points, in memory.
    q : int
        Neighbours of each row, 1 to n − 1.

    Examples
    --------
    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0]]), 1).indices.ravel()
    array([1, 0, 1])
    """
    n = points.shape[0]
    if not 1 <= q < n:
        raise InputError(f"q is {q}; expected 1 to {n - 1}, one less than the {n} points")
    return search(points, np.arange(n), [(0, points)], q)


def search(queries: Any, numbers: np.ndarray, blocks: Iterable[tuple[int, Any]], q: int) -> KNN:
    """Find the `q` nearest rows of each query among `blocks`, leaving out the query itself.

    Parameters
    ----------
    queries : ndarray or csr_matrix, shape (m, d)
        Points to search for.
    numbers : ndarray of int, shape (m,)
        The row number of each query.
    blocks : iterable of (first row number, rows)
        All points, a block at a time.
    q : int
        Number of neighbours of each query.
    """
    m, d = queries.shape
    best = KNN(np.full((m, q), -1), np.full((m, q), np.inf))
    for first, rows in blocks:
        squares = _squares(rows)
        step = max(1, TILE_ENTRIES // max(rows.shape[0], (q + MARGIN) * d))
        for start in range(0, m, step):
            tile = slice(start, min(start + step, m))
            found = _nearest_in_block(queries[tile], numbers[tile], rows, squares, first, q)
            merged = merge(KNN(*(x[tile] for x in best)), found, q)
            best.indices[tile], best.distances[tile] = merged
    return best


def _nearest_in_block(X: Any, numbers: np.ndarray, rows: Any, squares: np.ndarray, first: int, q: int) -> KNN:
    product = X @ rows.T
    product = product.toarray() if sparse.issparse(product) else product
    rough = squares - 2 * product  # |x|² is missing: the same for the whole row
    own = numbers - first
    inside = np.flatnonzero((own >= 0) & (own < rows.shape[0]))
    rough[inside, own[inside]] = np.inf
    take = min(q + MARGIN, rows.shape[0])
    near = np.argpartition(rough, take - 1, axis=1)[:, :take]
    distances = _distances(X, rows, near)
    distances[np.isinf(np.take_along_axis(rough, near, axis=1))] = np.inf
    order = np.lexsort((near, distances), axis=1)[:, :q]
    distances = np.take_along_axis(distances, order, axis=1)
    indices = np.take_along_axis(near, order, axis=1) + first
    return KNN(np.where(np.isinf(distances), -1, indices), distances)


def _distances(X: Any, rows: Any, near: np.ndarray) -> np.ndarray:
    """Euclidean distances of each row of X to the rows of `near`, in float64."""
    if sparse.issparse(X):
        m, take = near.shape
        left, right = X[np.repeat(np.arange(m), take)], rows[near.ravel()]
        difference = left.astype(np.float64) - right.astype(np.float64)
        return np.sqrt(_squares(difference)).reshape(m, take)
    difference = X[:, None, :].astype(np.float64) - rows[near]
    return np.sqrt(np.einsum("ijk,ijk->ij", difference, difference))


def _squares(X: Any) -> np.ndarray:
    if sparse.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X)


def merge(one: KNN, two: KNN, q: int) -> KNN:
    """The `q` nearest of two lists for each row, each neighbour once."""
    indices = np.concatenate((one.indices, two.indices), axis=1)
    distances = np.concatenate((one.distances, two.distances), axis=1)
    by_index = np.lexsort((distances, indices), axis=1)
    indices = np.take_along_axis(indices, by_index, axis=1)
    distances = np.take_along_axis(distances, by_index, axis=1)
    again = (indices[:, 1:] == indices[:, :-1]) | (indices[:, 1:] < 0)
    distances[:, 1:][again] = np.inf
    order = np.lexsort((indices, distances), axis=1)[:, :q]
    distances = np.take_along_axis(distances, order, axis=1)
    indices = np.take_along_axis(indices, order, axis=1)
    return KNN(np.where(np.isinf(distances), -1, indices), distances)


_one_at_a_time = threading.Lock()  # numba's parallel regions of two threads would share one pool


def approximate_neighbors(points: Any, q: int, *, seed: int, threads: int) -> KNN:
    """Find about the `q` nearest other rows of each row with pynndescent.

    Parameters
    ----------
    points : ndarray or csr_matrix of float32, shape (n, d)
        The points, in memory; n > q + 6.
    seed : int
        Seed of the random number generator.
    threads : int
        Number of threads; the same seed on as many threads gives the same answer.
    """
    with _one_at_a_time:
        pynndescent = _import_pynndescent()
        index = pynndescent.NNDescent(
            points, n_neighbors=q + 6, random_state=seed, n_jobs=threads, compressed=False
        )
        indices, distances = index.neighbor_graph
    n = len(indices)
    distances = np.where(indices < 0, np.inf, distances)
    distances[indices == np.arange(n)[:, None]] = np.inf  # a row is found as its own neighbour
    order = np.argsort(distances, axis=1, kind="stable")[:, :q]
    distances = np.take_along_axis(distances, order, axis=1)
    indices = np.take_along_axis(indices, order, axis=1)
    return KNN(np.where(np.isinf(distances), -1, indices), distances)


def _import_pynndescent() -> Any:
    """Import pynndescent with a safe threading layer, and let numba keep what it compiles on disk.

    Five of its functions are compiled anew in every process, for some 25 s of 40; they are private, so
    a release without them or their modules costs time and nothing else.
    """
    import numba

    config: Any = numba.config
    if config.THREADING_LAYER == "default":
        config.THREADING_LAYER = "threadsafe"  # workqueue aborts the process under two threads
    elif config.THREADING_LAYER == "workqueue":
        raise InputError(
            "numba is set to its workqueue layer, which aborts under several threads; unset "
            "NUMBA_THREADING_LAYER, or set it to omp or tbb"
        )
    import pynndescent

    slow = {
        "utils": ("deheap_sort", "build_candidates_owner", "sort_updates_by_block",
                  "apply_sorted_graph_update_array"),
        "kernels": ("generate_graph_update_array_batched",),  # a module that 0.6 does not have
    }  # fmt: skip
    for module, names in slow.items():
        with suppress(ImportError):
            found = import_module(f"pynndescent.{module}")
            for name in names:
                function: Any = getattr(found, name, None)
                if hasattr(function, "enable_caching"):
                    function.enable_caching()
    return pynndescent
