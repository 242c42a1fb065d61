"""What the solvers that split A ≈ LZᵀ share: the state, its numbers, runs side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from snmf_dist.rows import Rows, central, sum_rows
from snmf_dist.solve.kernels import pair_norms
from snmf_dist.solve.stopping import StepNumbers, pair_numbers


class PairState(NamedTuple):
    """The iterate, each (n, K) and ≥ 0: A ≈ LZᵀ with L near Z."""

    L: Rows
    Z: Rows


@dataclass(frozen=True)
class PairSolver:
    """A solver of min ‖A − LZᵀ‖² + ρ‖L − Z‖² over L, Z ≥ 0; its `step` is its own.

    Parameters
    ----------
    rho : tuple of float
        Penalty on L ≠ Z, one for each run side by side.
    """

    rho: tuple[float, ...]
    State: ClassVar[type[PairState]] = PairState
    products: ClassVar[int] = 2  # products with A in a step

    @property
    def runs(self) -> int:
        """Runs side by side."""
        return len(self.rho)

    def init(self, L: Rows) -> PairState:
        """Begin at Z = L."""
        return PairState(L=L, Z=L)

    def numbers(self, old: PairState, new: PairState) -> Any:
        """`StepNumbers` of each run in the step from `old` to `new`."""
        squares = sum_rows(pair_norms, old.L, new.L, old.Z, new.Z, runs=self.runs)
        return central(pair_numbers, squares, rho=np.array(self.rho))

    def restart(self, old: PairState, new: PairState) -> PairState:
        """A finite state for runs that are lost: where they were."""
        return old

    def keep(self, runs: Sequence[int]) -> Self:
        """The solver of some of the runs."""
        return replace(self, rho=tuple(self.rho[r] for r in runs))

    def decides(self, iteration: int) -> bool:
        """Whether ρ may change after this iteration: never."""
        return False

    def adapted(self, iteration: int, numbers: Sequence[StepNumbers], stalled: Sequence[bool]) -> Self:
        """The solver of the next iteration: the same."""
        return self
