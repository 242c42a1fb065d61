"""SNMF by ADMM: Algorithm 2 of the paper, with a penalty that may follow the residuals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from snmf_dist.rows import Rows, central, map_rows, sum_rows, sweep, with_sums
from snmf_dist.solve.kernels import copy, gram, ridge, update_rest, update_X, zeros
from snmf_dist.solve.stopping import StepNumbers, admm_numbers

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
        are the multipliers themselves, not divided by ρ, so they need no rescaling when it changes. And let Y go
        past itself, as in successive over-relaxation, unless ρ has risen: where it has, X and Y swing about L.
    first_rho : float, default 0.15
        Where an adapting ρ began: it stays within a factor of 1000.
    floor : tuple of float, optional
        What an adapting ρ of each run does not go below.
    """

    rho: tuple[float, ...]
    adapt: bool = False
    first_rho: float = FIRST_RHO
    floor: tuple[float, ...] = ()
    State: ClassVar[type[ADMMState]] = ADMMState
    products: ClassVar[int] = 2  # products with A in a step

    @property
    def runs(self) -> int:
        """Runs side by side."""
        return len(self.rho)

    @cached_property
    def omega(self) -> np.ndarray:
        """How far the Y of each run goes from where it was, of the way to the box's own, (R,)."""
        low = self.first_rho * math.sqrt(ADAPT_BY)  # between where ρ began and the next it may have
        return np.array([OMEGA if self.adapt and rho < low else 1.0 for rho in self.rho])

    def init(self, L: Rows) -> ADMMState:
        """Begin at X = Y = L with duals of zero, each an array of its own: a step writes over some of them."""
        return ADMMState(map_rows(copy, L), map_rows(copy, L), L, map_rows(zeros, L), map_rows(zeros, L))

    def step(self, A: Rows, s: ADMMState) -> tuple[ADMMState, Any]:
        """One pass through the box of Algorithm 2, and its `StepNumbers`. Uses up `s`."""
        rho, K = np.array(self.rho), s.Y.shape[1]

        C = central(ridge, self._gram(s.Y), rho=rho)
        (X,), first = sweep(update_X, A, s.Y, s.L, s.Lam, s.X, widths=[K], over=[2], inverse=C, rho=rho)

        D = central(ridge, first, rho=rho)
        (Y, L, Lam, Gam), second = sweep(
            update_rest,
            A,
            X,
            X,
            s.L,
            s.Lam,
            s.Gam,
            s.Y,
            widths=4 * [K],
            over=[4, 1, 2, 3],
            inverse=D,
            rho=rho,
            omega=self.omega,
        )
        numbers = central(admm_numbers, first, second, rho=rho)
        return ADMMState(X, with_sums(Y, second), L, Lam, Gam), numbers

    def restart(self, old: ADMMState, new: ADMMState) -> ADMMState:
        """A finite state for runs that are lost; they kept their L."""
        return self.init(new.L)

    def _gram(self, Y: Rows) -> Any:
        """YᵀY, which the step that made Y has added up on the way."""
        return sum_rows(gram, Y, runs=self.runs) if Y.sums is None else Y.sums

    def keep(self, runs: Sequence[int]) -> Self:
        """The solver of some of the runs."""
        floor = tuple(self.floor[r] for r in runs) if self.floor else ()
        return replace(self, rho=tuple(self.rho[r] for r in runs), floor=floor)

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
