"""SymNMF, the Newton-like method that the paper compares with, written from its text (Kuang, Ding, Park 2012).

Projected Newton steps on f(H) = ‖A − HHᵀ‖² over H ≥ 0. The Hessian is approximated by its diagonal blocks, one
n × n block a column, and a block by its part on the free rows: those that are not held at 0 by their gradient. So
a step costs a dense Cholesky factorisation for each column, up to n³K/3 operations. Products with A are sparse
here, which only makes it faster than the original.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

SUFFICIENT, SHRINK = 0.1, 0.1  # of the line search: share of the predicted descent, factor of the step
SHORTEST = 1e-10  # step, below which a line search gives up


class Newton(NamedTuple):
    """What SymNMF found.

    Attributes
    ----------
    H : ndarray, (n, K)
        The factor.
    products, iterations : int
        Products with A, and steps.
    ended : str
        "converged", "no descent", "out of time" or "out of iterations".
    """

    H: np.ndarray
    products: int
    iterations: int
    ended: str


class Point(NamedTuple):
    """A factor with what one product with A tells of it."""

    H: np.ndarray
    value: float
    gradient: np.ndarray


def symnmf(
    A: sparse.csr_matrix,
    H: np.ndarray,
    *,
    tol: float = 1e-4,
    max_iter: int = 10_000,
    seconds: float = np.inf,
    watch: Callable[[np.ndarray, int], None] | None = None,
) -> Newton:
    """Minimise ‖A − HHᵀ‖² over H ≥ 0 from a given H.

    Parameters
    ----------
    A : sparse matrix, (n, n)
        Symmetric and nonnegative.
    H : ndarray, (n, K)
        Where to begin.
    tol : float, default 1e-4
        Stop when the norm of the projected gradient is so small a share of the first one; the authors' value.
    max_iter : int, default 10000
        Steps at most; the authors' value.
    seconds : float, optional
        Give up after so many seconds of the processor, between two steps.
    watch : callable, optional
        Told of each H and the products so far.

    Examples
    --------
    >>> A = sparse.block_diag([np.ones((3, 3)), np.ones((2, 2))], format="csr")
    >>> found = symnmf(A, np.random.default_rng(0).uniform(size=(5, 2)))
    >>> found.ended, np.round(found.H @ found.H.T, 2).sum()
    ('converged', np.float64(13.0))
    """
    begin, norm_A = time.process_time(), float((A.data**2).sum())
    at, products, first = _point(A, np.asarray(H, dtype=float), norm_A), 1, None
    for iteration in range(max_iter):
        if watch is not None:
            watch(at.H, products)
        size = float(np.linalg.norm(at.gradient[(at.gradient < 0) | (at.H > 0)]))
        first = size if first is None else first
        if size <= tol * first:
            return Newton(at.H, products, iteration, "converged")
        if time.process_time() - begin > seconds:
            return Newton(at.H, products, iteration, "out of time")
        direction = _direction(A, at, floor=min(size, 1e-6))
        step = 1.0
        while True:
            new = _point(A, np.maximum(at.H - step * direction, 0), norm_A)
            products += 1
            if new.value - at.value <= SUFFICIENT * float((at.gradient * (new.H - at.H)).sum()):
                break
            step *= SHRINK
            if step < SHORTEST:
                return Newton(at.H, products, iteration, "no descent")
        at = new
    return Newton(at.H, products, max_iter, "out of iterations")


def _point(A: sparse.csr_matrix, H: np.ndarray, norm_A: float) -> Point:
    """f = ‖A‖² − 2 tr(HᵀAH) + ‖HᵀH‖² and its gradient 4(HHᵀ − A)H."""
    AH, G = A @ H, H.T @ H
    return Point(H, float(norm_A - 2 * (H * AH).sum() + (G * G).sum()), 4 * (H @ G - AH))


def _direction(A: sparse.csr_matrix, at: Point, *, floor: float) -> np.ndarray:
    """Newton's direction for each column on its free rows, and the gradient elsewhere.

    Block j of the Hessian is 4(HHᵀ − A + hⱼhⱼᵀ + ‖hⱼ‖²I). Where that is not positive definite the gradient stays.
    """
    direction = at.gradient.copy()
    for j, (h, g) in enumerate(zip(at.H.T, at.gradient.T, strict=True)):
        free = np.flatnonzero((h > floor) | (g <= 0))
        if not len(free):
            continue
        part = at.H[free]
        block = part @ part.T
        block += np.multiply.outer(part[:, j], part[:, j])
        block -= A[free][:, free].toarray()
        block *= 4
        block[np.diag_indices_from(block)] += 4 * float(h @ h)
        try:
            factor = linalg.cho_factor(block, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        direction[free, j] = linalg.cho_solve(factor, g[free], check_finite=False)
    return direction
