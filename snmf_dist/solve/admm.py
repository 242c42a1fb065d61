"""SNMF by ADMM: Algorithm 2 of the paper."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from snmf_dist.rows import Rows, central, map_rows, multiply, sum_rows
from snmf_dist.solve.kernels import (
    dual_ascent,
    gram,
    positive_mean,
    ridge_inverse,
    ridge_solve,
    step_norms,
)
from snmf_dist.solve.stopping import admm_numbers


class ADMMState(NamedTuple):
    """The iterate, each (n, K): X and Y with A ≈ XYᵀ, L ≥ 0, and the duals of L = X and L = Y."""

    X: Rows
    Y: Rows
    L: Rows
    Lam: Rows
    Gam: Rows


@dataclass(frozen=True)
class ADMM:
    """min ½‖A − XYᵀ‖² subject to X = L, Y = L, L ≥ 0.

    Parameters
    ----------
    rho : float, default 0.1
        Penalty of the two constraints; the paper's value.
    """

    rho: float = 0.1
    products: ClassVar[int] = 2  # products with A in a step

    def init(self, L: Rows) -> ADMMState:
        """Begin at X = Y = L with duals of zero."""
        zero = map_rows(_zeros, L)
        return ADMMState(X=L, Y=L, L=L, Lam=zero, Gam=zero)

    def step(self, A: Rows, s: ADMMState) -> ADMMState:
        """One pass through the box of Algorithm 2."""
        rho = self.rho

        C = central(ridge_inverse, sum_rows(gram, s.Y), rho=rho)
        X = map_rows(ridge_solve, multiply(A, s.Y), s.L, s.Lam, inverse=C, rho=rho)

        D = central(ridge_inverse, sum_rows(gram, X), rho=rho)
        Y = map_rows(ridge_solve, multiply(A, X), s.L, s.Gam, inverse=D, rho=rho)

        L = map_rows(positive_mean, X, Y, s.Lam, s.Gam, rho=rho)

        Lam = map_rows(dual_ascent, s.Lam, L, X, rho=rho)
        Gam = map_rows(dual_ascent, s.Gam, L, Y, rho=rho)
        return ADMMState(X, Y, L, Lam, Gam)

    def watched(self, old: ADMMState, new: ADMMState) -> Any:
        """`StepNumbers` of the step from `old` to `new`."""
        squares = sum_rows(step_norms, old.X, new.X, old.Y, new.Y, old.L, new.L)
        return central(admm_numbers, squares, rho=self.rho)


def _zeros(L: Any) -> Any:
    return 0 * L
