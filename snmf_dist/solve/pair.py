"""What the solvers that split A ≈ LZᵀ share: the state, its numbers, runs side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Value
from snmf_dist.solve.kernels import pair_norms
from snmf_dist.solve.stopping import StepNumbers, ratio


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
    widths : tuple of int, optional
        Columns of each run, where they differ.
    """

    rho: tuple[float, ...]
    widths: tuple[int, ...] = ()

    State: ClassVar[type[PairState]] = PairState
    products: ClassVar[int] = 2  # products with A in a step
    penalty: ClassVar[float] = 1.0  # ρ for rho="auto", times the largest eigenvalue of A

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], rho: float, *, adapt: bool) -> Self:
        """The solver of a fit, with the same penalty for each run."""
        return cls((rho,) * settings["n_init"])

    @property
    def runs(self) -> int:
        """The number of runs side by side."""
        return len(self.rho)

    @property
    def own_widths(self) -> np.ndarray | None:
        """The widths as kernels take them."""
        return np.array(self.widths) if self.widths else None

    def init(self, A: Graph, L: Rows) -> PairState:
        """Begin at Z = L."""
        return PairState(L=L, Z=L)

    def numbers(self, A: Graph, old: PairState, new: PairState) -> Value:
        """`StepNumbers` of each run in the step from `old` to `new`."""
        squares = A.sum(pair_norms, old.L, new.L, old.Z, new.Z, runs=self.runs, widths=self.own_widths)
        return A.central(_step_numbers, squares, rho=np.array(self.rho))

    def restart(self, A: Graph, old: PairState, new: PairState) -> PairState:
        """A finite state for runs that are lost: where they were."""
        return old

    def keep(self, runs: Sequence[int]) -> Self:
        """The solver of some of the runs."""
        widths = tuple(self.widths[r] for r in runs) if self.widths else ()
        return replace(self, rho=tuple(self.rho[r] for r in runs), widths=widths)

    def decides(self, iteration: int) -> bool:
        """Whether ρ may change after this iteration: never."""
        return False

    def adapted(self, iteration: int, numbers: Sequence[StepNumbers], stalled: Sequence[bool]) -> Self:
        """The solver of the next iteration: the same."""
        return self


def _step_numbers(squares: np.ndarray, *, rho: np.ndarray) -> list[StepNumbers]:
    """The change of L and Z, and how far they are from each other, from `kernels.pair_norms`."""
    numbers = []
    for run, penalty in zip(np.sqrt(squares).T, rho, strict=True):
        dL, L0, dZ, Z0, LZ, L = run.tolist()
        change = ratio(dL, L0) + ratio(dZ, Z0)
        numbers.append(StepNumbers(change, primal=LZ, dual=float(penalty) * dZ, size=L))
    return numbers
