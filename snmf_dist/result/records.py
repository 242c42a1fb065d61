"""What a run says of itself: plain data."""

import math
from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """How a run ended; the value is a sentence for the user."""

    CONVERGED = "the change of an iteration fell to tol or below"
    MAX_ITER = "the iteration limit came first; raise max_iter or loosen tol"
    DIVERGED = "the numbers overflowed; the last finite state was kept: raise rho, or normalise A"
    COLLAPSED = "every membership became zero; lower rho, or try another seed"

    @property
    def converged(self) -> bool:
        """Whether the stopping rule was met."""
        return self is Status.CONVERGED


@dataclass(frozen=True)
class IterationRecord:
    """The numbers of one iteration.

    The last three need a product with A of their own, so they are taken at the first, every tenth (see
    `fit`'s ``evaluate_every``) and the last iteration, and are NaN between.

    Attributes
    ----------
    iteration : int
        From 1.
    change : float
        The paper's criterion, ‖ΔX‖/‖X‖ + ‖ΔY‖/‖Y‖ + ‖ΔL‖/‖L‖.
    primal, dual : float
        Residuals of ADMM: how far X and Y are from L, and how far L moved, times ρ.
    rho : float
        Penalty used in this iteration.
    products : int
        Products with A since the start.
    seconds : float
        Since the start.
    objective : float
        ‖A − LLᵀ‖².
    captured : float
        c = 2 tr(LᵀAL) − ‖LᵀL‖² = ‖A‖² − objective.
    kkt : float
        Relative distance to the optimality conditions; 0 at a stationary point.
    """

    iteration: int
    change: float
    primal: float
    dual: float
    rho: float
    products: int
    seconds: float
    objective: float = math.nan
    captured: float = math.nan
    kkt: float = math.nan

    @property
    def evaluated(self) -> bool:
        """Whether objective, captured and kkt were taken at this iteration."""
        return not math.isnan(self.captured)
