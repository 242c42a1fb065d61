"""SNMF by accelerated proximal gradient: Algorithm 1 of the paper."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from snmf_dist.rows import Rows, hold, map_rows, multiply, settle, sum_rows
from snmf_dist.solve.kernels import fast_gradient, last_change, run_grams, side_by_side, take_columns
from snmf_dist.solve.pair import PairSolver, PairState

INNER_STEPS = 10  # of the inner loop in one task, between two looks at its norm
INNER_LIMIT = 500


@dataclass(frozen=True)
class APG(PairSolver):
    """min ‖A − LZᵀ‖² + ρ‖L − Z‖² over L, Z ≥ 0, in turn, each to convergence.

    Within a half AZ and ZᵀZ do not change, so the inner loop works on each row by itself: one product with
    A a half, and a norm now and then.

    Parameters
    ----------
    tol : float, default 1e-5
        Relative change that ends an inner loop; the paper's value. Looked at every tenth inner iteration.
    """

    tol: float = 1e-5

    def step(self, A: Rows, s: PairState) -> tuple[PairState, Any]:
        """One pass through the box of Algorithm 1."""
        L = self._half(A, s.L, s.Z)
        Z = self._half(A, s.Z, L)
        new = PairState(L, Z)
        return new, self.numbers(s, new)

    def _half(self, A: Rows, L: Rows, Z: Rows) -> Rows:
        """The L that is best for this Z: the inner while of the box."""
        AZ = hold(multiply(A, Z))
        (), G = settle((), sum_rows(run_grams, Z, runs=self.runs))
        S = map_rows(side_by_side, L, L, L, width=3 * L.shape[1])
        busy = np.ones(self.runs, dtype=bool)
        for first in range(0, INNER_LIMIT, INNER_STEPS):
            S = map_rows(
                fast_gradient, S, AZ, Z, G=G, rho=np.array(self.rho), busy=busy, first=first, steps=INNER_STEPS
            )
            (S,), squares = settle((S,), sum_rows(last_change, S, runs=self.runs))
            change, size = np.sqrt(squares)
            busy = busy & (change > self.tol * size)
            if not busy.any():
                break
        return map_rows(take_columns, S, columns=np.arange(L.shape[1]), width=L.shape[1])
