"""SNMF by hierarchical alternating least squares: the problem of APG, one column at a time.

Each column of L is set to its exact best given all others (Zhu, Li, Liu, Li 2018, "Dropping symmetry for fast
symmetric nonnegative matrix factorization"), so ‖A − LZᵀ‖² + ρ‖L − Z‖² never grows.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Value
from snmf_dist.solve.kernels import column_sweep, run_grams
from snmf_dist.solve.pair import PairSolver, PairState
from snmf_dist.solve.products import multiply


@dataclass(frozen=True)
class HALS(PairSolver):
    """min ‖A − LZᵀ‖² + ρ‖L − Z‖² over L, Z ≥ 0, in turn, by one sweep over the columns of each."""

    name: ClassVar[str] = "hals"
    arrays: ClassVar[int] = 7  # n × K arrays held at a time
    task_columns: ClassVar[int] = 8  # times K: columns that a step reads and writes of a row

    def step(self, A: Graph, s: PairState) -> tuple[PairState, Value]:
        """A sweep over the columns of L, then one over those of Z."""
        L = self._columns(A, s.L, s.Z)
        Z = self._columns(A, s.Z, L)
        new = PairState(L, Z)
        return new, self.numbers(A, s, new)

    def _columns(self, A: Graph, L: Rows, Z: Rows) -> Rows:
        G = A.sum(run_grams, Z, runs=self.runs, widths=self.own_widths)
        return A.map(column_sweep, L, multiply(A, Z), Z, G=G, rho=np.array(self.rho), widths=self.own_widths)
