"""SNMF by hierarchical alternating least squares: the problem of APG, one column at a time.

Each column of L is set to its exact best given all others (Zhu, Li, Liu, Li 2018, "Dropping symmetry for fast
symmetric nonnegative matrix factorization"), so ‖A − LZᵀ‖² + ρ‖L − Z‖² never grows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from snmf_dist.rows import Rows, map_rows, multiply, sum_rows
from snmf_dist.solve.kernels import column_sweep, run_grams
from snmf_dist.solve.pair import PairSolver, PairState


@dataclass(frozen=True)
class HALS(PairSolver):
    """min ‖A − LZᵀ‖² + ρ‖L − Z‖² over L, Z ≥ 0, in turn, by one sweep over the columns of each."""

    def step(self, A: Rows, s: PairState) -> tuple[PairState, Any]:
        """A sweep over the columns of L, then one over those of Z."""
        L = self._sweep(A, s.L, s.Z)
        Z = self._sweep(A, s.Z, L)
        new = PairState(L, Z)
        return new, self.numbers(s, new)

    def _sweep(self, A: Rows, L: Rows, Z: Rows) -> Rows:
        G = sum_rows(run_grams, Z, runs=self.runs)
        return map_rows(column_sweep, L, multiply(A, Z), Z, G=G, rho=np.array(self.rho))
