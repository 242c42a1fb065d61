"""The leading eigenvectors of A, made of the same products as the solver: Chebyshev-filtered subspace iteration.

A block method: unlike Lanczos it finds eigenvalues that repeat, as those of graphs that fall apart do. A round
filters the block with a Chebyshev polynomial that is small on the unwanted part of the spectrum, makes its
columns orthonormal, and turns them into Ritz vectors (Zhou, Saad, Tiago, Chelikowsky 2006).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from snmf_dist.engine.rows import Graph, Rows
from snmf_dist.errors import InputError
from snmf_dist.solve.coarse import NOISE, coarse_columns, groups_of
from snmf_dist.solve.kernels import (
    chebyshev_step,
    cross,
    largest_row_sum,
    residual_squares,
    take_columns,
    three_terms,
    times,
    uniform_rows,
)
from snmf_dist.solve.products import multiply

EXTRA = 10  # columns beyond K, so that the last ones wanted settle as fast as the first
DEGREE = 8
ROUNDS = 20
RANK = 1e-10  # eigenvalues of a Gram matrix below this, relative to the largest, are rounding
BASIS_PRECISION = 2e-3  # of Ritz vectors, relative to the largest eigenvalue; values have twice the digits
GAP_SHARE = 0.5  # the residual, as a share of the gap behind K, at which the K vectors are told from the others
FINEST = 1e-4  # precision that is asked for however small the gap is
RITZ_ROUNDING = 4  # relative errors of the rows' type that a Ritz value may have
FINE_ROUNDS = 3  # at most, after `BASIS_PRECISION` is met, to tell the vectors apart


@dataclass(frozen=True)
class Basis:
    """Ritz pairs of A, largest first.

    Attributes
    ----------
    U : rows, (n, K), or None
        Orthonormal columns; None once they were used.
    values : ndarray, (K,)
        Their Ritz values.
    next_value : float or None
        The Ritz value after the last, if there is one: how far it lies below is the eigengap.
    upper : ndarray, (K,)
        Estimates from above of the eigenvalues: the Ritz values and what their residuals leave room for.
    residual : float
        Largest ‖A u − λ u‖ of the wanted pairs, relative to the largest value.
    converged : bool
        Whether the residual met `precision`; else the rounds came to their end.
    products : int
        Products with A that it took, each as wide as K + 10.
    """

    U: Any
    values: np.ndarray
    next_value: float | None
    upper: np.ndarray
    residual: float
    converged: bool
    products: int

    def leading(self, A: Graph, K: int) -> Self:
        """The first K of the pairs, or all if there are no more."""
        if len(self.values) <= K:
            return self
        U = None if self.U is None else A.map(take_columns, self.U, columns=np.arange(K), width=K)
        after = float(self.values[K])
        return replace(self, U=U, values=self.values[:K], next_value=after, upper=self.upper[:K])

    def facts(self) -> dict[str, Any]:
        """All but the vectors, as plain numbers."""
        fields = {name: value for name, value in vars(self).items() if name != "U"}
        plain = {"values": self.values.tolist(), "upper": self.upper.tolist(), "residual": float(self.residual)}
        return {**fields, **plain, "converged": bool(self.converged)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """What `facts` returned, as a basis without its vectors."""
        arrays = {name: np.array(facts[name]) for name in ("values", "upper")}
        return cls(None, **{**facts, **arrays})


def leading_basis(
    A: Graph,
    K: int,
    *,
    seed: int,
    dtype: np.dtype,
    precision: float = BASIS_PRECISION,
    rounds: int = ROUNDS,
    begin: Callable[[Rows], Rows] | None = None,
    weights: Rows | None = None,
    limit: float | None = None,
) -> Basis:
    """The `K` leading Ritz pairs of a symmetric, nonnegative A.

    Parameters
    ----------
    A : Graph
        The graph.
    K : int
        Pairs wanted; fewer come back if the rank of A is smaller.
    precision : float, default 2e-3
        Residual at which to stop, relative to the largest eigenvalue; where the gap behind the K-th value is
        small, up to three more rounds are spent to make it half of the gap.
    rounds : int, default 20
        Filters at most, each of 8 products.
    begin : callable, optional
        Makes the columns to begin with from random ones, (n, K + 10), where some eigenvectors are known.
    weights : rows, (n, 2), optional
        For each row its factor r, with W = rAr, and its degree in W; given, a large graph begins with the
        eigenvectors of a coarse one.
    limit : float, optional
        A number that no eigenvalue exceeds in size; without it the largest row sum is one.
    """
    width = min(K + EXTRA, A.shape[0])
    if limit is None:
        _, sums = A.settle((), A.sum_entries(largest_row_sum))
        limit = float(max(sums))
    first = A.rows(uniform_rows, width, dtype=dtype, K=width, seed=seed, scale=1.0, type=dtype)
    coarse = weights is not None and groups_of(A.shape[0], width) > 0
    if weights is not None and coarse:
        first = coarse_columns(A, first, weights)
    V = _Subspace(A, first if begin is None else begin(first))
    del first
    V.make_ritz(K)
    products, fine, known = 1 + coarse, 0, 0 if begin is None else 2  # rounds for the values after those known
    missing = np.log(np.sqrt(A.shape[0]) / NOISE) if coarse else 0.0  # logarithm of the growth that shows a vector
    for done in range(rounds):
        if len(V.values) <= K:
            break
        if V.residual <= precision and done >= known and missing <= 0:
            if V.residual <= max(FINEST, GAP_SHARE * V.gap) or fine == FINE_ROUNDS:
                break
            fine += 1
        missing -= V.growth(K, low=-limit)
        V.filter(low=-limit, high=float(V.values[-1]), top=float(V.values[0]))
        V.make_ritz(K)
        products += DEGREE
    kept = min(K, len(V.values))
    U = A.map(times, V.V, M=np.eye(len(V.values), kept), width=kept)
    after = float(V.values[kept]) if kept < len(V.values) else None
    met = V.residual <= precision or len(V.values) <= K
    return Basis(U, V.values[:kept], after, V.upper(kept, limit=limit), V.residual, met, products)


class _Subspace:
    """Columns V that come nearer to leading eigenvectors; each method lets go of what it replaces at once."""

    def __init__(self, A: Graph, V: Rows) -> None:
        self.A, self.V = A, V
        self.AV: Rows | None = None
        self.values = np.zeros(0)
        self.squares = np.zeros(0)
        self.residual = np.inf
        self.gap = 0.0

    def upper(self, K: int, *, limit: float) -> np.ndarray:
        """Estimates from above of the K leading eigenvalues, none larger than `limit` but for rounding.

        An eigenvalue is within ‖R‖ of its Ritz value, R the residuals of the wanted vectors, and nearer, within
        ‖R‖²/gap, where the rest of the spectrum is far; the rounding of the rows adds to that. The value in the
        middle of the columns beyond K stands for the rest: the last ones have not risen to their eigenvalues yet.
        Estimates: an eigenvector that is missing in the block altogether would be seen by neither.
        """
        values, R = self.values, float(self.squares[:K].sum())
        rest = values[min((K + len(values)) // 2, len(values) - 1)]
        gaps = np.maximum(values[:K] - rest, np.finfo(float).tiny)
        room = np.minimum(np.sqrt(R), R / gaps)
        rounding = RITZ_ROUNDING * np.finfo(self.V.dtype).eps * float(values[0])
        return np.asarray(np.minimum(values[:K] + room, max(limit, float(values[0]))) + rounding)

    def growth(self, K: int, *, low: float) -> float:
        """Logarithm of how much the next filter lets the K-th vector grow over those that it damps."""
        high = float(self.values[-1])
        half = max((high - low) / 2, np.finfo(float).tiny)
        return float(DEGREE * np.arccosh(max((float(self.values[K - 1]) - (high + low) / 2) / half, 1.0)))

    def filter(self, *, low: float, high: float, top: float) -> None:
        """V becomes the Chebyshev polynomial of A that is small on [low, high] and 1 at `top`, times V.

        AV is at hand from the Ritz values, so DEGREE − 1 products are left to do.
        """
        centre, half = (high + low) / 2, max((high - low) / 2, 1e-6 * top)
        ratio = half / (top - centre)
        sigma = ratio
        before, AV, self.AV = self.V, self.AV, None
        assert AV is not None, "the Ritz values come first"
        self.V = self.A.map(three_terms, AV, before, before, centre=centre, scale=sigma / half, back=0.0)
        del AV
        for _ in range(DEGREE - 1):
            new = 1 / (2 / ratio - sigma)
            numbers = {"centre": centre, "scale": 2 * new / half, "back": sigma * new}
            (step,) = self.A.sweep(
                chebyshev_step,
                self.V,
                rows={"V": self.V, "W": before},
                makes={"V": before.shape[1]},
                over={"V": "W"},
                adds_up=False,
                **numbers,
            )
            before, self.V, sigma = self.V, step, new

    def make_ritz(self, K: int) -> None:
        """V becomes Ritz vectors of its span, with their values and the worst residual of the first K."""
        self._make_orthonormal()
        A, AV = self.A, multiply(self.A, self.V)
        (self.V, AV), H = A.settle((self.V, AV), A.sum(cross, self.V, AV))
        values, Q = np.linalg.eigh((H + H.T) / 2)
        values, Q = values[::-1], Q[:, ::-1]
        self.V = A.map(times, self.V, M=Q)
        AV = A.map(times, AV, M=Q)
        (self.V, self.AV), squares = A.settle((self.V, AV), A.sum(residual_squares, self.V, AV, values=values))
        self.values, self.squares = values, squares
        top = max(values[0], np.finfo(float).tiny)
        self.gap = float(values[K - 1] - values[K]) / top if len(values) > K else np.inf
        self.residual = float(np.sqrt(squares[:K].max()) / top)

    def _make_orthonormal(self) -> None:
        """V becomes orthonormal columns with the same span; columns that add nothing are dropped.

        Twice by the Gram matrix: the second time takes away what rounding of the first left.
        """
        for _ in range(2):
            (self.V,), M = self.A.settle((self.V,), self.A.central(_whiten, self.A.sum(cross, self.V)))
            self.V = self.A.map(times, self.V, M=M, width=M.shape[1])


def _whiten(G: np.ndarray) -> np.ndarray:
    """M with orthonormal VM, if G = VᵀV: G^−½ on the part of the space where G is not zero."""
    squares = np.diag(G)
    scale = np.divide(1, np.sqrt(squares), out=np.zeros(len(G)), where=squares > 0)  # columns of zeros are dropped
    scaled = G * np.outer(scale, scale)
    if not np.isfinite(scaled).all():
        raise InputError(
            "products with A overflow: its entries are too large or too small for their type; import the graph "
            "again with normalize='ncut', with scaled weights, or with dtype='float64'"
        )
    values, Q = np.linalg.eigh(scaled)
    keep = values > values[-1] * RANK
    return np.asarray(scale[:, None] * Q[:, keep] / np.sqrt(values[keep]))
