"""Memberships of new rows, by the model's own formula, l = argmin ‖a − lLᵀ‖² over l ≥ 0.

‖a − lLᵀ‖² = ‖a‖² − 2 (aL) lᵀ + l (LᵀL) lᵀ: only aL, (m, K), and LᵀL, (K, K), are needed. All that is done to a row
is done to it alone, number by number, so the answer does not depend on which rows are together in a block.
"""

from typing import Any

import numpy as np

SWEEPS = 1000
FOLD_IN_PRECISION = 1e-10  # of a membership, relative to the largest of its row
GRAM_ROWS = 1 << 16  # LᵀL is added up in slices of as many rows, wherever the rows are


def gram_of(membership: Any) -> np.ndarray:
    """LᵀL in float64, one slice of rows at a time."""
    n, K = membership.shape
    total = np.zeros((K, K))
    for start in range(0, n, GRAM_ROWS):
        rows = _computed(membership[start : start + GRAM_ROWS]).astype(np.float64)
        total += rows.T @ rows
    return total


def take_rows(membership: Any, rows: np.ndarray) -> np.ndarray:
    """Some rows of L in float64; the chunks that they lie in are read once."""
    wanted, place = np.unique(rows, return_inverse=True)
    return _computed(membership[wanted]).astype(np.float64)[place.reshape(rows.shape)]


def _computed(rows: Any) -> np.ndarray:
    return np.asarray(rows.compute() if hasattr(rows, "compute") else rows)


def products(a: np.ndarray, rows: np.ndarray, membership: Any) -> np.ndarray:
    """a L, (m, K), for rows of a with few entries: weights `a` and columns `rows`, each (m, q), −1 for none."""
    known = np.maximum(rows, 0)
    L = take_rows(membership, known)
    total = np.zeros((len(a), L.shape[2]))
    for j in range(a.shape[1]):  # in this order for every row
        total += np.where(rows[:, j] >= 0, a[:, j], 0.0)[:, None] * L[:, j]
    return total


def fold_in(aL: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """argmin ½ l G lᵀ − (aL) lᵀ over l ≥ 0 for each row, by coordinate descent.

    Parameters
    ----------
    aL : ndarray, shape (m, K)
        Products of the new rows of A with L.
    gram : ndarray, shape (K, K)
        G = LᵀL.

    Examples
    --------
    >>> fold_in(np.array([[2.0, 1.0], [1.0, -3.0]]), np.array([[2.0, 0.0], [0.0, 1.0]]))
    array([[1. , 1. ], [0.5, 0. ]])
    """
    result = np.zeros(aL.shape)
    active = np.arange(len(aL))
    found, rest = result.copy(), aL.astype(np.float64)  # rest = aL − lG
    columns = np.flatnonzero(np.diag(gram) > 0)
    for _ in range(SWEEPS):
        moved = np.zeros(len(active))
        for k in columns:
            new = np.maximum(found[:, k] + rest[:, k] / gram[k, k], 0)
            step = new - found[:, k]
            found[:, k] = new
            some = np.flatnonzero(step)  # memberships are sparse: most rows stay
            rest[some] -= step[some, None] * gram[k]
            np.maximum(moved, np.abs(step), out=moved)
        done = moved <= FOLD_IN_PRECISION * found.max(axis=1, initial=0)
        result[active[done]] = found[done]
        active, found, rest = active[~done], found[~done], rest[~done]
        if not len(active):
            return result
    result[active] = found
    return result


def strengths(membership: np.ndarray) -> np.ndarray:
    """The share of the largest entry in each row, 0 for a row of zeros."""
    total = membership.sum(axis=1, dtype=np.float64)
    return np.divide(membership.max(axis=1, initial=0), total, out=np.zeros(len(total)), where=total > 0)


def second_labels(membership: np.ndarray) -> np.ndarray:
    """The cluster of the second largest entry of each row; −1 if that is 0."""
    if membership.shape[1] < 2:
        return np.full(len(membership), -1, dtype=np.int32)
    second = np.argsort(-membership, axis=1, kind="stable")[:, 1]
    value = np.take_along_axis(membership, second[:, None], axis=1).ravel()
    return np.where(value > 0, second, -1).astype(np.int32)
