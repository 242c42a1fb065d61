"""What a run says of itself: plain data."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np


class Status(Enum):
    """How a run ended; the value is a sentence for the user."""

    CONVERGED = "the memberships stopped moving: an iteration changed them by no more than tol"
    STATIONARY = "no small change of the memberships would fit the graph better: a local optimum"
    SETTLED = "the clusters have settled: hardly a label or the fit changed in the last iterations"
    PEAKED = (
        "the clusters were at their sharpest and this is that state: further iterations fitted the graph's "
        "numbers better but cut more of its edges (use stop='kkt' to go on)"
    )
    OUT_OF_TIME = "the time limit came first; the same call continues where this one ended"
    MAX_ITER = "the iteration limit came first; raise max_iter, or accept the clusters as they are"
    STUCK = "the memberships stopped moving, but not at an optimum: raise rho, or try another solver"
    CYCLING = (
        "the iteration limit came first, and the run was going round in circles: raise rho (try 1), or try "
        "solver='hals'"
    )
    DIVERGED = "the numbers overflowed; the last finite state was kept: raise rho, or normalise A"
    COLLAPSED = "every membership became zero; lower rho, try another seed, or a start of the scale of A"

    @property
    def converged(self) -> bool:
        """Whether the stopping rule was met."""
        return self in (Status.CONVERGED, Status.STATIONARY, Status.SETTLED, Status.PEAKED)


class Sample(NamedTuple):
    """Where some rows lie in a plane.

    Attributes
    ----------
    rows : ndarray of int64, shape (s,)
        The numbers of the rows.
    places : ndarray of float32, shape (s, 2)
        Their coordinates.
    """

    rows: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class IterationRecord:
    """The numbers of one iteration.

    Those from `objective` on need a pass over A of their own, so they are taken at the first, every tenth (see
    `fit`'s ``evaluate_every``) and the last iteration, and are NaN between.

    Attributes
    ----------
    iteration : int
        Number of the iteration, counted from 1.
    change : float
        The paper's criterion, ‖ΔX‖/‖X‖ + ‖ΔY‖/‖Y‖ + ‖ΔL‖/‖L‖.
    primal : float
        Primal residual: how far X and Y (or Z) are from L.
    dual : float
        Dual residual: how far L (or Z) moved, times ρ.
    rho : float
        Penalty used in this iteration.
    products : int
        Products with A since the start.
    seconds : float
        Seconds since the start.
    objective : float
        ‖A − LLᵀ‖².
    captured : float
        c = 2 tr(LᵀAL) − ‖LᵀL‖² = ‖A‖² − objective.
    kkt : float
        Relative distance to the optimality conditions; 0 at a stationary point.
    moved : float
        Share of the rows whose label is not what it was ten or more iterations before.
    modularity : float
        Modularity of the labels (Newman 2006): how many more edges lie within clusters than chance would put
        there. NaN where it is not watched.
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
    moved: float = math.nan
    modularity: float = math.nan

    @property
    def evaluated(self) -> bool:
        """Whether objective, captured and kkt were taken at this iteration."""
        return not math.isnan(self.captured)
