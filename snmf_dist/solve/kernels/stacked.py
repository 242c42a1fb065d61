"""Runs side by side: R factors stand next to each other in one matrix, run r with `widths[r]` columns.

What belongs to a run has R as its first axis: penalties are (R,), and Gram matrices (R, K, K) with K the largest
width and zeros beyond a run's own. Each run gets, bit for bit, what it would get alone. Here is what needs no
rows: where the columns of a run are, and the K × K algebra.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

Widths: TypeAlias = Sequence[int] | np.ndarray | None  # columns of each run; None if all have as many


def edges(columns: int, runs: int, widths: Widths = None) -> np.ndarray:
    """Return where each run begins among the columns and the last one ends, (R + 1,) int64.

    Examples
    --------
    >>> edges(6, 3).tolist(), edges(6, 2, [4, 2]).tolist()
    ([0, 2, 4, 6], [0, 4, 6])
    """
    if widths is None:
        return _equal(columns, runs)
    found = np.zeros(len(widths) + 1, dtype=np.int64)
    np.cumsum(widths, out=found[1:])
    if len(found) != runs + 1 or found[-1] != columns:
        raise ValueError(f"{runs} runs of widths {widths} are side by side in {columns} columns")
    return found


@lru_cache
def _equal(columns: int, runs: int) -> np.ndarray:
    if columns % runs:
        raise ValueError(f"{runs} runs of the same width are side by side in {columns} columns")
    return np.arange(runs + 1, dtype=np.int64) * (columns // runs)


def spans(columns: int, runs: int, widths: Widths = None) -> list[slice]:
    """Return the columns of each run."""
    return [slice(*pair) for pair in pairwise(edges(columns, runs, widths).tolist())]


def count(runs: int, widths: Widths) -> int:
    """Return the number of runs: that of their widths where these are given."""
    return runs if widths is None else len(widths)


def widest(parts: Sequence[slice]) -> int:
    """Return the largest number of columns of a run."""
    return max(int(part.stop - part.start) for part in parts)


def usable(inverse: np.ndarray, rho: np.ndarray, dtype: Any) -> tuple[list[int], tuple[np.ndarray, np.ndarray]]:
    """Return the runs whose inverse is NaN, and the inverses, 0 for those runs, and ρ, in the type of the rows."""
    lost = [r for r, corner in enumerate(inverse[:, 0, 0].tolist()) if math.isnan(corner)]
    found = inverse.astype(dtype)
    if lost:
        found[lost] = 0
    return lost, (found, rho.astype(dtype))


def ridge(G: np.ndarray | tuple[np.ndarray, ...], *, rho: np.ndarray, widths: Widths = None) -> np.ndarray:
    """(C Cᵀ)⁻¹ of each run, (R, K, K), with C Cᵀ = G + ρI by Cholesky.

    Parameters
    ----------
    G : ndarray, (R, K, K), or tuple of ndarray
        Gram matrices, or the sums of a sweep, of which these are the first.
    rho : ndarray, (R,)
        Penalty of each run.
    widths : sequence of int, optional
        Columns of each run; omitted, each has K.

    Returns
    -------
    ndarray
        Symmetric inverses. That of a run is NaN if its G overflowed, or is so large that ρI is lost beside it: the
        loop then sees that the run diverged.
    """
    grams = G[0] if isinstance(G, tuple) else G
    inverse, penalties = np.zeros(grams.shape), rho.tolist()
    if widths is None:
        for r, penalty in enumerate(penalties):
            inverse[r] = _ridge(grams[r], penalty)
        return inverse
    for r, (K, penalty) in enumerate(zip(np.asarray(widths).tolist(), penalties, strict=True)):
        inverse[r, :K, :K] = _ridge(grams[r, :K, :K], penalty)
    return inverse


def _ridge(G: np.ndarray, rho: float) -> Any:
    """(G + ρI)⁻¹ = WᵀW with W = C⁻¹, or NaN if there is no C.

    A Gram matrix is finite if its diagonal is. LAPACK's dpotri is not used: on threads it takes ten times as long.
    """
    M = G.copy()
    diagonal = M.ravel()[:: len(M) + 1]
    diagonal += rho
    if not math.isfinite(sum(diagonal.tolist())):
        return math.nan
    C, failed = dpotrf(M.T, 1, 1, 1)  # lower, the rest 0, in place; names would take as long as the work
    if failed:
        return math.nan
    W, _ = dtrtri(C, 1, 0, 1)  # lower, its diagonal not 1, in place
    return np.dot(W.T, W)
