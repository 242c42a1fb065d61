"""SNMF by accelerated proximal gradient: Algorithm 1 of the paper."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Value
from snmf_dist.solve.kernels import fast_gradient, last_change, run_grams, side_by_side, take_columns
from snmf_dist.solve.pair import PairSolver, PairState
from snmf_dist.solve.products import multiply

INNER_STEPS = 10  # of the inner loop in one task, between two looks at its norm
INNER_LIMIT = 500
INNER_TOL = 1e-5  # the paper's


@dataclass(frozen=True)
class APG(PairSolver):
    """min ‖A − LZᵀ‖² + ρ‖L − Z‖² over L, Z ≥ 0, in turn, each to convergence.

    Within a half AZ and ZᵀZ do not change, so the inner loop works on each row by itself: one product with
    A a half, and a norm now and then.

    Parameters
    ----------
    rho : tuple of float
        Penalty on L ≠ Z, one for each run side by side.
    tol : float, default 1e-5
        Relative change that ends an inner loop. It is looked at every tenth inner iteration.
    """

    tol: float = INNER_TOL

    name: ClassVar[str] = "apg"
    arrays: ClassVar[int] = 11  # n × K arrays held at a time
    task_columns: ClassVar[int] = 12  # times K: columns that a step reads and writes of a row

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], rho: float, *, adapt: bool) -> Self:
        """The solver of a fit; the inner loop has the tolerance of the paper's rule, if that is the one used."""
        tol = settings["tol"] if settings["stop"] == "paper" else INNER_TOL
        return cls((rho,) * settings["n_init"], tol=tol)

    def step(self, A: Graph, s: PairState) -> tuple[PairState, Value]:
        """One pass through the box of Algorithm 1."""
        L = self._half(A, s.L, s.Z)
        Z = self._half(A, s.Z, L)
        new = PairState(L, Z)
        return new, self.numbers(A, s, new)

    def _half(self, A: Graph, L: Rows, Z: Rows) -> Rows:
        """The L that is best for this Z: the inner while of the box."""
        (AZ,), G = A.settle((multiply(A, Z),), A.sum(run_grams, Z, runs=self.runs, widths=self.own_widths))
        S = A.map(side_by_side, L, L, L, width=3 * L.shape[1])
        busy = np.ones(self.runs, dtype=bool)
        for first in range(0, INNER_LIMIT, INNER_STEPS):
            now: Any = {"busy": busy, "first": first, "steps": INNER_STEPS, "widths": self.own_widths}
            S = A.map(fast_gradient, S, AZ, Z, G=G, rho=np.array(self.rho), **now)
            (S,), squares = A.settle((S,), A.sum(last_change, S, runs=self.runs, widths=self.own_widths))
            change, size = np.sqrt(squares)
            busy = busy & (change > self.tol * size)
            if not busy.any():
                break
        return A.map(take_columns, S, columns=np.arange(L.shape[1]), width=L.shape[1])
