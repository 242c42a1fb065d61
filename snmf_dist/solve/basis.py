"""The leading eigenvectors of A, made of the same products as the solver: Chebyshev-filtered subspace iteration.

A block method: unlike Lanczos it finds eigenvalues that repeat, as those of graphs that fall apart do. A round
filters the block with a Chebyshev polynomial that is small on the unwanted part of the spectrum, makes its
columns orthonormal, and turns them into Ritz vectors (Zhou, Saad, Tiago, Chelikowsky 2006).
"""

from dataclasses import dataclass

import numpy as np

from snmf_dist.rows import Rows, central, map_rows, multiply, rows_like, settle, sum_rows
from snmf_dist.solve.kernels import (
    chebyshev_step,
    column_squares,
    cross,
    gram,
    largest_row_sum,
    residual_squares,
    scale_columns,
    times,
    uniform_rows,
)

EXTRA = 10  # columns beyond K, so that the last ones wanted settle as fast as the first
DEGREE = 8
ROUNDS = 20
POWER_STEPS = 30
RANK = 1e-10  # eigenvalues of a Gram matrix below this, relative to the largest, are rounding
PRECISION = 2e-3  # of the Ritz vectors, relative to the largest eigenvalue: the values then have twice the digits


@dataclass(frozen=True)
class Basis:
    """Ritz pairs of A, largest first.

    Attributes
    ----------
    U : rows, (n, K)
        Orthonormal columns.
    values : ndarray, (K,)
        Their Ritz values.
    next_value : float or None
        The Ritz value after the last, if there is one: how far it lies below is the eigengap.
    residual : float
        Largest ‖A u − λ u‖ of the wanted pairs, relative to the largest value.
    products : int
        Products with A that it took, each as wide as K + 10.
    """

    U: Rows
    values: np.ndarray
    next_value: float | None
    residual: float
    products: int


def leading_basis(
    A: Rows, K: int, *, seed: int, dtype: np.dtype, precision: float = PRECISION, rounds: int = ROUNDS
) -> Basis:
    """The `K` leading Ritz pairs of a symmetric, nonnegative A.

    Parameters
    ----------
    A : rows, (n, n)
        In memory or in blocks.
    K : int
        Pairs wanted; fewer come back if the rank of A is smaller.
    precision : float, default 2e-3
        Residual at which to stop, relative to the largest eigenvalue.
    rounds : int, default 20
        Filters at most, each of 8 products.
    """
    width = min(K + EXTRA, A.shape[0])
    _, sums = settle((), sum_rows(largest_row_sum, A))
    V = rows_like(A, uniform_rows, width, dtype=dtype, K=width, seed=seed, scale=1.0, type=dtype)
    V, AV, values, residual = _ritz(A, _orthonormal(V), K)
    products = 1
    for _ in range(rounds):
        if residual <= precision or len(values) <= K:
            break
        V = _filter(A, V, AV, low=-max(sums), high=float(values[-1]), top=float(values[0]))
        V, AV, values, residual = _ritz(A, _orthonormal(V), K)
        products += DEGREE
    kept = min(K, len(values))
    U = map_rows(times, V, M=np.eye(len(values), kept), width=kept)
    after = float(values[kept]) if kept < len(values) else None
    return Basis(U, values[:kept], after, residual, products)


def _filter(A: Rows, V: Rows, AV: Rows, *, low: float, high: float, top: float) -> Rows:
    """The Chebyshev polynomial of A that is small on [low, high] and 1 at `top`, times V.

    AV is at hand from the Ritz values, so DEGREE − 1 products are left to do.
    """
    centre, half = (high + low) / 2, max((high - low) / 2, 1e-6 * top)
    ratio = half / (top - centre)
    sigma, before, back = ratio, V, 0.0
    scale = sigma / half
    for i in range(DEGREE):
        step = map_rows(
            chebyshev_step, AV if i == 0 else multiply(A, V), V, before, centre=centre, scale=scale, back=back
        )
        before, V = V, step
        new = 1 / (2 / ratio - sigma)
        scale, back, sigma = 2 * new / half, sigma * new, new
    return V


def _orthonormal(V: Rows) -> Rows:
    """Orthonormal columns that span those of V; columns that add nothing are dropped.

    Twice by the Gram matrix: the second time takes away what rounding of the first left.
    """
    for _ in range(2):
        (V,), M = settle((V,), central(_whiten, sum_rows(gram, V)))
        V = map_rows(times, V, M=M, width=M.shape[1])
    return V


def _whiten(G: np.ndarray) -> np.ndarray:
    """M with orthonormal VM, if G = VᵀV: G^−½ on the part of the space where G is not zero."""
    scale = 1 / np.sqrt(np.maximum(np.diag(G), np.finfo(float).tiny))
    values, Q = np.linalg.eigh(G * np.outer(scale, scale))
    keep = values > values[-1] * RANK
    return scale[:, None] * Q[:, keep] / np.sqrt(values[keep])


def _ritz(A: Rows, V: Rows, K: int) -> tuple[Rows, Rows, np.ndarray, float]:
    """Ritz vectors of the span of V, A times them, their values, and the worst residual of the first K."""
    AV = multiply(A, V)
    (V, AV), H = settle((V, AV), sum_rows(cross, V, AV))
    values, Q = np.linalg.eigh((H + H.T) / 2)
    values, Q = values[::-1], Q[:, ::-1]
    V, AV = (map_rows(times, X, M=Q) for X in (V, AV))
    (V, AV), squares = settle((V, AV), sum_rows(residual_squares, V, AV, values=values))
    return V, AV, values, float(np.sqrt(squares[:K].max()) / max(values[0], np.finfo(float).tiny))


def largest_eigenvalue(A: Rows, *, dtype: np.dtype) -> tuple[float, int]:
    """About the largest eigenvalue of a nonnegative A, from below, and the products it took.

    The power method, until the Rayleigh quotient grows by less than a hundredth; from a positive vector, which
    no eigenvector of the largest eigenvalue is orthogonal to.
    """
    V = rows_like(A, uniform_rows, 1, dtype=dtype, K=1, seed=0, scale=1.0, type=dtype)
    value, products = 0.0, 0
    while products < POWER_STEPS:
        products += 1
        (V,), square = settle((V,), sum_rows(column_squares, V))
        V = map_rows(scale_columns, V, scale=1 / np.sqrt(square))
        AV = multiply(A, V)
        (AV,), quotient = settle((AV,), sum_rows(cross, V, AV))
        new = float(quotient[0, 0])
        if new <= 1.01 * value:
            break
        value, V = new, AV
    return max(new, value), products
