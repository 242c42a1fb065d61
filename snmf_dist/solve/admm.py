"""SNMF by ADMM: Algorithm 2 of the paper, with a penalty that may follow the residuals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from snmf_dist.engine.rows import Graph, Rows, Value
from snmf_dist.solve import kernels
from snmf_dist.solve.kernels import ridge
from snmf_dist.solve.stopping import StepNumbers, ratio

FIRST_RHO = 0.15  # of `adapt`, times the largest eigenvalue of A; these numbers: tests/benchmarks/penalty.py
ADAPT_EVERY = 5  # iterations between two looks at the residuals
ADAPT_BEYOND = 2.0  # the ratio of the relative residuals that calls for a change
ADAPT_BY = 1.5
ADAPT_RANGE = 1000.0  # ρ stays within this factor of where it began
OMEGA = 1.6  # over-relaxation of Y while an adapting ρ is low: up to a quarter fewer iterations, on blobs none


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
    rho : tuple of float
        Penalty of the two constraints, one for each run side by side; the paper has 0.1.
    adapt : bool, default False
        Let ρ balance the residuals, each relative to what it should be small against (Wohlberg 2017). Λ and Γ
        are the multipliers themselves, not divided by ρ, so they need no rescaling when ρ changes. Y is then
        over-relaxed, unless ρ has risen: where it has, X and Y swing about L.
    first_rho : float, default 0.15
        The value that an adapting ρ began at; it stays within a factor of 1000 of it.
    floor : tuple of float, optional
        The lowest value that an adapting ρ of each run may take.
    widths : tuple of int, optional
        Columns of each run, where they differ.
    """

    rho: tuple[float, ...]
    adapt: bool = False
    first_rho: float = FIRST_RHO
    floor: tuple[float, ...] = ()
    widths: tuple[int, ...] = ()

    name: ClassVar[str] = "admm"
    State: ClassVar[type[ADMMState]] = ADMMState
    products: ClassVar[int] = 2  # products with A in a step
    penalty: ClassVar[float] = FIRST_RHO  # ρ for rho="auto", times the largest eigenvalue of A
    arrays: ClassVar[int] = 5  # n × K arrays held at a time
    task_columns: ClassVar[int] = 11  # times K: columns that a step reads and writes of a row

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], rho: float, *, adapt: bool) -> Self:
        """The solver of a fit, with the same penalty for each run."""
        return cls((rho,) * settings["n_init"], adapt=adapt, first_rho=rho)

    def init(self, A: Graph, L: Rows) -> ADMMState:
        """Begin at X = Y = L with duals of zero, each an array of its own: a step writes over some of them."""
        copy, zeros = kernels.copy, kernels.zeros
        return ADMMState(A.map(copy, L), A.map(copy, L), L, A.map(zeros, L), A.map(zeros, L))

    def step(self, A: Graph, s: ADMMState) -> tuple[ADMMState, Value]:
        """One pass through the box of Algorithm 2, and its `StepNumbers`. Uses up `s`."""
        rho, widths = np.array(self.rho), self.own_widths

        C = A.central(ridge, self.gram(A, s.Y), rho=rho, widths=widths)  # C Cᵀ = YᵀY + ρI
        X = update_X(A, s, factor=C, rho=rho, widths=widths)  # X = (AY + ρL + Λ)(C Cᵀ)⁻¹

        D = A.central(ridge, X.sums, rho=rho, widths=widths)  # D Dᵀ = XᵀX + ρI
        # Y = (AX + ρL + Γ)(D Dᵀ)⁻¹,  L = ½ [X + Y − (Λ + Γ)/ρ]₊,  Λ += ρ(L − X),  Γ += ρ(L − Y)
        Y, L, Lam, Gam = update_rest(A, X, s, factor=D, rho=rho, omega=self.omega, widths=widths)

        numbers = A.central(step_numbers, X.sums, Y.sums, rho=rho)
        return ADMMState(X, Y, L, Lam, Gam), numbers

    def gram(self, A: Graph, Y: Rows) -> Value:
        """YᵀY of each run: the sweep that made Y has added it up on the way, else it is made now."""
        return A.sum(kernels.gram, Y, runs=self.runs, widths=self.own_widths) if Y.sums is None else Y.sums

    @property
    def runs(self) -> int:
        """The number of runs side by side."""
        return len(self.rho)

    @property
    def own_widths(self) -> np.ndarray | None:
        """The widths as kernels take them."""
        return np.array(self.widths) if self.widths else None

    @cached_property
    def omega(self) -> np.ndarray:
        """Over-relaxation factor ω of Y, one for each run, (R,)."""
        low = self.first_rho * math.sqrt(ADAPT_BY)  # between where ρ began and the next value it may have
        return np.array([OMEGA if self.adapt and rho < low else 1.0 for rho in self.rho])

    def restart(self, A: Graph, old: ADMMState, new: ADMMState) -> ADMMState:
        """A finite state for runs that are lost; they kept their L."""
        return self.init(A, new.L)

    def keep(self, runs: Sequence[int]) -> Self:
        """The solver of some of the runs."""
        floor = tuple(self.floor[r] for r in runs) if self.floor else ()
        widths = tuple(self.widths[r] for r in runs) if self.widths else ()
        return replace(self, rho=tuple(self.rho[r] for r in runs), floor=floor, widths=widths)

    def decides(self, iteration: int) -> bool:
        """Whether ρ may change after this iteration."""
        return self.adapt and iteration % ADAPT_EVERY == 0

    def adapted(self, iteration: int, numbers: Sequence[StepNumbers], stalled: Sequence[bool]) -> Self:
        """The solver of the next iteration; a run that stalls gets twice the penalty, and never less again."""
        if not self.adapt:
            return self
        lowest = self.floor or (self.first_rho / ADAPT_RANGE,) * self.runs
        highest = self.first_rho * ADAPT_RANGE
        pairs = zip(self.rho, lowest, stalled, strict=True)
        floor = tuple(min(2 * rho, highest) if stuck else low for rho, low, stuck in pairs)
        rho = self.rho
        if self.decides(iteration):
            rho = tuple(self._balanced(*pair) for pair in zip(rho, numbers, strict=True))
        return replace(self, rho=tuple(map(max, rho, floor)), floor=floor)

    def _balanced(self, rho: float, numbers: StepNumbers) -> float:
        """More penalty where X and Y are too far from L, less where L moves too much."""
        primal = numbers.primal * numbers.dual_size
        dual = numbers.dual * math.sqrt(2) * numbers.size
        if primal > ADAPT_BEYOND * dual:
            return min(rho * ADAPT_BY, self.first_rho * ADAPT_RANGE)
        if dual > ADAPT_BEYOND * primal:
            return rho / ADAPT_BY
        return rho


def update_X(A: Graph, s: ADMMState, *, factor: Value, rho: np.ndarray, widths: kernels.Widths = None) -> Rows:
    """X = (AY + ρL + Λ)(C Cᵀ)⁻¹, in the memory of the X before; XᵀX and the norms are its sums."""
    (X,) = A.sweep(
        kernels.update_X,
        s.Y,
        rows={"L": s.L, "Lam": s.Lam, "X0": s.X},
        makes={"X": s.X.shape[1]},
        over={"X": "X0"},
        inverse=factor,
        rho=rho,
        widths=widths,
    )
    found: Rows = X
    return found


def update_rest(
    A: Graph,
    X: Rows,
    s: ADMMState,
    *,
    factor: Value,
    rho: np.ndarray,
    omega: np.ndarray,
    widths: kernels.Widths = None,
) -> tuple[Rows, Rows, Rows, Rows]:
    """Y, L, Λ and Γ in one pass over A, each in the memory of the one before; YᵀY and the norms are its sums."""
    Y, L, Lam, Gam = A.sweep(
        kernels.update_rest,
        X,
        rows={"X": X, "L": s.L, "Lam": s.Lam, "Gam": s.Gam, "Y0": s.Y},
        makes=dict.fromkeys(("Y", "L", "Lam", "Gam"), X.shape[1]),
        over={"Y": "Y0", "L": "L", "Lam": "Lam", "Gam": "Gam"},
        inverse=factor,
        rho=rho,
        omega=omega,
        widths=widths,
    )
    return Y, L, Lam, Gam


def step_numbers(first: tuple[Any, ...], second: tuple[Any, ...], *, rho: np.ndarray) -> list[StepNumbers]:
    """The paper's change and ADMM's residuals (Boyd et al. 2011, §3.3) from the sums of the two sweeps."""
    numbers = []
    norms = (np.sqrt(squares).T.tolist() for squares in (first[1], second[1]))
    for (dX, X0), rest, penalty in zip(*norms, rho.tolist(), strict=True):
        dY, Y0, dL, L0, LX, LY, L, Lam, Gam = rest
        change = ratio(dX, X0) + ratio(dY, Y0) + ratio(dL, L0)
        primal, dual = math.hypot(LX, LY), math.sqrt(2) * penalty * dL
        numbers.append(StepNumbers(change, primal, dual, size=L, dual_size=math.hypot(Lam, Gam)))
    return numbers
